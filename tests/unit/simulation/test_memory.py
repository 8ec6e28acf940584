from hypothesis import given
from hypothesis import strategies as st

from outrider.simulation.memory import KvMemory

BLOCKS, BLOCK_TOKENS = 6, 4
BATCHES = st.lists(
    st.lists(st.tuples(st.integers(0, 5), st.integers(1, 24)), min_size=1, max_size=4, unique_by=lambda m: m[0]),
    max_size=30,
)


def used_blocks(memory: KvMemory) -> int:
    return sum(-(-memory.resident_tokens(number) // BLOCK_TOKENS) for number in range(6))


@given(BATCHES)
def test_memory_is_kept_and_a_batchs_first_always_gets_on(batches: list[list[tuple[int, int]]]) -> None:
    memory = KvMemory(BLOCKS, BLOCK_TOKENS)
    for batch in batches:
        numbers = [number for number, _ in batch]
        held = []
        for number, tokens in batch:
            wanted = max(tokens, memory.resident_tokens(number))
            held.append(memory.hold(number, wanted, numbers))
            assert memory.resident_tokens(number) == wanted or not held[-1]
            assert used_blocks(memory) <= BLOCKS
        assert held[0]
        for number, tokens in batch:
            before = memory.resident_tokens(number)
            memory.shrink(number, tokens // 2)
            assert memory.resident_tokens(number) == min(before, tokens // 2)


def test_the_least_recently_used_goes_first_and_members_last() -> None:
    memory = KvMemory(BLOCKS, BLOCK_TOKENS)
    for number in (0, 1, 2):
        memory.hold(number, 8, [number])
    memory.hold(0, 8, [0])  # used again
    memory.hold(3, 4, [3])
    assert memory.taken_evicted() == [1]
    memory.hold(4, 8, [4, 2])  # 2 is in the same batch
    assert memory.taken_evicted() == [0]
    assert memory.taken_evicted() == []
    memory.drop(2)
    assert (memory.resident_tokens(2), memory.resident_tokens(4)) == (0, 8)


def test_without_a_limit_nothing_is_evicted() -> None:
    memory = KvMemory(None, BLOCK_TOKENS)
    assert all(memory.hold(number, 10_000, [number]) for number in range(100))
    assert memory.taken_evicted() == []

from math import inf

from hypothesis import given
from hypothesis import strategies as st

from lab.simulation.memory import KvMemory, Swapped

BLOCKS, BLOCK_TOKENS = 6, 4
BATCHES = st.lists(
    st.lists(st.tuples(st.integers(0, 5), st.integers(1, 24)), min_size=1, max_size=4, unique_by=lambda m: m[0]),
    max_size=30,
)
DUES = st.lists(st.sampled_from([0.0, 1.0, 2.0, inf]), min_size=6, max_size=6)


def used_blocks(memory: KvMemory) -> int:
    """None of these has anything on the host."""
    return sum(-(-memory.resident_tokens(number) // BLOCK_TOKENS) for number in range(6))


@given(BATCHES, DUES)
def test_memory_is_kept_and_a_batchs_first_always_gets_on(
    batches: list[list[tuple[int, int]]], dues: list[float]
) -> None:
    memory = KvMemory(BLOCKS, BLOCK_TOKENS)
    for batch in batches:
        numbers, held = [number for number, _ in batch], []
        for number, tokens in batch:
            memory.due(number, dues[number])
            wanted = max(tokens, memory.resident_tokens(number))
            held.append(memory.hold(number, wanted, numbers))
            assert memory.resident_tokens(number) == wanted or not held[-1]
            assert used_blocks(memory) <= BLOCKS
        assert held[0]
        for number, tokens in batch:
            before = memory.resident_tokens(number)
            memory.shrink(number, tokens // 2)
            assert memory.resident_tokens(number) == min(before, tokens // 2)


@given(BATCHES, DUES, st.integers(0, 12))
def test_with_host_memory_what_was_full_is_copied_back_and_no_more(
    batches: list[list[tuple[int, int]]], dues: list[float], host_blocks: int
) -> None:
    """What is resident or restorable never exceeds what was ever held, and copies never what the host holds."""
    memory, most, on_host = KvMemory(BLOCKS, BLOCK_TOKENS, host_blocks), dict[int, int](), 0
    for batch in batches:
        numbers = [number for number, _ in batch]
        for number, tokens in batch:
            memory.due(number, dues[number])
            known = memory.resident_tokens(number)
            assert known <= most.get(number, 0)
            wanted = max(tokens, known)
            if memory.hold(number, wanted, numbers):
                most[number] = max(most.get(number, 0), wanted)
                assert memory.resident_tokens(number) >= wanted
            swapped = memory.taken_swapped()
            on_host += swapped.out_blocks
            assert on_host <= host_blocks
            assert swapped.in_blocks * BLOCK_TOKENS <= known


def test_who_is_due_last_gives_up_as_much_as_is_lacking() -> None:
    memory = KvMemory(BLOCKS, BLOCK_TOKENS)
    for number, due_at_s in ((0, 3.0), (1, 9.0), (2, 1.0)):
        memory.hold(number, 8, [number])
        memory.due(number, due_at_s)
    memory.hold(3, 4, [3])
    assert memory.taken_evicted() == [1]
    assert memory.resident_tokens(1) == 4
    memory.hold(3, 16, [3])
    assert memory.taken_evicted() == [1, 0]
    assert [memory.resident_tokens(number) for number in range(4)] == [0, 0, 8, 16]
    memory.drop(2)
    assert memory.resident_tokens(2) == 0


def test_of_those_due_alike_the_least_recently_used_goes_first_and_members_last() -> None:
    memory = KvMemory(BLOCKS, BLOCK_TOKENS)
    for number in (0, 1, 2):
        memory.hold(number, 8, [number])
    memory.hold(0, 8, [0])  # used again
    memory.hold(3, 8, [3])
    assert memory.taken_evicted() == [1]
    memory.due(2, 0.0)
    memory.hold(4, 8, [4, 2, 0])  # these are in the same batch
    assert memory.taken_evicted() == [3]
    memory.hold(4, 12, [4, 2, 0])
    assert memory.taken_evicted() == [0]
    assert memory.taken_evicted() == []


def test_a_block_is_copied_out_once_and_back_as_often_as_it_is_needed() -> None:
    memory = KvMemory(2, BLOCK_TOKENS, 8)
    memory.hold(0, 7, [0])
    for _ in range(3):
        memory.hold(1, 8, [1])
        assert memory.resident_tokens(0) == 4  # of the last block nothing can be had again
        memory.hold(0, 7, [0])
    assert memory.taken_swapped() == Swapped(out_blocks=3, in_blocks=7)
    memory.drop(0)
    memory.drop(1)
    memory.hold(2, 8, [2])
    assert memory.taken_swapped() == Swapped()


def test_without_a_limit_nothing_is_evicted() -> None:
    memory = KvMemory(None, BLOCK_TOKENS)
    assert all(memory.hold(number, 10_000, [number]) for number in range(100))
    assert memory.taken_evicted() == []

"""What conversations leave, share and lose."""

from hypothesis import given
from hypothesis import strategies as st

from lab.simulation.memory import KvMemory

BLOCK = 16


def compute(memory: KvMemory, sequence: int, tokens: int, system: int | None = None, system_tokens: int = 0) -> int:
    """A response that has so many tokens in the end; how many of them were there."""
    found = memory.open(sequence, system, system_tokens)
    assert memory.hold(sequence, tokens, [sequence])
    memory.shrink(sequence, tokens)
    memory.release(sequence)
    return found


def test_the_next_turn_finds_the_one_before() -> None:
    memory = KvMemory(10, BLOCK)
    assert compute(memory, 1, 40) == 0
    assert compute(memory, 1, 70) == 40
    memory.drop(1)
    assert compute(memory, 1, 70) == 0, "the conversation was over"


def test_a_system_prompt_is_held_once() -> None:
    memory = KvMemory(10, BLOCK)
    assert compute(memory, 1, 100, system=0, system_tokens=90) == 0
    assert compute(memory, 2, 100, system=0, system_tokens=90) == 80, "its full blocks"
    assert compute(memory, 3, 100, system=1, system_tokens=90) == 0, "another"


def test_who_left_first_goes_first_and_a_system_prompt_after_all_that_use_it() -> None:
    memory = KvMemory(8, BLOCK)
    compute(memory, 1, 48, system=0, system_tokens=32)  # two blocks for all, one of its own
    compute(memory, 2, 48, system=0, system_tokens=32)
    compute(memory, 3, 64)  # fills the rest
    assert memory.open(4, None, 0) == 0
    assert memory.hold(4, 16, [4])
    assert memory.taken_evicted() == [1]
    assert memory.open(2, 0, 32) == 48
    assert memory.hold(2, 80, [4, 2])
    assert memory.taken_evicted() == [3]
    assert memory.resident_tokens(2) == 80


@given(
    blocks=st.integers(8, 24),
    happened=st.lists(
        st.tuples(st.integers(0, 5), st.integers(1, 100), st.integers(0, 1) | st.none(), st.booleans()), max_size=60
    ),
)
def test_no_block_is_lost_or_held_twice(blocks: int, happened: list[tuple[int, int, int | None, bool]]) -> None:
    memory = KvMemory(blocks, BLOCK)
    systems = dict[int, int | None]()
    for sequence, tokens, drawn, ends in happened:
        system = systems.setdefault(sequence, drawn)
        found = memory.open(sequence, system, 32)
        wanted = max(tokens, found)
        if wanted <= (blocks - 4) * BLOCK:
            assert memory.hold(sequence, wanted, [sequence]), "nobody else is under way"
            memory.shrink(sequence, wanted)
            assert memory.resident_tokens(sequence) == wanted
        memory.release(sequence)
        if ends:
            memory.drop(sequence)
            del systems[sequence]
    for sequence in range(6):
        memory.drop(sequence)
    memory.open(99, None, 0)
    assert memory.hold(99, blocks * BLOCK, [99]), "all of it is there again"

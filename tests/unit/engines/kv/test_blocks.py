"""Block accounting under any sequence of operations: nothing leaked, nothing shared while writable."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from outrider.engines.kv.blocks import BlockPool
from outrider.engines.kv.store import KvStore, SequenceKv, SharedKvError

BLOCK = 4


class StoreMachine(RuleBasedStateMachine):
    """Generations open, compute, commit, roll back, are evicted and close, in any order.

    The model of the content: what each block was last written with. A sequence must always find its own committed
    tokens in its blocks, whoever else shares or reuses them.
    """

    def __init__(self) -> None:
        super().__init__()
        self.store = KvStore(12, BLOCK)
        self.committed: dict[str, list[int]] = {}
        self.sequences: dict[str, SequenceKv] = {}
        self.content: dict[tuple[int, int], int] = {}  # (block, offset) -> token whose KV is there
        self.names = 0

    @rule(prompt=st.lists(st.integers(0, 1), min_size=1, max_size=14))
    def open(self, prompt: list[int]) -> None:
        name = f"g{self.names}"
        self.names += 1
        self.sequences[name] = self.store.open(name)
        self.committed[name] = prompt

    @precondition(lambda self: self.sequences)
    @rule(data=st.data())
    def round(self, data: st.DataObject) -> None:
        """Restore or compute the prefix, write a draft, accept some of it, commit one more token, roll back."""
        name = data.draw(st.sampled_from(sorted(self.sequences)))
        sequence, tokens = self.sequences[name], self.committed[name]
        if len(tokens) > 36:
            return
        draft = data.draw(st.lists(st.integers(0, 1), max_size=5))
        self.store.touch(sequence)
        sequence.restore(tokens)
        wanted = tokens + draft
        if not self.store.reserve(sequence, len(wanted), set()):
            assert sequence.missing_blocks(len(wanted)) > 0
            return
        sequence.check_writable(sequence.computed_tokens, len(wanted))
        self.write(sequence, wanted, sequence.computed_tokens)
        sequence.computed_tokens = len(wanted)
        accepted = data.draw(st.integers(0, len(draft)))
        tokens += [*draft[:accepted], data.draw(st.integers(0, 1))]
        sequence.rollback(len(tokens) - 1)
        sequence.publish(tokens, sequence.computed_tokens)
        sequence.busy = data.draw(st.booleans())

    @precondition(lambda self: self.sequences)
    @rule(data=st.data(), keep_cache=st.booleans())
    def close(self, data: st.DataObject, keep_cache: bool) -> None:
        name = data.draw(st.sampled_from(sorted(self.sequences)))
        self.store.close(name, keep_cache=keep_cache)
        del self.sequences[name], self.committed[name]

    def write(self, sequence: SequenceKv, tokens: list[int], start: int) -> None:
        for position in range(start, len(tokens)):
            self.content[sequence.blocks[position // BLOCK], position % BLOCK] = tokens[position]

    @invariant()
    def sequences_find_their_own_tokens(self) -> None:
        for name, sequence in self.sequences.items():
            for position in range(sequence.computed_tokens):
                block = sequence.blocks[position // BLOCK]
                assert self.content[block, position % BLOCK] == self.committed[name][position]

    @invariant()
    def every_block_is_in_one_place(self) -> None:
        usage = self.store.usage()
        held = {block for sequence in self.sequences.values() for block in sequence.blocks}
        assert usage.used_blocks == len(held)
        assert usage.used_blocks + usage.cached_blocks <= usage.total_blocks
        for sequence in self.sequences.values():
            assert len(set(sequence.blocks)) == len(sequence.blocks)
            assert len(sequence.blocks) * BLOCK >= sequence.computed_tokens

    @invariant()
    def shared_blocks_hold_full_committed_content_only(self) -> None:
        holders: dict[int, list[tuple[str, int]]] = {}
        for name, sequence in self.sequences.items():
            for index, block in enumerate(sequence.blocks):
                holders.setdefault(block, []).append((name, index))
        for block, users in holders.items():
            if len(users) > 1:
                prefixes = {tuple(self.committed[name][: (index + 1) * BLOCK]) for name, index in users}
                assert len(prefixes) == 1, f"block {block} is shared by different prefixes"
                assert all(len(prefix) % BLOCK == 0 for prefix in prefixes)

    def teardown(self) -> None:
        for name in list(self.sequences):
            self.store.close(name, keep_cache=False)
        assert self.store.usage().used_blocks == 0


StoreMachine.TestCase.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
TestStore = StoreMachine.TestCase


def test_free_blocks_are_handed_out_before_cached_ones() -> None:
    pool = BlockPool(3)
    first = pool.allocate(1)
    pool.publish(first[0], b"a")
    pool.release(first)
    assert (pool.cached, pool.held, pool.available) == (1, 0, 3)
    assert first[0] not in pool.allocate(2)
    assert pool.share(b"a") == first[0]


def test_cached_blocks_are_reclaimed_least_recently_used_and_tails_first() -> None:
    pool = BlockPool(4)
    chain = pool.allocate(3)
    for block, digest in zip(chain, (b"1", b"2", b"3"), strict=True):
        pool.publish(block, digest)
    pool.release(chain)
    pool.allocate(2)
    assert pool.share(b"3") is None
    assert pool.share(b"2") == chain[1]
    assert pool.share(b"1") == chain[0]


def test_a_published_block_is_never_writable_again_while_it_is_held() -> None:
    pool = BlockPool(2)
    (block,) = pool.allocate(1)
    assert pool.writable(block)
    pool.publish(block, b"x")
    assert not pool.writable(block)


def test_releasing_what_nobody_holds_is_an_error() -> None:
    pool = BlockPool(1)
    blocks = pool.allocate(1)
    pool.release(blocks)
    with pytest.raises(ValueError, match="held by nobody"):
        pool.release(blocks)
    with pytest.raises(MemoryError, match="needs 2 KV blocks, found 1"):
        pool.allocate(2)


def test_the_oldest_busy_sequence_takes_memory_from_younger_ones_but_not_the_reverse() -> None:
    store = KvStore(4, BLOCK)
    old, young = store.open("old"), store.open("young")
    assert store.reserve(young, 12, set())
    young.busy = True
    assert store.reserve(old, 8, set())
    assert young.blocks == []
    old.busy = True
    assert not store.reserve(young, 12, set())
    assert len(old.blocks) == 2
    assert store.usage().evictions == 1


def test_sequences_of_the_same_pass_are_never_evicted() -> None:
    store = KvStore(4, BLOCK)
    first, second = store.open("first"), store.open("second")
    assert store.reserve(second, 12, set())
    assert not store.reserve(first, 8, {second})
    assert len(second.blocks) == 3


def test_rolling_back_into_a_published_block_forgets_it_whole() -> None:
    store = KvStore(4, BLOCK)
    sequence = store.open("a")
    store.reserve(sequence, 8, set())
    sequence.computed_tokens = 8
    sequence.publish([1] * 8, 8)
    sequence.rollback(6)
    assert sequence.computed_tokens == 4
    sequence.grow(8)
    sequence.check_writable(4, 8)


def test_what_others_may_read_is_not_written_over() -> None:
    """Bookkeeping gone wrong: positions of a shared block, then of one's own published block, are taken for new."""
    store = KvStore(4, BLOCK)
    first, second = store.open("a"), store.open("b")
    store.reserve(first, 8, set())
    first.check_writable(0, 8)
    first.computed_tokens = 8
    first.publish([1] * 8, 4)
    with pytest.raises(SharedKvError, match=r"positions 0\.\.7, found block \d shared"):
        first.check_writable(0, 8)
    assert second.restore([1] * 8) == 4
    first.drop(keep_cache=True)
    with pytest.raises(SharedKvError, match=r"positions 3\.\.3"):
        second.check_writable(3, 4)
    store.reserve(second, 8, set())
    second.check_writable(4, 8)

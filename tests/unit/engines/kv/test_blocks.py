"""Block accounting under any sequence of operations: nothing leaked, nothing shared while writable."""

from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from outrider.engines.kv.blocks import BlockPool
from outrider.engines.kv.host_cache import HostKvCache
from outrider.engines.kv.store import KvStore, SequenceKv, SharedKvError

BLOCK = 4


class StoreMachine(RuleBasedStateMachine):
    """Generations open, compute, commit, roll back, are evicted and close, in any order.

    The model of the content: what each block was last written with. A sequence must always find its own committed
    tokens in its blocks, whoever else shares or reuses them.
    """

    host_blocks = 0

    def __init__(self) -> None:
        super().__init__()
        self.store = KvStore(12, BLOCK, self.host_blocks)
        self.shelved: dict[int, list[int]] = {}  # what the copies so far have left in each slot of host memory
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
    def withdraw(self, data: st.DataObject) -> None:
        """What it holds is no number: nobody else is to have it, and it begins anew."""
        sequence = self.sequences[data.draw(st.sampled_from(sorted(self.sequences)))]
        sequence.withdraw()
        assert (sequence.blocks, sequence.computed_tokens) == ([], 0)

    @precondition(lambda self: self.sequences)
    @rule(data=st.data())
    def round(self, data: st.DataObject) -> None:
        """Restore or compute the prefix, write a draft, accept some of it, commit one more token, roll back."""
        name = data.draw(st.sampled_from(sorted(self.sequences)))
        sequence, tokens = self.sequences[name], self.committed[name]
        if len(tokens) > 36:
            return
        draft = data.draw(st.lists(st.integers(0, 1), max_size=5))
        self.store.begin_pass([sequence])
        sequence.restore(tokens)
        wanted, limit = tokens + draft, len(tokens) - 1
        if not self.store.restore(sequence, len(wanted), limit, set()):
            assert sequence.missing_blocks(len(wanted)) > 0
            return
        self.copy()
        sequence.check_writable(sequence.computed_tokens, len(wanted))
        self.store.computing(sequence, sequence.computed_tokens, len(wanted))
        self.write(sequence, wanted, sequence.computed_tokens)
        sequence.computed_tokens = len(wanted)
        accepted = data.draw(st.integers(0, len(draft)))
        tokens += [*draft[:accepted], data.draw(st.integers(0, 1))]
        sequence.rollback(len(tokens) - 1)
        sequence.publish(tokens, sequence.computed_tokens)
        sequence.busy = data.draw(st.booleans())

    @precondition(lambda self: self.sequences)
    @rule(data=st.data(), at_s=st.sampled_from([1.0, 2.0, 3.0, inf]))
    def due(self, data: st.DataObject, at_s: float) -> None:
        self.store.due(data.draw(st.sampled_from(sorted(self.sequences))), at_s)

    def copy(self) -> None:
        """As a model does before a pass; what never was on the host is not brought back."""
        for copy in self.store.taken_copies():
            if copy.out:
                self.shelved[copy.slot] = [self.content[copy.block, offset] for offset in range(BLOCK)]
            else:
                for offset, token in enumerate(self.shelved[copy.slot]):
                    self.content[copy.block, offset] = token

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
        self.copy()
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


class SwappingMachine(StoreMachine):
    """The same with host memory, for less than there may be to copy."""

    host_blocks = 5


SwappingMachine.TestCase.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
TestSwappingStore = SwappingMachine.TestCase


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
    with pytest.raises(ValueError, match="not in use"):
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


def held_by(store: KvStore, name: str, tokens: int, due_at_s: float = inf) -> SequenceKv:
    """A sequence with so many positions, all of them its own."""
    sequence = store.open(name)
    store.begin_pass([sequence])
    assert store.reserve(sequence, tokens, set())
    sequence.computed_tokens = tokens
    sequence.publish([ord(name)] * tokens, tokens)
    store.due(name, due_at_s)
    return sequence


def test_who_is_due_last_gives_up_its_end_and_no_more_than_is_lacking() -> None:
    store = KvStore(6, BLOCK)
    soon, late, owed_nothing = held_by(store, "a", 8, 1.0), held_by(store, "b", 8, 9.0), held_by(store, "c", 8)
    store.due("a", 2.0)
    new = store.open("d")
    store.begin_pass([new])
    for positions, left in ((4, (2, 2, 1)), (12, (2, 1, 0)), (16, (2, 0, 0)), (24, (0, 0, 0))):
        assert store.reserve(new, positions, set())
        assert tuple(len(one.blocks) for one in (soon, late, owed_nothing)) == left
        assert [len(one.blocks) * BLOCK for one in (soon, late)] == [soon.computed_tokens, late.computed_tokens]
    assert store.usage().evicted_blocks == 6
    assert dict(store.evicted()) == {"a": 0, "b": 0, "c": 0}


def test_who_is_in_the_pass_is_taken_from_only_when_nobody_else_is_left() -> None:
    store = KvStore(6, BLOCK)
    outside, behind = held_by(store, "a", 8, 0.0), held_by(store, "b", 8)
    new = store.open("c")
    store.begin_pass([new, behind])
    assert store.reserve(new, 16, set())
    assert (len(outside.blocks), len(behind.blocks)) == (0, 2)
    assert store.reserve(new, 20, set())
    assert (len(behind.blocks), behind.computed_tokens) == (1, 4)
    assert not store.reserve(new, 24, {behind})


def test_what_was_evicted_is_shared_again_copied_back_or_computed_in_turn() -> None:
    store = KvStore(4, BLOCK, 8)
    first = held_by(store, "a", 14)
    assert store.usage().swapped_out_blocks == 0
    second = held_by(store, "b", 10)
    assert (len(first.blocks), store.usage().swapped_out_blocks) == (1, 2)  # the last block was not full
    assert dict(store.evicted()) == {"a": 12}
    store.begin_pass([first])
    first.share_lost(13)
    assert len(first.on_host(13)) == 2
    assert len(first.on_host(11)) == 1  # not what has to be computed anyway
    assert store.restore(first, 14, 13, set())
    assert (first.computed_tokens, len(second.blocks)) == (12, 0)
    store.computing(first, 12, 14)
    usage = store.usage()
    assert (usage.recomputed_tokens, usage.swapped_in_blocks, usage.host_used_blocks) == (2, 2, 4)
    copies = [(copy.out, copy.slot) for copy in store.taken_copies()]
    assert copies == [(True, 0), (True, 1), (True, 2), (True, 3), (False, 1), (False, 0)]
    assert store.taken_copies() == []


def test_what_is_withdrawn_is_found_by_nobody_wherever_it_was() -> None:
    store = KvStore(8, BLOCK, 8)
    first = held_by(store, "a", 14)
    second = held_by(store, "b", 28)
    assert first.restorable_blocks() > 0, "on the shelf"
    shared, tokens = store.open("c"), [ord("b")] * 28
    assert shared.restore(tokens) > 0
    first.withdraw()
    second.withdraw()
    assert store.usage().host_used_blocks == 0
    assert store.usage().used_blocks == len(shared.blocks), "who holds it keeps it"
    assert store.open("d").restore(tokens) == 0
    store.close("c", keep_cache=True)
    assert store.usage().cached_blocks == 0


def test_what_was_forced_and_refused_does_not_come_back() -> None:
    """A block of committed and forced tokens is published and evicted; then the forced ones are not committed."""
    store = KvStore(4, BLOCK)
    sequence = store.open("a")
    store.begin_pass([sequence])
    assert store.reserve(sequence, 8, set())
    sequence.computed_tokens = 8
    sequence.publish([1] * 6 + [2] * 2, 8)
    sequence.give_up(1)
    assert sequence.restorable_blocks() == 1
    sequence.rollback(6)
    assert (sequence.share_lost(8), sequence.computed_tokens) == (0, 4)


def test_a_full_shelf_gives_up_the_least_recently_used_but_not_what_is_awaited() -> None:
    host_cache = HostKvCache(2)
    assert (host_cache.put(b"1"), host_cache.put(b"2"), host_cache.put(b"1")) == (0, 1, None)
    assert host_cache.put(b"3") == 1
    with host_cache.awaiting([b"1", b"3"]):
        assert host_cache.put(b"4") is None
    assert (host_cache.get(b"1"), host_cache.put(b"4"), b"3" in host_cache) == (0, 1, False)


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


@given(
    st.sampled_from([b"", b"alice" * 3, b"bob" * 5]),
    st.sampled_from([b"", b"alice" * 3, b"bob" * 5]),
    st.integers(1, 4),
    st.booleans(),
)
def test_blocks_are_shared_within_a_salt_alone(mine: bytes, others: bytes, blocks: int, evicted: bool) -> None:
    store, tokens = KvStore(12, BLOCK), list(range(4 * BLOCK + 1))
    first = store.open("first", mine)
    store.begin_pass([first])
    assert store.reserve(first, blocks * BLOCK, set())
    first.computed_tokens = blocks * BLOCK
    first.publish(tokens, blocks * BLOCK)
    second = store.open("second", others)
    shared = second.restore(tokens)
    assert shared == (blocks * BLOCK if mine == others else 0)
    if evicted:
        second.give_up(blocks)
        assert second.restore(tokens) == shared, "what it had comes back, and no more"

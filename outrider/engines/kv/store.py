"""KV of many sequences in one block pool: prefix sharing, rollback, eviction. Bookkeeping only, no tensors.

Eviction takes blocks from a sequence's end, as many as are missing; ``scheduling.residency`` chooses the sequence.
Evicted blocks that were published can be found until they are reclaimed, and after that in the host cache, so a
sequence is restored from there where possible and recomputed where not.

Sequences of the coming pass (``begin_pass``) are evicted only if no other is left. One whose block is begun and
undecided (``busy``) yields only to one opened before it: so the oldest always makes progress, and two large sequences
cannot evict each other for ever. A sequence that the stepper holds back is not busy, or it would keep the memory that
those in the pass need.
"""

from collections.abc import Collection, Sequence
from itertools import takewhile
from math import inf

from outrider.contracts.prefix import block_digest
from outrider.contracts.requests import GenerationId
from outrider.contracts.verifying import KvUsage
from outrider.engines.kv.blocks import BlockPool
from outrider.engines.kv.host_cache import HostCopy
from outrider.scheduling.residency import first_to_go


class SharedKvError(Exception):
    """A pass was about to overwrite KV that other generations may read. A bug of the engine."""


class SequenceKv:
    """KV of one sequence: its blocks in order, and the number of leading positions that are computed.

    Attributes:
        due_at_s: when its response falls behind its promise; infinity if nothing is promised.
        lost_until: positions before this one were computed once and evicted since.
    """

    def __init__(self, pool: BlockPool, block_tokens: int, order: int, salt: bytes = b"") -> None:
        """Start empty. ``order`` is the rank of opening; blocks are shared among sequences of the same ``salt``."""
        self._salt = salt
        self._pool = pool
        self._block_tokens = block_tokens
        self._digests: list[bytes] = []  # of the leading full, published blocks
        self._lost: list[bytes] = []  # of the full blocks after these: evicted, or found in the cache and not yet held
        self.order = order
        self.due_at_s = inf
        self.lost_until = 0
        self.last_used = 0
        self.busy = False
        self.blocks: list[int] = []
        self.computed_tokens = 0
        self._forks: list[list[int]] = []

    def restore(self, token_ids: Sequence[int]) -> int:
        """Share published blocks for the beginning of ``token_ids``, or for what was evicted of it.

        The last token is never shared: its logits are needed, so it must be computed.

        Returns:
            Number of positions that need no computing now and did before.
        """
        if not self.blocks:
            self._lost, parent = [], self._salt
            for start in range(0, len(token_ids) - self._block_tokens, self._block_tokens):
                parent = block_digest(parent, token_ids[start : start + self._block_tokens])
                if not self._pool.has(parent):
                    break
                self._lost.append(parent)
        return self.share_lost(len(token_ids) - 1)

    def share_lost(self, limit: int) -> int:
        """Share lost blocks that are published, within the first ``limit`` positions; return the positions gained."""
        before = self.computed_tokens
        while self._restorable(limit) and (block := self._pool.share(self._lost[0])) is not None:
            self.blocks.append(block)
            self._restored()
        return self.computed_tokens - before

    def on_host(self, limit: int) -> list[bytes]:
        """Return the digests that come next within the first ``limit`` positions and are in the host cache."""
        if not self._restorable(limit):
            return []
        most = (limit - self.computed_tokens) // self._block_tokens
        return list(takewhile(self._pool.host_cache.__contains__, self._lost[:most]))

    def restorable_blocks(self) -> int:
        """Return the number of lost blocks that come next and are published or in the host cache."""
        if not self._restorable(self.computed_tokens + self._block_tokens):
            return 0
        return sum(1 for _ in takewhile(self._pool.has, self._lost))

    def copy_back(self, count: int) -> None:
        """Fill the next ``count`` blocks, which are allocated, from the host cache."""
        for _ in range(count):
            self._pool.copy_back(self.blocks[len(self._digests)], self._lost[0])
            self._restored()

    def _restorable(self, limit: int) -> bool:
        """Whether the next block of the sequence is a lost one, within the first ``limit`` positions."""
        size, done = self._block_tokens, len(self._digests) * self._block_tokens
        return bool(self._lost) and self.computed_tokens == done and done + size <= limit

    def _restored(self) -> None:
        self._digests.append(self._lost.pop(0))
        self.computed_tokens += self._block_tokens

    def missing_blocks(self, positions: int) -> int:
        """Return the number of blocks to allocate before the first ``positions`` positions can be written."""
        return max(0, -(-positions // self._block_tokens) - len(self.blocks))

    def grow(self, positions: int) -> None:
        if missing := self.missing_blocks(positions):
            self.blocks += self._pool.allocate(missing)

    def publish(self, token_ids: Sequence[int], length: int) -> None:
        """Share the blocks that are full within the first ``length`` positions of the committed ``token_ids``.

        Those positions must be computed. Published blocks are never written again.
        """
        for index in range(len(self._digests), length // self._block_tokens):
            start = index * self._block_tokens
            parent = self._digests[-1] if self._digests else self._salt
            self._digests.append(block_digest(parent, token_ids[start : start + self._block_tokens]))
            del self._lost[:1]
            self._pool.publish(self.blocks[index], self._digests[-1])

    def rollback(self, length: int) -> None:
        """Forget positions from ``length`` on and all forks, and release the blocks without a remaining position.

        A published block is immutable: if ``length`` lies inside one, the whole block is forgotten.
        """
        if self._forks:
            self._release_forks()
        self.computed_tokens = min(self.computed_tokens, length)
        if self.computed_tokens < len(self._digests) * self._block_tokens:
            self.computed_tokens -= self.computed_tokens % self._block_tokens
            del self._digests[self.computed_tokens // self._block_tokens :]
            self._lost = []
        # Lost blocks beyond ``length`` no longer belong to the sequence.
        del self._lost[max(0, length // self._block_tokens - len(self._digests)) :]
        needed = -(-self.computed_tokens // self._block_tokens)
        if len(self.blocks) > needed:
            surplus = self.blocks[needed:]
            del self.blocks[needed:]
            self._pool.release(surplus)

    def give_up(self, blocks: int) -> None:
        """Give up the last ``blocks`` blocks to eviction, or as many as there are; all of them if ``busy``."""
        self.lost_until = max(self.lost_until, self.computed_tokens)
        kept = 0 if self.busy else max(0, len(self.blocks) - blocks)
        # Digests are kept, so that the blocks can be shared again or copied back while their content exists.
        digests = [*self._digests, *self._lost]
        self.rollback(kept * self._block_tokens)
        self._lost = digests[len(self._digests) :]

    def drop(self, *, keep_cache: bool) -> None:
        self._release_forks()
        self._pool.release(self.blocks, keep_cache=keep_cache)
        self.blocks, self._digests, self._lost, self.computed_tokens = [], [], [], 0

    def withdraw(self) -> None:
        """Release all blocks and unpublish their content, which is not valid."""
        self._pool.withdraw(self.blocks, [*self._digests, *self._lost])
        self.drop(keep_cache=False)

    def fork(self, length: int, positions: int) -> list[int]:
        """Allocate private blocks for another continuation after ``length`` positions.

        They begin with the block that holds position ``length``. With the sequence's blocks before that they cover
        ``positions`` positions. The next ``rollback`` releases them, unless one fork is adopted before.
        """
        blocks = self._pool.allocate(-(-positions // self._block_tokens) - length // self._block_tokens)
        self._forks.append(blocks)
        return blocks

    def adopt(self, length: int, fork: list[int], computed_tokens: int) -> None:
        """Replace the blocks after ``length`` positions by a fork's, which is computed up to ``computed_tokens``."""
        self._forks.remove(fork)
        first = length // self._block_tokens
        replaced, self.blocks[first:] = self.blocks[first:], fork
        self._pool.release(replaced)
        self.computed_tokens = computed_tokens

    def check_writable(self, start: int, stop: int) -> None:
        """Check that positions ``start .. stop - 1`` lie in private, unpublished blocks, before a pass writes them.

        Raises:
            SharedKvError: one does not: another generation would read what is written.
        """
        for block in self.blocks[start // self._block_tokens : -(-stop // self._block_tokens)]:
            if not self._pool.writable(block):
                raise SharedKvError(
                    f"needs private KV blocks for positions {start}..{stop - 1}, found block {block} shared; this is "
                    "the engine's own error: restart it"
                )

    def _release_forks(self) -> None:
        if self._forks:
            for blocks in self._forks:
                self._pool.release(blocks)
            self._forks = []


class KvStore:
    def __init__(self, total_blocks: int, block_tokens: int, host_blocks: int = 0) -> None:
        self.block_tokens = block_tokens
        self._pool = BlockPool(total_blocks, host_blocks)
        self._sequences: dict[GenerationId, SequenceKv] = {}
        self._present: dict[SequenceKv, None] = {}
        self._evicted: set[SequenceKv] = set()
        self._opened = 0
        self._clock = 0
        self._evictions = self._unowed_evictions = self._evicted_blocks = self._recomputed_tokens = 0

    @property
    def capacity_tokens(self) -> int:
        return self._pool.total * self.block_tokens

    def open(self, generation: GenerationId, salt: bytes = b"") -> SequenceKv:
        """Start an empty sequence, in place of one of the same name. It shares blocks within its ``salt``."""
        self.close(generation, keep_cache=True)
        self._opened += 1
        sequence = SequenceKv(self._pool, self.block_tokens, self._opened, salt)
        self._sequences[generation] = sequence
        return sequence

    def close(self, generation: GenerationId, *, keep_cache: bool) -> None:
        sequence = self._sequences.pop(generation, None)
        if sequence is not None:
            sequence.drop(keep_cache=keep_cache)

    def due(self, generation: GenerationId, at_s: float) -> None:
        """Set when a generation's response falls behind its promise; infinity if nothing is promised."""
        if (sequence := self._sequences.get(generation)) is not None:
            sequence.due_at_s = at_s

    def touch(self, sequence: SequenceKv) -> None:
        self._clock += 1
        sequence.last_used = self._clock

    def begin_pass(self, present: Sequence[SequenceKv]) -> None:
        """Set the sequences of the coming pass, in its order; all others are no longer ``busy``."""
        self._present, self._evicted = dict.fromkeys(present), set()
        for sequence in present:
            self.touch(sequence)
        for sequence in self._sequences.values():
            if sequence.busy and sequence not in self._present:
                sequence.busy = False

    def reserve(
        self, sequence: SequenceKv, positions: int, keep: Collection[SequenceKv], forked_blocks: int = 0
    ) -> bool:
        """Allocate the first ``positions`` positions of a sequence, evicting others if necessary.

        Sequences in ``keep``, which are part of the same pass, are never evicted. ``forked_blocks`` more blocks are
        left available, to be forked. False if there is not enough memory: nothing was allocated then, though others may
        have been evicted.
        """
        missing = sequence.missing_blocks(positions) + forked_blocks
        if not missing:  # most blocks
            return True
        if missing > self._pool.available and not self._evict(missing, sequence, keep):
            return False
        sequence.grow(positions)
        return True

    def restore(
        self, sequence: SequenceKv, positions: int, limit: int, keep: Collection[SequenceKv], forked_blocks: int = 0
    ) -> bool:
        """Reserve as above, and copy what the host cache has of the first ``limit`` positions back."""
        awaited = sequence.on_host(limit)
        with self._pool.host_cache.awaiting(awaited):
            if not self.reserve(sequence, positions, keep, forked_blocks):
                return False
            sequence.copy_back(len(awaited))
        return True

    def computing(self, sequence: SequenceKv, start: int, stop: int) -> None:
        """Count positions about to be computed that were computed before and evicted."""
        self._recomputed_tokens += max(0, min(stop, sequence.lost_until) - start)
        if stop >= sequence.lost_until:
            sequence.lost_until = 0

    def taken_copies(self) -> list[HostCopy]:
        return self._pool.taken_copies()

    def taken_fresh_blocks(self) -> list[int]:
        return self._pool.taken_fresh()

    def evicted(self) -> tuple[tuple[GenerationId, int], ...]:
        """Return who lost KV since ``begin_pass``, each with how many leading positions it kept or can restore."""
        size, found = self.block_tokens, list[tuple[GenerationId, int]]()
        for name, sequence in self._sequences.items() if self._evicted else ():
            if sequence in self._evicted:
                found.append((name, sequence.computed_tokens + size * sequence.restorable_blocks()))
        return tuple(found)

    def usage(self) -> KvUsage:
        return KvUsage(
            block_tokens=self.block_tokens,
            total_blocks=self._pool.total,
            used_blocks=self._pool.held,
            cached_blocks=self._pool.cached,
            generations=len(self._sequences),
            evictions=self._evictions,
            unowed_evictions=self._unowed_evictions,
            evicted_blocks=self._evicted_blocks,
            recomputed_tokens=self._recomputed_tokens,
            host_blocks=self._pool.host_cache.slots,
            host_used_blocks=self._pool.host_cache.used,
            swapped_out_blocks=self._pool.swapped_out_blocks,
            swapped_in_blocks=self._pool.swapped_in_blocks,
        )

    def _evict(self, missing: int, sequence: SequenceKv, keep: Collection[SequenceKv]) -> bool:
        """Evict others until ``missing`` blocks are available; False if there are too few."""
        pool = self._pool
        others = [s for s in self._sequences.values() if s.blocks and s is not sequence and s not in keep]
        outside = [s for s in others if not (s.busy or s in self._present)]
        while missing > pool.available and (victim := first_to_go(outside)) is not None:
            outside.remove(victim)
            self._take_from(victim, missing)
        if missing <= pool.available:
            return True
        # Last of the pass first: a pass is in order of precedence.
        places = {present: place for place, present in enumerate(self._present)}
        inside = [s for s in others if (s.busy or s in places) and not (s.busy and s.order < sequence.order)]
        inside.sort(key=lambda s: (places.get(s, len(places)), s.order))
        while missing > pool.available and inside:
            self._take_from(inside.pop(), missing)
        return missing <= pool.available

    def _take_from(self, victim: SequenceKv, missing: int) -> None:
        held = len(victim.blocks)
        self._evicted.add(victim)
        # A released block that others hold as well does not become available, so one call may not be enough.
        while victim.blocks and missing > self._pool.available:
            victim.give_up(missing - self._pool.available)
        self._evictions += 1
        self._unowed_evictions += victim.due_at_s == inf
        self._evicted_blocks += held - len(victim.blocks)

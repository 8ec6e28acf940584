"""The KV of many sequences in one block pool: prefix sharing, rollback, eviction. Bookkeeping only, no tensors.

Eviction drops a whole idle sequence; its published blocks stay findable until they are reclaimed, so the sequence is
restored from them where possible and recomputed where not. A sequence in the middle of a block (``busy``) is evicted
only by one opened before it, so the oldest always gets on and two large ones cannot starve each other. One that is held
back there is not busy: else it would keep the memory of whoever is to go on in its place.
"""

from collections.abc import Collection, Sequence

from outrider.contracts.prefix import block_digest
from outrider.contracts.requests import GenerationId
from outrider.contracts.verifying import KvUsage
from outrider.engines.kv.blocks import BlockPool


class SharedKvError(Exception):
    """KV that other generations may read was about to be written over."""


class SequenceKv:
    """KV of one sequence: its blocks in order, and how many leading positions are computed."""

    def __init__(self, pool: BlockPool, block_tokens: int, order: int) -> None:
        """Hold nothing yet. ``order`` is the rank of opening, ``block_tokens`` the positions per block."""
        self._pool = pool
        self._block_tokens = block_tokens
        self._digests: list[bytes] = []  # of the leading full blocks of the committed sequence
        self.order = order
        self.last_used = 0
        self.busy = False
        self.blocks: list[int] = []
        self.computed_tokens = 0
        self._forks: list[list[int]] = []

    def restore(self, token_ids: Sequence[int]) -> int:
        """Share published blocks for a leading part of ``token_ids``, if nothing is computed yet.

        At least one token is left to compute, so that there are logits to continue from.

        Returns:
            Positions that need no computing.
        """
        if self.blocks or self.computed_tokens:
            return 0
        parent = b""
        for start in range(0, len(token_ids) - self._block_tokens, self._block_tokens):
            parent = block_digest(parent, token_ids[start : start + self._block_tokens])
            block = self._pool.share(parent)
            if block is None:
                break
            self.blocks.append(block)
            self._digests.append(parent)
        self.computed_tokens = len(self.blocks) * self._block_tokens
        return self.computed_tokens

    def missing_blocks(self, positions: int) -> int:
        """Blocks to allocate before the first ``positions`` positions can be written."""
        return max(0, -(-positions // self._block_tokens) - len(self.blocks))

    def grow(self, positions: int) -> None:
        """Allocate what ``missing_blocks`` says, as ``BlockPool.allocate`` does."""
        if missing := self.missing_blocks(positions):
            self.blocks += self._pool.allocate(missing)

    def publish(self, token_ids: Sequence[int], length: int) -> None:
        """Share the blocks that are full within the first ``length`` positions, which are computed and committed.

        ``token_ids`` is the committed sequence. Published blocks are never written again.
        """
        for index in range(len(self._digests), length // self._block_tokens):
            start = index * self._block_tokens
            parent = self._digests[-1] if self._digests else b""
            self._digests.append(block_digest(parent, token_ids[start : start + self._block_tokens]))
            self._pool.publish(self.blocks[index], self._digests[-1])

    def rollback(self, length: int) -> None:
        """Forget positions from ``length`` on and all forks, and give back blocks that hold none of those kept.

        A published block is immutable, so a cut inside one forgets that block whole.
        """
        if self._forks:
            self._release_forks()
        self.computed_tokens = min(self.computed_tokens, length)
        if self.computed_tokens < len(self._digests) * self._block_tokens:
            self.computed_tokens -= self.computed_tokens % self._block_tokens
            del self._digests[self.computed_tokens // self._block_tokens :]
        needed = -(-self.computed_tokens // self._block_tokens)
        if len(self.blocks) > needed:
            surplus = self.blocks[needed:]
            del self.blocks[needed:]
            self._pool.release(surplus)

    def drop(self, *, keep_cache: bool) -> None:
        """Give back everything."""
        self._release_forks()
        self._pool.release(self.blocks, keep_cache=keep_cache)
        self.blocks, self._digests, self.computed_tokens = [], [], 0

    def fork(self, length: int, positions: int) -> list[int]:
        """Private blocks for another continuation behind ``length`` positions, from the block on that holds ``length``.

        Together with the sequence's own blocks before them they cover ``positions`` positions. They are given back by
        the next ``rollback``, unless one is adopted before.
        """
        blocks = self._pool.allocate(-(-positions // self._block_tokens) - length // self._block_tokens)
        self._forks.append(blocks)
        return blocks

    def adopt(self, length: int, fork: list[int], computed_tokens: int) -> None:
        """Go on with what was forked behind ``length`` positions; it is computed that far."""
        self._forks.remove(fork)
        first = length // self._block_tokens
        replaced, self.blocks[first:] = self.blocks[first:], fork
        self._pool.release(replaced)
        self.computed_tokens = computed_tokens

    def check_writable(self, start: int, stop: int) -> None:
        """See that positions ``start .. stop - 1`` lie in private, unpublished blocks, before a pass writes them.

        Raises:
            SharedKvError: one does not, and another generation would read what is written.
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
    """All sequences of one engine, by generation."""

    def __init__(self, total_blocks: int, block_tokens: int) -> None:
        """Make an empty store of ``total_blocks`` blocks of ``block_tokens`` positions."""
        self.block_tokens = block_tokens
        self._pool = BlockPool(total_blocks)
        self._sequences: dict[GenerationId, SequenceKv] = {}
        self._opened = 0
        self._clock = 0
        self._evictions = 0

    @property
    def capacity_tokens(self) -> int:
        """Positions one sequence could hold if it were alone."""
        return self._pool.total * self.block_tokens

    def open(self, generation: GenerationId) -> SequenceKv:
        """Start an empty sequence; one of the same name is dropped first."""
        self.close(generation, keep_cache=True)
        self._opened += 1
        sequence = SequenceKv(self._pool, self.block_tokens, self._opened)
        self._sequences[generation] = sequence
        return sequence

    def close(self, generation: GenerationId, *, keep_cache: bool) -> None:
        """Drop a sequence, if it exists."""
        sequence = self._sequences.pop(generation, None)
        if sequence is not None:
            sequence.drop(keep_cache=keep_cache)

    def touch(self, sequence: SequenceKv) -> None:
        """Mark a sequence as used now: idle ones are evicted in the order of their last use."""
        self._clock += 1
        sequence.last_used = self._clock

    def reserve(
        self, sequence: SequenceKv, positions: int, keep: Collection[SequenceKv], forked_blocks: int = 0
    ) -> bool:
        """Make room for the first ``positions`` positions of a sequence, evicting others if need be.

        Never evicts a sequence in ``keep`` (they are part of the same forward pass). False if there is no room; then
        nothing was allocated. As many blocks as it is to ``fork`` are left available.
        """
        missing = sequence.missing_blocks(positions) + forked_blocks
        if not missing:  # most blocks
            return True
        if missing > self._pool.available:
            for victim in self._victims(sequence, keep):
                victim.drop(keep_cache=True)
                self._evictions += 1
                if missing <= self._pool.available:
                    break
        if missing > self._pool.available:
            return False
        sequence.grow(positions)
        return True

    def usage(self) -> KvUsage:
        """Present use, for metrics and the scheduler."""
        return KvUsage(
            block_tokens=self.block_tokens,
            total_blocks=self._pool.total,
            used_blocks=self._pool.held,
            cached_blocks=self._pool.cached,
            generations=len(self._sequences),
            evictions=self._evictions,
        )

    def _victims(self, sequence: SequenceKv, keep: Collection[SequenceKv]) -> list[SequenceKv]:
        """Who may be evicted for this one: idle ones by last use, then busy ones opened later, newest first."""
        others = [s for s in self._sequences.values() if s is not sequence and s not in keep and s.blocks]
        idle = sorted((s for s in others if not s.busy), key=lambda s: s.last_used)
        younger = sorted((s for s in others if s.busy and s.order > sequence.order), key=lambda s: -s.order)
        return idle + younger

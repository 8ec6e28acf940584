"""Bookkeeping of the verifier's KV memory and of host memory behind it, with the engines' own rule of eviction.

Sequences lose whole blocks, from their ends (``outrider.scheduling.residency``). With host memory, evicted full blocks
are copied there, each once. They are copied back if they directly continue what is resident.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

from outrider.scheduling.residency import first_to_go


@dataclass(slots=True, eq=False)
class SimSequenceKv:
    """KV of one sequence. Bit n of ``on_host`` says whether its block n is in host memory."""

    number: int
    due_at_s: float = inf
    last_used: int = 0
    tokens: int = 0  # leading positions that are resident
    on_host: int = 0
    shared_tokens: int = 0  # leading ``tokens`` in blocks of a shared system prompt


@dataclass(slots=True)
class Swapped:
    out_blocks: int = 0
    in_blocks: int = 0


class KvMemory:
    """The number of leading positions of each sequence that are resident. Sequences are numbers."""

    def __init__(self, blocks: int | None, block_tokens: int, host_blocks: int = 0) -> None:
        """Create empty memory of ``blocks`` with ``block_tokens`` positions each; None: no limit."""
        self._free, self._block_tokens, self._host_free = blocks, block_tokens, host_blocks
        self._held: dict[int, SimSequenceKv] = {}
        self._evicted: dict[int, None] = {}
        self._swapped = Swapped()
        self._uses = 0

    def resident_tokens(self, sequence: int) -> int:
        """Return its leading positions that need no computing, including those that can be copied back."""
        held = self._held.get(sequence)
        if held is None:
            return 0
        return held.tokens + self._block_tokens * self._restorable(held) if held.on_host else held.tokens

    def due(self, sequence: int, at_s: float) -> None:
        """Set when its response falls behind its promise; infinity for best effort."""
        self._of(sequence).due_at_s = at_s

    def hold(self, sequence: int, tokens: int, batch: Sequence[int]) -> bool:
        """Make memory for ``tokens`` positions; return False if that would need KV of members before it in ``batch``.

        Its blocks on the host are copied back. Sequences outside the batch are evicted first, then the batch's own from
        its end.
        """
        held = self._of(sequence)
        restored = self._restorable(held) if held.on_host else 0
        if self._free is not None:
            lacking = self._blocks(tokens) - self._blocks(held.tokens)
            if lacking > self._free and not self._evict(lacking, sequence, batch):
                return False
            self._free -= lacking
        self._uses += 1
        held.last_used = self._uses
        self._swapped.in_blocks += restored
        held.tokens = tokens
        return True

    def shrink(self, sequence: int, tokens: int) -> None:
        """Forget positions after the first ``tokens``; this does not count as a use."""
        held = self._held.get(sequence)
        if held is not None and tokens < held.tokens:
            self._cut(held, tokens)

    def release(self, sequence: int) -> None:
        """End a response: nothing of it is kept."""
        self.drop(sequence)

    def drop(self, sequence: int) -> None:
        held = self._held.pop(sequence, None)
        if held is not None:
            self._cut(held, held.shared_tokens)
            self._host_free += held.on_host.bit_count()

    def taken_evicted(self) -> list[int]:
        """Return, and clear, the sequences that lost KV since the last call."""
        evicted, self._evicted = self._evicted, {}
        return list(evicted)

    def taken_swapped(self) -> Swapped:
        """Return, and clear, the copies made since the last call."""
        swapped, self._swapped = self._swapped, Swapped()
        return swapped

    def _of(self, sequence: int) -> SimSequenceKv:
        held = self._held.get(sequence)
        if held is None:
            held = self._held[sequence] = SimSequenceKv(sequence)
        return held

    def _restorable(self, held: SimSequenceKv) -> int:
        """Return the number of host blocks that continue what is resident; 0 where that ends within a block."""
        if held.tokens % self._block_tokens:
            return 0
        behind = held.on_host >> (held.tokens // self._block_tokens)
        return ((behind + 1) & ~behind).bit_length() - 1  # trailing ones: the lowest 0 bit's index

    def _cut(self, held: SimSequenceKv, tokens: int) -> None:
        if self._free is not None:
            self._free += self._blocks(held.tokens) - self._blocks(tokens)
        held.tokens = tokens

    def _evict(self, lacking: int, sequence: int, batch: Sequence[int]) -> bool:
        assert self._free is not None
        members = set(batch)
        outside = [
            held for held in self._held.values() if held.tokens > held.shared_tokens and held.number not in members
        ]
        while lacking > self._free and (victim := first_to_go(outside)) is not None:
            self._give_up(victim, lacking - self._free)
            if victim.tokens <= victim.shared_tokens:
                outside.remove(victim)
        behind = [self._held[other] for other in batch[batch.index(sequence) + 1 :] if other in self._held]
        while lacking > self._free and behind:
            if (last := behind.pop()).tokens > last.shared_tokens:
                self._give_up(last, lacking - self._free)
        return lacking <= self._free

    def _give_up(self, held: SimSequenceKv, blocks: int) -> None:
        """Take ``blocks`` from its end, or all it has of its own; copy full ones to the host while there is memory."""
        full = held.tokens // self._block_tokens
        kept = max(self._blocks(held.shared_tokens), self._blocks(held.tokens) - blocks)
        leaving = ((1 << full) - 1) >> kept << kept & ~held.on_host
        while leaving and self._host_free:
            lowest = leaving & -leaving
            held.on_host |= lowest
            leaving ^= lowest
            self._host_free -= 1
            self._swapped.out_blocks += 1
        self._evicted[held.number] = None
        self._cut(held, kept * self._block_tokens)

    def _blocks(self, tokens: int) -> int:
        return -(-tokens // self._block_tokens)

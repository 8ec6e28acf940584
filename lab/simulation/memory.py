"""Bookkeeping of the verifier's KV memory and of host memory behind it, with the engines' own rule of eviction.

Sequences are conversations. They lose whole blocks, from their ends (``outrider.scheduling.residency``). With host
memory, evicted full blocks are copied there, each once. They are copied back if they directly continue what is
resident.

KV of an ended response is kept until its memory is needed, or its conversation is over. Kept KV is evicted before any
KV of a response under way, least recently used first. Once one conversation has computed a system prompt, all share its
blocks, which are held once.
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
    """The number of leading positions of each sequence that are resident.

    Sequences are numbers, and system prompts are numbered from 0. Call ``opens`` before a response that may find KV.
    """

    def __init__(self, blocks: int | None, block_tokens: int, host_blocks: int = 0) -> None:
        """Create empty memory of ``blocks`` with ``block_tokens`` positions each; None: no limit."""
        self._free, self._block_tokens, self._host_free = blocks, block_tokens, host_blocks
        self._held: dict[int, SimSequenceKv] = {}
        self._kept: dict[int, SimSequenceKv] = {}  # least recently used first; system prompt n has the key -1 - n
        self._shared: dict[
            int, tuple[SimSequenceKv, set[int]]
        ] = {}  # by system prompt: its KV, and the sequences that use it
        self._computing: dict[int, tuple[int, int]] = {}  # by sequence: the system prompt it computes, and its tokens
        self._uses_of: dict[int, int] = {}  # by sequence: the system prompt that it shares
        self._evicted: dict[int, None] = {}
        self._swapped = Swapped()
        self._uses = 0

    def open(self, sequence: int, system: int | None, system_tokens: int) -> int:
        """Begin a response whose prompt has ``system_tokens`` of a system prompt; return its resident positions."""
        held = self._kept.pop(sequence, None)
        if held is not None:
            self._held[sequence] = held
        if sequence in self._held:  # kept, or all of it on the host
            return self.resident_tokens(sequence)
        full = system_tokens - system_tokens % self._block_tokens
        if system is None or not full:
            return 0
        if system in self._shared:
            prompt, users = self._shared[system]
            self._kept.pop(prompt.number, None)
            users.add(sequence)
            self._uses_of[sequence] = system
            held = self._of(sequence)
            held.shared_tokens = held.tokens = prompt.tokens
            return held.tokens
        self._computing[sequence] = system, full
        return 0

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
        """Forget positions after the first ``tokens``, which is no use; share a system prompt that is now computed."""
        held = self._held.get(sequence)
        if held is not None and tokens < held.tokens:
            self._cut(held, tokens)
        if self._computing and sequence in self._computing:
            self._publish(sequence)

    def release(self, sequence: int) -> None:
        """End a response; its KV is kept for the conversation's next turn."""
        held = self._held.pop(sequence, None)
        self._computing.pop(sequence, None)
        if held is not None:
            self._kept[sequence] = held

    def drop(self, sequence: int) -> None:
        """End a conversation: free its KV and its use of a system prompt."""
        held = self._kept.pop(sequence, self._held.pop(sequence, None))
        self._computing.pop(sequence, None)
        if held is not None:
            self._cut(held, held.shared_tokens)
            self._host_free += held.on_host.bit_count()
        self._stop_using(sequence)

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
        while lacking > self._free and self._kept:
            number, kept = next(iter(self._kept.items()))
            self._give_up(kept, lacking - self._free)
            if kept.tokens <= kept.shared_tokens:
                del self._kept[number]
                self._forget(kept)
        return lacking <= self._free or self._evict_active(lacking, sequence, batch)

    def _evict_active(self, lacking: int, sequence: int, batch: Sequence[int]) -> bool:
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

    def _publish(self, sequence: int) -> None:
        system, full = self._computing[sequence]
        held = self._held.get(sequence)
        if held is None or held.tokens < full:
            return
        del self._computing[sequence]
        if system not in self._shared:
            self._shared[system] = SimSequenceKv(-1 - system, tokens=full), {sequence}
            self._uses_of[sequence] = system
            held.shared_tokens = full

    def _stop_using(self, sequence: int) -> None:
        system = self._uses_of.pop(sequence, None)
        if system is None:
            return
        prompt, users = self._shared[system]
        users.remove(sequence)
        if not users:
            self._kept[prompt.number] = prompt

    def _forget(self, held: SimSequenceKv) -> None:
        """Clean up after kept KV that is no longer on the GPU."""
        if held.number >= 0 and held.on_host:
            self._held[held.number] = held
            return
        self._host_free += held.on_host.bit_count()
        if held.number < 0:
            del self._shared[-1 - held.number]
        else:
            self._stop_using(held.number)

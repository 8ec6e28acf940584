"""KV memory with prefix caching: conversations keep KV between turns and share the blocks of a system prompt.

Sequences are conversations. KV of an ended response is kept until its memory is needed. Kept KV is evicted before any
KV of a response under way, least recently used first. Once one conversation has computed a system prompt, all share its
blocks, which are held once.
"""

from collections.abc import Sequence

from lab.simulation.memory import KvMemory, SimSequenceKv


class PrefixMemory(KvMemory):
    """A ``KvMemory`` that keeps prefixes. Call ``open`` before each response; system prompts are numbered from 0."""

    def __init__(self, blocks: int | None, block_tokens: int, host_blocks: int = 0) -> None:
        super().__init__(blocks, block_tokens, host_blocks)
        self._kept: dict[int, SimSequenceKv] = {}  # least recently used first; system prompt n has the key -1 - n
        # By system prompt: its KV, and the sequences that use it.
        self._shared: dict[int, tuple[SimSequenceKv, set[int]]] = {}
        self._computing: dict[int, tuple[int, int]] = {}  # by sequence: the system prompt it computes, and its tokens
        self._uses_of: dict[int, int] = {}  # by sequence: the system prompt that it shares

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

    def shrink(self, sequence: int, tokens: int) -> None:
        """Forget positions after the first ``tokens``; share a system prompt that is now computed."""
        super().shrink(sequence, tokens)
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
        held = self._kept.pop(sequence, None)
        if held is not None:
            self._held[sequence] = held
        self._computing.pop(sequence, None)
        super().drop(sequence)
        self._stop_using(sequence)

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

    def _gone(self, held: SimSequenceKv) -> None:
        """Clean up after kept KV that is no longer on the GPU."""
        if held.number >= 0 and held.on_host:
            self._held[held.number] = held
            return
        self._host_free += held.on_host.bit_count()
        if held.number < 0:
            del self._shared[-1 - held.number]
        else:
            self._stop_using(held.number)

    def _evict(self, lacking: int, sequence: int, batch: Sequence[int]) -> bool:
        assert self._free is not None
        while lacking > self._free and self._kept:
            number, held = next(iter(self._kept.items()))
            self._give_up(held, lacking - self._free)
            if held.tokens <= held.shared_tokens:
                del self._kept[number]
                self._gone(held)
        return lacking <= self._free or super()._evict(lacking, sequence, batch)

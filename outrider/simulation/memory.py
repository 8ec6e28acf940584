"""The verifier's KV memory: whole sequences, the least recently used evicted first. Pure bookkeeping."""

from collections.abc import Sequence


class KvMemory:
    """How many leading positions of each sequence are resident. Sequences are numbers."""

    def __init__(self, blocks: int | None, block_tokens: int) -> None:
        """``blocks`` of ``block_tokens`` positions each; None is no limit."""
        self._free, self._block_tokens = blocks, block_tokens
        self._resident: dict[int, int] = {}  # positions, the least recently used sequence first
        self._evicted: list[int] = []

    def resident_tokens(self, sequence: int) -> int:
        """Leading positions of it that need no computing."""
        return self._resident.get(sequence, 0)

    def hold(self, sequence: int, tokens: int, batch: Sequence[int]) -> bool:
        """Make room for so many positions; False if there is none without those that are before it in the batch.

        Evicted first are sequences outside the batch; then the batch's own, from its end.
        """
        held = self._resident.pop(sequence, 0)
        if self._free is not None:
            lacking = self._blocks(tokens) - self._blocks(held)
            if lacking > self._free and not self._evict(lacking, sequence, batch):
                self._resident[sequence] = held
                return False
            self._free -= lacking
        self._resident[sequence] = tokens
        return True

    def shrink(self, sequence: int, tokens: int) -> None:
        """Forget positions behind the first ``tokens``; its place among the recently used stays."""
        held = self._resident.get(sequence)
        if held is not None and tokens < held:
            if self._free is not None:
                self._free += self._blocks(held) - self._blocks(tokens)
            self._resident[sequence] = tokens

    def drop(self, sequence: int) -> None:
        """Forget a sequence."""
        held = self._resident.pop(sequence, 0)
        if self._free is not None:
            self._free += self._blocks(held)

    def taken_evicted(self) -> list[int]:
        """Sequences evicted since this was asked last."""
        evicted, self._evicted = self._evicted, []
        return evicted

    def _evict(self, lacking: int, sequence: int, batch: Sequence[int]) -> bool:
        assert self._free is not None
        members = set(batch)
        behind = batch[batch.index(sequence) + 1 :]
        victims = [other for other in self._resident if other not in members]
        victims += [other for other in reversed(behind) if other in self._resident]
        for victim in victims:
            self.drop(victim)
            self._evicted.append(victim)
            if lacking <= self._free:
                return True
        return False

    def _blocks(self, tokens: int) -> int:
        return -(-tokens // self._block_tokens)

"""Times of passes and of reading memory, by the same clock."""

import time
from collections.abc import Sequence

import torch

from outrider.engines.forward_model import ForwardModel, Segment

BUFFER_MIB = 512
_READINGS = 5


def clock_s(threads: int) -> float:
    """CPU time for a single thread, which other processes do not lengthen; wall time for several."""
    return time.process_time() if threads == 1 else time.perf_counter()


def pass_seconds(model: ForwardModel, segments: Sequence[Segment], passes: int, threads: int) -> list[float]:
    """Times of ``passes`` passes, after a warm-up."""
    model.forward(segments)
    seconds = []
    for _ in range(passes):
        began_at_s = clock_s(threads)
        model.forward(segments)
        seconds.append(clock_s(threads) - began_at_s)
    return seconds


class Memory:
    """A buffer far larger than any cache, summed in float32: a pass that only reads."""

    def __init__(self, size_mib: int, threads: int) -> None:
        """Write it once, so that every page is allocated."""
        self._buffer = torch.ones(size_mib * 2**20 // 4)
        self._threads = threads
        self._buffer.sum()

    def bytes_per_s(self) -> float:
        """Bandwidth of the fastest of a few readings, as concurrent readers slow some down."""
        return self._buffer.nbytes / min(self._reading_s() for _ in range(_READINGS))

    def _reading_s(self) -> float:
        began_at_s = clock_s(self._threads)
        self._buffer.sum()
        return clock_s(self._threads) - began_at_s

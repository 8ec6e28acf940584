"""Which rounds broke their promise, and why (WISP eq. 4, 21)."""

from collections import deque
from enum import StrEnum

_SPIKE = 1.5
_WINDOW = 50  # batches


class ViolationCause(StrEnum):
    """What made a round late. A closed set: a metric's label."""

    QUEUE = "queue"
    COMPUTE = "compute"


def round_is_late(tokens_per_s: float, committed_tokens: int, round_s: float) -> bool:
    """The papers' violation: this round alone was slower than promised (WISP eq. 4; erratum 11)."""
    return tokens_per_s > 0.0 and committed_tokens < tokens_per_s * round_s


def response_cause(late_queue_rounds: int, late_compute_rounds: int) -> ViolationCause:
    """What made a whole response slower than promised: the cause of most of its late rounds, else the queue."""
    return ViolationCause.COMPUTE if late_compute_rounds > late_queue_rounds else ViolationCause.QUEUE


class SpikeDetector:
    """Tells a late round's cause by what batches took lately: each counts once, however many rounds were in it."""

    def __init__(self, window: int = _WINDOW, spike: float = _SPIKE) -> None:
        """``window`` batches are remembered; more than ``spike`` times their mean is a spike."""
        self._recent: deque[float] = deque(maxlen=window)
        self._spike = spike

    def batch(self, took_s: float) -> None:
        """A batch is over."""
        self._recent.append(took_s)

    def cause(self, verify_s: float) -> ViolationCause:
        """What would have made a round late whose verification took so long."""
        recent = self._recent
        mean_s = sum(recent) / len(recent) if recent else verify_s
        return ViolationCause.COMPUTE if verify_s > self._spike * mean_s else ViolationCause.QUEUE

"""Detect rounds that broke their promise and attribute each to queueing or computation (WISP eq. 4, 21)."""

from collections import deque
from enum import StrEnum

_SPIKE = 1.5  # times the mean batch
_WINDOW = 50  # batches


class ViolationCause(StrEnum):
    """Cause of a late round. A closed set, as it is a metric's label."""

    QUEUE = "queue"
    COMPUTE = "compute"


def round_is_late(tokens_per_s: float, committed_tokens: int, round_s: float) -> bool:
    """Return whether this round alone was slower than promised (WISP eq. 4; erratum 11)."""
    return tokens_per_s > 0.0 and committed_tokens < tokens_per_s * round_s


def response_cause(late_queue_rounds: int, late_compute_rounds: int) -> ViolationCause:
    """Return why a whole response was too slow: the cause of most of its late rounds; the queue on a tie."""
    return ViolationCause.COMPUTE if late_compute_rounds > late_queue_rounds else ViolationCause.QUEUE


class SpikeDetector:
    """Compares a batch's time with the mean of recent batches. A batch counts once, however many rounds it had."""

    def __init__(self, window: int = _WINDOW, spike: float = _SPIKE) -> None:
        """Remember the last ``window`` batches; more than ``spike`` times their mean is a spike."""
        self._recent: deque[float] = deque(maxlen=window)
        self._spike = spike

    def batch(self, took_s: float) -> None:
        self._recent.append(took_s)

    def cause(self, verify_s: float) -> ViolationCause:
        """Return the cause of a late round whose verification took ``verify_s``."""
        recent = self._recent
        mean_s = sum(recent) / len(recent) if recent else verify_s
        return ViolationCause.COMPUTE if verify_s > self._spike * mean_s else ViolationCause.QUEUE

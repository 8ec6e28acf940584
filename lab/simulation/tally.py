"""Count times of rounds and batches over a whole run, from the warm-up on."""

from array import array
from collections import Counter
from collections.abc import Sequence

import numpy as np

from lab.simulation.device import SimDevice
from lab.simulation.results import BatchEntry, Percentiles, PlanePoint
from lab.simulation.server import SimStep
from outrider.scheduling.attribution import SpikeDetector
from outrider.scheduling.policy import StopReason

_SAMPLE = 4096  # points of the queue-compute plane, at most


class RunTally:
    def __init__(self, warmup_s: float, *, keep_batch_log: bool) -> None:
        self.warmup_s, self._keep_batch_log = warmup_s, keep_batch_log
        self.spikes = SpikeDetector()
        self.round_s, self.draft_s, self.link_s = array("d"), array("d"), array("d")
        self.queue_s, self.verify_s, self.first_token_s = array("d"), array("d"), array("d")
        self.rounds = 0
        self.sizes: Counter[int] = Counter()
        self.reasons: Counter[StopReason] = Counter()
        self.predicted_s = 0.0
        self.log: list[BatchEntry] = []
        self._spans: list[tuple[float, float]] = []  # begin and end of passes
        self.plane: list[PlanePoint] = []  # a sample
        self._plane_stride, self._plane_seen = 1, 0

    def step(self, step: SimStep) -> None:
        entry = step.entry
        if self._keep_batch_log:
            self.log.append(entry)
        self._spans.append((entry.starts_at_s, entry.ends_at_s))
        self.spikes.batch(entry.took_s)
        if entry.starts_at_s >= self.warmup_s:
            self.sizes[len(entry.members)] += 1
            self.reasons[entry.reason] += 1
            self.predicted_s += entry.predicted_s

    def round(self, device: SimDevice, now_s: float) -> None:
        """Count a round that is committed after the warm-up and is not a response's first."""
        cause = self.spikes.cause(device.verify_s)
        round_s, draft_s = now_s - device.began_at_s, device.draft.draft_s
        late = device.account.judge_round(device.draft.nodes, device.draft.accepted, round_s, cause)
        self.round_s.append(round_s)
        self.draft_s.append(draft_s)
        self.link_s.append(device.arrived_at_s - device.began_at_s - draft_s)
        self.queue_s.append(device.queue_s)
        self.verify_s.append(device.verify_s)
        if self._plane_seen % self._plane_stride == 0:
            if len(self.plane) == _SAMPLE:  # full: keep every other point, and add half as often from now on
                self.plane, self._plane_stride = self.plane[::2], 2 * self._plane_stride
            speed = device.account.tokens_per_s
            self.plane.append(PlanePoint(device.queue_s, device.verify_s, speed, cause if late else None))
        self._plane_seen += 1

    def busy_s(self, end_s: float) -> float:
        return sum(max(0.0, min(end, end_s) - max(begin, self.warmup_s)) for begin, end in self._spans)


def percentiles(times_s: "Sequence[float] | array[float]") -> Percentiles:
    if not times_s:
        return Percentiles(0, 0.0, 0.0, 0.0)
    values = np.asarray(times_s, dtype=np.float64)
    p50, p99 = np.percentile(values, (50, 99)).tolist()
    return Percentiles(len(values), float(values.mean()), p50, p99)

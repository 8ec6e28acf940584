"""Counts a coordinator's faults for ``/status``: an exporter of some metrics, so that both count the same calls."""

from collections import Counter
from collections.abc import Callable

from serve_app import metrics
from serve_app.metrics import Metric

_NAMES = {
    metrics.DRAFTER_LOSSES.name: "drafter_losses",
    metrics.VERIFIER_LOSSES.name: "verifier_losses",
    metrics.PASS_FAULTS.name: "pass_faults",
    metrics.DRAFTS_GIVEN_UP.name: "drafts_given_up",
    metrics.CORRECTIONS_GIVEN_UP.name: "corrections_given_up",
}
_Record = Callable[[float, dict[str, str]], None]


class FaultCounter:
    """Counts since the coordinator's start."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()

    def exporter(self, metric: Metric) -> _Record | None:
        name = _NAMES.get(metric.name)
        return None if name is None else lambda value, _: self._counts.update({name: int(value)})

    @property
    def counts(self) -> dict[str, int]:
        """Counts above zero, by kind."""
        return {name: count for name, count in self._counts.items() if count}

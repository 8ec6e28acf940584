"""docs/reference/metrics.md says what is exported: no more, no less, and with which labels."""

import re
from math import prod
from pathlib import Path

import pytest

from actors.messages import DrafterState
from outrider.admission.decisions import ScarceResource
from outrider.contracts.requests import FinishReason
from outrider.engines.fault_bisection import FaultKind
from outrider.protocols.registry import PROTOCOLS
from outrider.rounds.lookup.ngram_drafts import LOOKUP
from outrider.rounds.timing import RoundTiming
from outrider.scheduling.attribution import ViolationCause
from outrider.scheduling.policy import StopReason
from outrider.selection.modes import MODES
from outrider.wire.dialling import RefusalCode
from serve_app import metrics
from serve_app.coordination.drafting.drafter_book import ExchangeOutcome
from serve_app.coordination.reporting.statistics import POSITIONS
from serve_app.metrics import ALL, Metric, MetricKind

TEXT = (Path(__file__).parents[3] / "docs" / "reference" / "metrics.md").read_text(encoding="utf-8")
ROWS = [
    [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in TEXT.splitlines() if line[:3] == "| `"
]
METRICS = {cells[0].strip("`"): cells for cells in ROWS if len(cells) == 5}
LABELS = {cells[0].replace("`", ""): cells for cells in ROWS if len(cells) == 3 and "vllm:" not in cells[0]}
CONFIGURED = {"slo_class": 5, "group": 2, "model": 2, "key": 10}
CLOSED = {
    "end": {*FinishReason, "cancelled", "refused", "failed"},
    "protocol": {*PROTOCOLS, LOOKUP, "none"},
    "phase": set(RoundTiming("dsd", 1, 1, 1, 1.0, 1.0, 1.0, 1.0, 9.0).phases_s),
    f"reason of {metrics.BATCHES.name}": set(StopReason),
    f"reason of {metrics.NOT_ADMITTED.name}": set(ScarceResource),
    f"reason of {metrics.REFUSED_DIALS.name}": {*RefusalCode, "handshake"},
    "cause": set(ViolationCause),
    "arm": set(MODES),
    "kind": set(FaultKind),
    f"state of {metrics.DRAFTERS.name}": set(DrafterState),
    f"outcome of {metrics.EXCHANGES.name}": set(ExchangeOutcome),
}


def row_of(metric: Metric, label: str) -> list[str]:
    """Of the table of labels: a metric's own, or the label's."""
    return LABELS.get(f"{label} of {metric.name}") or LABELS[label]


def test_every_metric_has_a_row_and_every_row_a_metric() -> None:
    assert set(METRICS) == {metric.name for metric in ALL}
    assert sum(len(cells) == 5 for cells in ROWS) == len(METRICS), "one row each"


@pytest.mark.parametrize("metric", ALL, ids=lambda metric: metric.name)
def test_a_row_says_what_the_code_says(metric: Metric) -> None:
    _, kind, unit, labels, meaning = METRICS[metric.name]
    assert kind == metric.kind
    assert [label.strip("`") for label in labels.split(", ") if label] == list(metric.labels)
    assert meaning.replace("\\|", "|") == metric.help
    assert unit
    for suffix, wanted in (("_seconds", "s"), ("_seconds_total", "s"), ("_bits_total", "bits"), ("_ratio", "1")):
        if metric.name.endswith(suffix):
            assert unit == wanted


def test_labels_are_the_sets_that_the_code_has() -> None:
    used = {label if label in LABELS else f"{label} of {each.name}" for each in ALL for label in each.labels}
    assert {name.split(" of ")[0] for name in used} == {name.split(" of ")[0] for name in LABELS}
    for name, values in CLOSED.items():
        _, told, most = LABELS[name]
        assert set(re.findall(r"`(\w+)`", told)) == {str(value) for value in values}, name
        assert most == str(len(values))
    assert LABELS["position"][1:] == [f"`0` to `{POSITIONS - 1}`", str(POSITIONS)]


def test_series_are_bounded_by_what_is_said() -> None:
    series = 0
    for metric in ALL:
        sizes = [CONFIGURED.get(label) or int(row_of(metric, label)[2]) for label in metric.labels]
        series += prod(sizes) * (len(metric.boundaries) + 3 if metric.kind is MetricKind.HISTOGRAM else 1)
    assert f"that is {series:,} series" in TEXT


def test_what_vllm_calls_otherwise_is_a_metric_of_ours() -> None:
    pairs = [(cells[0].strip("`"), cells[1]) for cells in ROWS if cells[0].startswith("`vllm:")]
    assert len(pairs) == 17
    ours = {metric.name for metric in ALL}
    for _, here in pairs:
        assert set(re.findall(r"outrider_[a-z0-9_]+", here)) <= ours

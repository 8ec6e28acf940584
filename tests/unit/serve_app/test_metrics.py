"""Every metric has a name of its own and a few closed labels; what is recorded is what Prometheus reads."""

import re
from functools import partial

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client import Metric as Family
from prometheus_client.parser import text_string_to_metric_families

from serve_app import metrics
from serve_app.metrics import ALL, Metric, MetricKind, Sink, in_prometheus, in_ray

LABELS = {
    "arm",
    "cause",
    "deployment",
    "direction",
    "drafter",  # a place of the configuration; a coordinator tells 12 at a time
    "end",
    "group",
    "kept",
    "key",  # of the API; an ingress tells 256 at most
    "kind",
    "model",
    "outcome",
    "owed",
    "phase",
    "position",
    "protocol",
    "reason",
    "slo_class",
    "state",
}


def labelled(metric: Metric) -> dict[str, str]:
    return {label: f"some {label}" for label in metric.labels}


def scraped(registry: CollectorRegistry) -> dict[str, Family]:
    """Families by the metric's name here (the parser leaves a counter's ``_total`` off)."""
    families = text_string_to_metric_families(generate_latest(registry).decode())
    return {family.name + ("_total" if family.type == "counter" else ""): family for family in families}


def test_names_are_unique_and_prometheus_own_and_labels_are_closed() -> None:
    assert len(ALL) >= 27
    assert len({metric.name for metric in ALL}) == len(ALL)
    for metric in ALL:
        assert re.fullmatch(r"outrider_[a-z0-9_]*[a-z0-9]", metric.name)
        assert metric.name.endswith("_total") is (metric.kind is MetricKind.COUNTER), metric.name
        assert set(metric.labels) <= LABELS, "never a generation, a prompt or a user"
        assert metric.help
        assert bool(metric.boundaries) is (metric.kind is MetricKind.HISTOGRAM)
        assert list(metric.boundaries) == sorted(set(metric.boundaries))


def test_all_lists_every_metric_of_the_module() -> None:
    assert set(ALL) == {value for value in vars(metrics).values() if isinstance(value, Metric)}


@pytest.mark.parametrize("metric", ALL, ids=lambda metric: metric.name)
def test_prometheus_reads_what_was_recorded(metric: Metric) -> None:
    registry = CollectorRegistry()
    sink = Sink(partial(in_prometheus, registry))
    for value in (0.25, 3.0):
        sink.record(metric, value, **labelled(metric))
    family = scraped(registry)[metric.name]
    assert (family.documentation, family.type) == (metric.help, metric.kind)
    samples: dict[tuple[str, str | None], float] = {
        (sample.name.removeprefix(metric.name), sample.labels.get("le")): sample.value
        for sample in family.samples
        if not sample.name.endswith("_created")
    }
    assert all(sample.labels.items() >= labelled(metric).items() for sample in family.samples)
    if metric.kind is MetricKind.HISTOGRAM:
        upper_bounds = [*map(str, metric.boundaries), "+Inf"]
        counts = {("_bucket", bound): sum(value <= float(bound) for value in (0.25, 3.0)) for bound in upper_bounds}
        assert samples == counts | {("_count", None): 2, ("_sum", None): 3.25}
    else:
        assert samples == {("", None): 3.25 if metric.kind is MetricKind.COUNTER else 3.0}


def test_each_label_value_counts_by_itself() -> None:
    registry = CollectorRegistry()
    sink = Sink(partial(in_prometheus, registry))
    for end in ("stop", "length", "stop"):
        sink.record(metrics.RESPONSES, end=end)
    samples = scraped(registry)[metrics.RESPONSES.name].samples
    assert {s.labels["end"]: s.value for s in samples if s.name.endswith("_total")} == {"stop": 2, "length": 1}


@pytest.mark.parametrize("labels", [{}, {"ending": "stop"}, {"end": "stop", "user": "u"}], ids=str)
def test_labels_that_are_not_the_metrics_are_refused(labels: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="label"):
        Sink(partial(in_prometheus, CollectorRegistry())).record(metrics.RESPONSES, 1.0, **labels)


@pytest.mark.parametrize("metric", ALL, ids=lambda metric: metric.name)
def test_ray_takes_every_metric_and_nothing_added_to_a_counter(metric: Metric) -> None:
    """What it exports is a matter for a cluster; here its checks of names, labels and values."""
    sink = Sink(in_ray)
    for value in (2.5, 0.0, 1):
        sink.record(metric, value, **labelled(metric))


def test_several_exporters_are_told_the_same() -> None:
    one, two = CollectorRegistry(), CollectorRegistry()
    Sink(partial(in_prometheus, one), partial(in_prometheus, two)).record(metrics.GENERATIONS, 0.5, state="running")
    assert generate_latest(one) == generate_latest(two) != b""

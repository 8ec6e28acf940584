"""Expressions over our metrics as Ray exports them, narrowed to what a board's reader has chosen."""

from serve_app.metrics import Metric, MetricKind

CLUSTER_LABEL = "ray_io_cluster"  # KubeRay's name for it; the scrape configuration sets it elsewhere
COORDINATOR_LABEL = "WorkerId"  # of the process that exports
RATE = "$__rate_interval"
CLUSTER = f'{CLUSTER_LABEL}=~"$cluster"'
COORDINATOR = f'{CLUSTER}, {COORDINATOR_LABEL}=~"$coordinator"'
CLASS = f'{CLUSTER}, slo_class=~"$class"'
READY, NOT_READY, UP = 'state="ready"', 'state!="ready"', 'direction="up"'
GROUP = f'{CLUSTER}, group=~"$group"'


def named(metric: Metric, suffix: str = "") -> str:
    """The metric's name in Ray's exporter."""
    return f"ray_{metric.name}{suffix}"


def series(metric: Metric, *where: str, suffix: str = "") -> str:
    """Its series for which all of the matchers hold."""
    matchers = ", ".join(each for each in where if each)
    return named(metric, suffix) + (f"{{{matchers}}}" if matchers else "")


def _over(how: str, labels: str) -> str:
    return f"{how} by ({labels}) " if labels else how


def rate(counter: Metric, *where: str, by: str = "", over: str = RATE) -> str:
    """Of a counter, per second."""
    assert counter.kind is MetricKind.COUNTER, counter.name
    return _rate(counter, *where, by=by, over=over)


def _rate(metric: Metric, *where: str, suffix: str = "", by: str, over: str) -> str:
    return f"{_over('sum', by)}(rate({series(metric, *where, suffix=suffix)}[{over}]))"


def total(metric: Metric, *where: str, by: str = "") -> str:
    """A counter since its processes began, or a gauge that each process sets for itself."""
    return f"{_over('sum', by)}({series(metric, *where)})"


def worst(gauge: Metric, *where: str, by: str = "") -> str:
    """Of a gauge that several processes set for the same thing."""
    return f"{_over('max', by)}({series(gauge, *where)})"


def quantile(q: float, histogram: Metric, *where: str, by: str = "", over: str = RATE) -> str:
    assert histogram.kind is MetricKind.HISTOGRAM, histogram.name
    return f"histogram_quantile({q}, {buckets(histogram, *where, by=by, over=over)})"


def events(histogram: Metric, *where: str, by: str = "", over: str = RATE) -> str:
    """How many values a histogram was given, per second."""
    return _rate(histogram, *where, suffix="_count", by=by, over=over)


def buckets(histogram: Metric, *where: str, by: str = "", over: str = RATE) -> str:
    """How many values fell into each bucket, per second: a heat map, or what quantiles are of."""
    return _rate(histogram, *where, suffix="_bucket", by=f"le, {by}" if by else "le", over=over)


def ratio(part: str, whole: str) -> str:
    """A share of what there is, while there is something."""
    return f"{part} / {whole}"

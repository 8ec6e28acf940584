"""Expressions over our metrics as Ray exports them, narrowed to what a board's reader has chosen."""

from serve_app.metrics import Kind, Metric

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


def _by(labels: str) -> str:
    return f"sum by ({labels}) " if labels else "sum"


def rate(counter: Metric, *where: str, by: str = "", over: str = RATE) -> str:
    """Of a counter, per second."""
    assert counter.kind is Kind.COUNTER, counter.name
    return f"{_by(by)}(rate({series(counter, *where)}[{over}]))"


def total(metric: Metric, *where: str, by: str = "") -> str:
    """A counter since its processes began, or a gauge that each process sets for itself."""
    return f"{_by(by)}({series(metric, *where)})"


def worst(gauge: Metric, *where: str, by: str = "") -> str:
    """Of a gauge that several processes set for the same thing."""
    return f"max{f' by ({by})' if by else ''}({series(gauge, *where)})"


def quantile(q: float, histogram: Metric, *where: str, by: str = "", over: str = RATE) -> str:
    """Of a histogram."""
    assert histogram.kind is Kind.HISTOGRAM, histogram.name
    labels = f"le, {by}" if by else "le"
    return f"histogram_quantile({q}, sum by ({labels}) (rate({series(histogram, *where, suffix='_bucket')}[{over}])))"


def events(histogram: Metric, *where: str, by: str = "", over: str = RATE) -> str:
    """How many values a histogram was given, per second."""
    return f"{_by(by)}(rate({series(histogram, *where, suffix='_count')}[{over}]))"


def buckets(histogram: Metric, *where: str, over: str = RATE) -> str:
    """For a heat map."""
    return f"sum by (le) (rate({series(histogram, *where, suffix='_bucket')}[{over}]))"


def ratio(part: str, whole: str) -> str:
    """A share of what there is, while there is something."""
    return f"{part} / {whole}"

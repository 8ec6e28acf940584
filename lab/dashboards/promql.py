"""PromQL expressions over our metrics as Ray exports them, filtered by the board's variables."""

from lab.dashboards.board import Query
from serve_app.metrics import Metric, MetricKind

CLUSTER_LABEL = "ray_io_cluster"  # KubeRay's name for it; the scrape configuration sets it elsewhere
COORDINATOR_LABEL = "WorkerId"  # id of the exporting process
RATE = "$__rate_interval"
CLUSTER = f'{CLUSTER_LABEL}=~"$cluster"'
COORDINATOR = f'{CLUSTER}, {COORDINATOR_LABEL}=~"$coordinator"'
CLASS = f'{CLUSTER}, slo_class=~"$class"'
READY, NOT_READY, UP = 'state="ready"', 'state!="ready"', 'direction="up"'
GROUP = f'{CLUSTER}, group=~"$group"'


def named(metric: Metric, suffix: str = "") -> str:
    return f"ray_{metric.name}{suffix}"


def series(metric: Metric, *where: str, suffix: str = "") -> str:
    """Selector of the metric's series that match all of the matchers."""
    matchers = ", ".join(each for each in where if each)
    return named(metric, suffix) + (f"{{{matchers}}}" if matchers else "")


def _over(how: str, labels: str) -> str:
    return f"{how} by ({labels}) " if labels else how


def rate(counter: Metric, *where: str, by: str = "", over: str = RATE) -> str:
    assert counter.kind is MetricKind.COUNTER, counter.name
    return _rate(counter, *where, by=by, over=over)


def _rate(metric: Metric, *where: str, suffix: str = "", by: str, over: str) -> str:
    return f"{_over('sum', by)}(rate({series(metric, *where, suffix=suffix)}[{over}]))"


def total(metric: Metric, *where: str, by: str = "") -> str:
    """Sum of a counter since its processes started, or of a gauge that each process sets for itself."""
    return f"{_over('sum', by)}({series(metric, *where)})"


def worst(gauge: Metric, *where: str, by: str = "") -> str:
    """Maximum of a gauge that several processes set for the same thing."""
    return f"{_over('max', by)}({series(gauge, *where)})"


def worst_in_range(gauge: Metric, *where: str, by: str, lowest: bool = False) -> str:
    """The same over the board's time range, for series that come and go."""
    how = "min" if lowest else "max"
    return f"{_over(how, by)}({how}_over_time({series(gauge, *where)}[$__range]))"


def quantile(q: float, histogram: Metric, *where: str, by: str = "", over: str = RATE) -> str:
    assert histogram.kind is MetricKind.HISTOGRAM, histogram.name
    return f"histogram_quantile({q}, {buckets(histogram, *where, by=by, over=over)})"


def events(histogram: Metric, *where: str, by: str = "", over: str = RATE) -> str:
    """Observations of a histogram per second."""
    return _rate(histogram, *where, suffix="_count", by=by, over=over)


def buckets(histogram: Metric, *where: str, by: str = "", over: str = RATE) -> str:
    """Observations per second and bucket: for heat maps and quantiles."""
    return _rate(histogram, *where, suffix="_bucket", by=f"le, {by}" if by else "le", over=over)


def ratio(part: str, whole: str) -> str:
    """A share; without a sample while the whole is absent."""
    return f"{part} / {whole}"


USUAL = (0.5, 0.9, 0.99)


def percentiles(histogram: Metric, *where: str, of: tuple[float, ...] = USUAL, called: str = "") -> tuple[Query, ...]:
    """One query per quantile; ``called`` precedes the percentile in its legend."""
    return tuple(Query(quantile(q, histogram, *where), f"{called}p{q * 100:g}") for q in of)


BY_CLUSTER = CLUSTER_LABEL
BY_CLASS = f"{BY_CLUSTER}, slo_class"
BY_PROCESS = f"{BY_CLUSTER}, {COORDINATOR_LABEL}"


def summed(metric: Metric, over: str, *where: str, suffix: str = "", by: str = BY_CLUSTER) -> str:
    """Rate of a counter, or of a histogram's series that ends in ``suffix``."""
    return _rate(metric, *where, suffix=suffix, by=by, over=over)


def broken(window: str) -> str:
    """Name of the recorded share of promises broken in this window."""
    return f"outrider:promises_broken:ratio_rate{window}"


def wanted(*where: str) -> str:
    """Replicas that Serve's controller wants, by deployment."""
    return f"max by ({BY_CLUSTER}, deployment) (ray_serve_autoscaling_target_replicas{{{_ours(*where)}}})"


def healthy(*where: str) -> str:
    """Replicas that it finds healthy; without a series while there is none."""
    return f"sum by ({BY_CLUSTER}, deployment) (ray_serve_deployment_replica_healthy{{{_ours(*where)}}})"


def _ours(*where: str) -> str:
    return ", ".join((*where, 'deployment=~"Coordinator|Ingress"'))

"""Common parts of recordings and alerts: label sets to sum by, and the share of broken promises."""

from lab.dashboards.promql import CLUSTER_LABEL, COORDINATOR_LABEL, rate
from serve_app.metrics import Metric

BY_CLUSTER = CLUSTER_LABEL
BY_CLASS = f"{BY_CLUSTER}, slo_class"
BY_PROCESS = f"{BY_CLUSTER}, {COORDINATOR_LABEL}"


def summed(counter: Metric, over: str, *where: str, by: str = BY_CLUSTER) -> str:
    return rate(counter, *where, by=by, over=over)


def broken(window: str) -> str:
    """Name of the recorded share of promises broken in this window."""
    return f"outrider:promises_broken:ratio_rate{window}"

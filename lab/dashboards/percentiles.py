"""Queries for several quantiles of one histogram."""

from lab.dashboards.board import Query
from lab.dashboards.promql import quantile
from serve_app.metrics import Metric

USUAL = (0.5, 0.9, 0.99)


def percentiles(histogram: Metric, *where: str, of: tuple[float, ...] = USUAL, called: str = "") -> tuple[Query, ...]:
    """One query per quantile; ``called`` precedes the percentile in its legend."""
    return tuple(Query(quantile(q, histogram, *where), f"{called}p{q * 100:g}") for q in of)

"""What is told of a load client's own report."""

import pytest

from lab.bench.clients.asking import with_locust
from lab.bench.clients.asking.checking import UnexpectedError

STREAMED = {
    "Type": "POST",
    "Name": "chat, streamed",
    "Request Count": "3",
    "Failure Count": "0",
    "50%": "700",
    "95%": "900",
}
FIRST = STREAMED | {"Type": "TTFT", "50%": "80", "95%": "120"}
SUM = STREAMED | {"Type": "", "Name": "Aggregated", "Request Count": "6"}


def test_locusts_report_is_told_by_kind() -> None:
    counts, times = "3 requests, 0 failed; count, p50 and p95 in ms", "POST chat, streamed 3: 700, 900"
    told = with_locust.told_of([STREAMED, FIRST, SUM])
    assert told == f"{counts}: {times}; TTFT chat, streamed 3: 80, 120"


@pytest.mark.parametrize("report", [[], [FIRST, SUM], [STREAMED | {"Failure Count": "1"}]])
def test_a_load_without_answers_or_with_failures_has_failed(report: list[dict[str, str]]) -> None:
    with pytest.raises(UnexpectedError):
        with_locust.told_of(report)

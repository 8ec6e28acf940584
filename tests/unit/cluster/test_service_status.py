import re
from dataclasses import replace

import pytest

from actors.coordinator.activity import activity_between
from actors.messages import CoordinatorReport
from cluster.service_status import StatusError, parse_status

BUSY = CoordinatorReport(
    id="a",
    verifier="ready",
    uptime_s=100.0,
    rounds=50,
    speculative_rounds=40,
    drafted_tokens=100,
    accepted_tokens=60,
    committed_tokens=110,
    phase_seconds={"draft": 2.0, "verify": 3.0},
    verifier_idle_s=90.0,
)


def test_figures_are_differences_of_two_polls() -> None:
    later = replace(
        BUSY,
        uptime_s=102.0,
        rounds=60,
        drafted_tokens=122,
        trimmed_tokens=2,
        accepted_tokens=70,
        committed_tokens=130,
        phase_seconds={"draft": 2.5, "verify": 3.1},
        verifier_idle_s=91.5,
    )
    span = activity_between((BUSY,), (later,), 2.0)
    assert (span.tokens_per_s(), span.rounds_per_s()) == (10.0, 5.0)
    assert (span.accepted_fraction(), span.tokens_per_round()) == (0.5, 2.0)
    assert span.phase_ms("draft") == pytest.approx(50.0)
    assert span.phase_ms("verify") == pytest.approx(10.0)
    assert span.verifier_idle_s == {"a": 1.5}


def test_an_idle_service_has_no_ratios() -> None:
    span = activity_between((BUSY,), (BUSY,), 2.0)
    assert (span.tokens_per_s(), span.rounds_per_s()) == (0.0, 0.0)
    assert (span.accepted_fraction(), span.tokens_per_round(), span.phase_ms("draft")) == (None, None, None)
    assert activity_between((BUSY,), (BUSY,), 0.0).tokens_per_s() is None


def test_a_coordinator_that_restarted_counts_from_its_start() -> None:
    new = CoordinatorReport(id="b", verifier="ready", uptime_s=1.0, rounds=2, committed_tokens=4)
    assert activity_between((BUSY,), (new,), 2.0).tokens_per_s() == 2.0


def test_one_that_was_not_heard_of_for_a_while_adds_nothing() -> None:
    other = replace(BUSY, id="b")
    assert activity_between((BUSY,), (BUSY, other), 2.0).rounds == 0


def test_counters_that_fall_make_no_negative_rate() -> None:
    fallen = replace(BUSY, rounds=1, committed_tokens=1, phase_seconds={"draft": 0.1}, verifier_idle_s=0.0)
    span = activity_between((BUSY,), (fallen,), 2.0)
    assert (span.rounds, span.tokens_per_s(), span.phase_seconds, span.verifier_idle_s) == (
        0,
        0.0,
        {"draft": 0.0},
        {"a": 0.0},
    )


def test_since_start_is_all_of_it() -> None:
    span = activity_between(None, (BUSY, replace(BUSY, id="b")), 100.0)
    assert (span.rounds, span.committed_tokens) == (100, 220)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("<html>", "needs the status of an Outrider service, found in the answer: Invalid JSON"),
        ('{"model": "m", "drafters": []}', "found in coordinators: Field required"),
    ],
)
def test_another_service_is_told_apart(body: str, message: str) -> None:
    with pytest.raises(StatusError, match=re.escape(message)):
        parse_status(body)

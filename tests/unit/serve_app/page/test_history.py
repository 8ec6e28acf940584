from dataclasses import replace

import pytest

from actors.messages import CoordinatorReport, DrafterState, DrafterStatus, FleetStatus
from outrider.contracts.verifying import KvUsage
from serve_app.page.history import KEPT_S, MOST_GAP_S, MOST_SAMPLES, History

KV = KvUsage(block_tokens=16, total_blocks=100, used_blocks=25, cached_blocks=10, generations=2, evictions=0)
BUSY = CoordinatorReport("a", "ready", 100.0, 3, 1, rounds=50, committed_tokens=110, verifier_idle_s=40.0, kv=KV)
DEVICES = tuple(
    DrafterStatus(f"drafter-x-{i}", "x", state, None, 0, 8)
    for i, state in enumerate((DrafterState.READY, DrafterState.READY, DrafterState.SUSPECT))
)


def status(*coordinators: CoordinatorReport) -> FleetStatus:
    return FleetStatus(DEVICES, coordinators)


def later(seconds: float, **done: float) -> CoordinatorReport:
    counts = {name: getattr(BUSY, name) + amount for name, amount in done.items()}
    return replace(BUSY, uptime_s=BUSY.uptime_s + seconds, **counts)


def test_the_first_look_knows_how_things_stand_and_no_rates() -> None:
    history = History()
    history.looked(status(BUSY), 1000.0)
    (sample,) = history
    assert (sample.running, sample.queued, sample.drafters_ready, sample.kv_used) == (3, 1, 2, 0.25)
    assert (sample.tokens_per_s, sample.accepted_fraction, sample.verifiers_busy) == (None, None, None)


def test_rates_are_of_the_time_since_the_look_before() -> None:
    history = History()
    history.looked(status(BUSY), 1000.0)
    did = later(2.0, rounds=10, committed_tokens=30, drafted_tokens=22, trimmed_tokens=2, accepted_tokens=15)
    history.looked(status(replace(did, verifier_idle_s=BUSY.verifier_idle_s + 0.5)), 1002.0)
    sample = list(history)[-1]
    assert (sample.tokens_per_s, sample.rounds_per_s, sample.accepted_fraction) == (15.0, 5.0, 0.75)
    assert sample.verifiers_busy == pytest.approx(0.75)


def test_what_happened_while_nobody_looked_is_no_rate() -> None:
    history = History()
    history.looked(status(BUSY), 1000.0)
    history.looked(status(later(100.0, committed_tokens=5000)), 1000.0 + MOST_GAP_S + 1.0)
    assert list(history)[-1].tokens_per_s is None


def test_a_service_without_verifiers_has_samples_too() -> None:
    history = History()
    for second in range(2):
        history.looked(FleetStatus((), ()), 1000.0 + second)
    assert (list(history)[-1].kv_used, list(history)[-1].verifiers_busy) == (None, None)


def test_it_is_bounded_by_number_and_by_age() -> None:
    history = History()
    for look in range(MOST_SAMPLES + 50):
        history.looked(status(BUSY), 1000.0 + look)
    assert len(list(history)) == MOST_SAMPLES
    history.looked(status(BUSY), 1000.0 + 2 * KEPT_S)
    assert len(list(history)) == 1


def test_columns_are_of_what_is_not_known_yet() -> None:
    history = History()
    for look in range(4):
        history.looked(status(BUSY), 1000.0 + look)
    columns = history.columns(1001.0)
    assert columns["at_s"] == [1002.0, 1003.0]
    assert {len(column) for column in columns.values()} == {2}
    assert history.columns(2000.0)["at_s"] == []

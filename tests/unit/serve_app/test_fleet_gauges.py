"""What the fleet exports of its drafters."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from actors.messages import DrafterState, FleetSums
from outrider.wire.replies import SentSegments
from serve_app import metrics
from serve_app.fleet_gauges import FleetGauges
from tests.unit.serve_app.coordination.in_memory import RecordingSink


def sums_of(*drafters: tuple[str, DrafterState, int]) -> FleetSums:
    leases = Counter[str]()
    for group, _, generations in drafters:
        leases[group] += generations
    return FleetSums(Counter((group, state) for group, state, _ in drafters), leases)


DRAFTERS = st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from(DrafterState), st.integers(0, 8)), max_size=6)


@given(history=st.lists(DRAFTERS, min_size=1, max_size=5))
def test_the_fleets_gauges_are_the_last_sums_and_zero_for_what_is_gone(
    history: list[list[tuple[str, DrafterState, int]]],
) -> None:
    sink = RecordingSink()
    gauges = FleetGauges(sink)
    for drafters in history:
        gauges(sums_of(*drafters))
    last = history[-1]
    for drafters in history:
        for group, state, _ in drafters:
            expected = sum((g, s) == (group, state) for g, s, _ in last)
            assert sink.of(metrics.DRAFTERS, group, state)[-1] == expected
            leases = sum(n for g, _, n in last if g == group)
            assert sink.of(metrics.LEASES, group)[-1] == leases


def test_what_devices_say_to_have_sent_is_counted_once() -> None:
    sink = RecordingSink()
    gauges = FleetGauges(sink)
    for edge in ((3, 1), (3, 1), (9, 1)):
        gauges(FleetSums({}, {}, {"edge": SentSegments(*edge), "lab": SentSegments(5, 5)}))
    assert sink.of(metrics.UP_SENT_SEGMENTS, "edge") == [3, 0, 6]
    assert sink.of(metrics.UP_RESENT_SEGMENTS, "edge") == [1, 0, 0]
    assert sink.of(metrics.UP_SENT_SEGMENTS, "lab") == [5, 0, 0]


def test_strikes_and_gateways_are_told_as_they_are() -> None:
    sink = RecordingSink()
    gauges = FleetGauges(sink)
    for strikes, running in ({"drafter-edge-3": 2}, 2), ({}, 1):
        gauges(FleetSums({}, {}, strikes=strikes, gateways={"wanted": 2, "running": running}))
    assert sink.of(metrics.DEVICE_STRIKES, "drafter-edge-3") == [2], "a gauge that is not set is dropped"
    assert sink.of(metrics.GATEWAYS, "wanted") == [2, 2]
    assert sink.of(metrics.GATEWAYS, "running") == [2, 1]


def test_what_gateways_carry_and_refuse_is_counted_once() -> None:
    sink = RecordingSink()
    gauges = FleetGauges(sink)
    for carried, refused in ((100, 1), (100, 1), (250, 3)):
        gauges(FleetSums({}, {}, carried_bytes={("far", "up"): carried}, refused={"revoked": refused}))
    assert sink.of(metrics.WIRE_BITS, "far", "up") == [800, 0, 1200]
    assert sink.of(metrics.REFUSED_DIALS, "revoked") == [1, 0, 2]

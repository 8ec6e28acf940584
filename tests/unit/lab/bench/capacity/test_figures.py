import pytest

from lab.bench.capacity.figures import device_results, figures
from lab.bench.capacity.log import BatchEntry, Cell, CellLog, ResponseEntry, RoundEntry
from outrider.contracts.cost import LinearCostModel, VerifyCost
from outrider.contracts.slo import SloClass
from outrider.rounds.timing import RoundTiming
from outrider.scheduling.attribution import ViolationCause

SLO = SloClass("speed_4", 4.0)
BLOCK, GRACE_S = 5, 2.0


def made(at_s: float, tokens: int, total_s: float, late: ViolationCause | None = None) -> RoundEntry:
    """A round of four drafted tokens that waited for half its time and was verified for the other half."""
    timing = RoundTiming(
        protocol=None,
        drafted_tokens=4,
        accepted_tokens=tokens - 1,
        committed_tokens=tokens,
        draft_s=0.0,
        link_s=0.0,
        queue_s=total_s / 2,
        verify_s=total_s / 2,
        total_s=total_s,
        slo_class=SLO.name,
        late=late,
    )
    return RoundEntry(at_s, timing)


def response(
    user: int, rounds: tuple[RoundEntry, ...], *, ended: bool, asked_at_s: float = 0.0, number: int = 0
) -> ResponseEntry:
    ended_at_s = rounds[-1].committed_at_s if ended else None
    return ResponseEntry(user, number, SLO, 8, asked_at_s, rounds, ended_at_s, as_recorded=True)


def log(*responses: ResponseEntry, users: int = 1, warmup_s: float = 0.0, ended_at_s: float = 10.0) -> CellLog:
    cell = Cell("fcfs", users, 0)
    batch = BatchEntry(1.0, (("0/0/fcfs-1-0", 0, VerifyCost(5, 8)), ("1/0/fcfs-1-0", 0, VerifyCost(5, 8))), 0.5)
    return CellLog(cell, warmup_s, ended_at_s, responses, (batch,), 0, ())


def test_a_response_is_late_by_its_mean_speed_and_a_round_by_itself() -> None:
    rounds = (
        made(1.0, 1, 1.0),
        made(2.0, 2, 1.0, ViolationCause.COMPUTE),
        made(3.0, 5, 1.0),
        made(4.5, 5, 1.5, ViolationCause.QUEUE),
    )
    found = device_results(log(response(0, rounds, ended=True)), 0, block_tokens=BLOCK, grace_s=GRACE_S)
    assert (found.responses, found.late_responses) == (1, 1)  # 12 tokens in 3.5 s
    assert (found.rounds, found.late_queue_rounds, found.late_compute_rounds) == (3, 1, 1)
    assert (found.timed_tokens, found.timed_s, found.committed_tokens) == (12, 3.5, 13)
    assert (found.drafted_tokens, found.accepted_tokens) == (12, 9)
    assert found.late
    assert not found.unfinished


def test_early_tokens_make_up_for_a_late_round() -> None:
    rounds = (made(1.0, 1, 1.0), made(1.5, 5, 0.5), made(2.5, 2, 1.0, ViolationCause.QUEUE))
    found = device_results(log(response(0, rounds, ended=True)), 0, block_tokens=BLOCK, grace_s=GRACE_S)
    assert (found.late_responses, found.late_rounds, found.late) == (0, 1, False)
    assert found.speeds_tokens_per_s == pytest.approx((7 / 1.5,))


def test_a_device_that_is_left_waiting_counts_as_late() -> None:
    begun = response(0, (made(1.0, 1, 1.0), made(1.5, 5, 0.5)), ended=False)
    never = response(1, (), ended=False, asked_at_s=1.0)
    soon = response(2, (made(8.9, 1, 1.0),), ended=False)
    for user, expected in ((0, True), (1, True), (2, False)):
        found = device_results(log(begun, never, soon, users=3), user, block_tokens=BLOCK, grace_s=GRACE_S)
        assert (found.starved, found.late, found.late_responses, found.unfinished) == (
            expected, expected, int(expected), True,
        )  # fmt: skip


def test_what_was_over_before_the_warm_up_does_not_count() -> None:
    early = response(0, (made(0.5, 1, 0.5), made(2.5, 1, 2.0, ViolationCause.QUEUE)), ended=True)
    later = response(0, (made(3.5, 1, 0.5), made(4.0, 5, 0.5)), ended=True, number=1)
    found = figures([log(early, later, warmup_s=3.0)], block_tokens=BLOCK, grace_s=GRACE_S)
    assert (found.promised.responses, found.promised.late_responses, found.promised.rounds) == (1, 0, 1)
    assert found.rates.goodput.mean == pytest.approx(6 / 7.0)
    assert found.round_times.count == 1
    assert found.batch_sizes == ()


def test_a_machine_half_as_fast_has_twice_the_slowness() -> None:
    model = LinearCostModel(0.01, 0.0, 0.0, 0.15)
    found = figures(
        [log(response(0, (made(1.0, 1, 1.0),), ended=True))], block_tokens=BLOCK, grace_s=GRACE_S, model=model
    )
    assert found.slowness == pytest.approx(0.5 / 0.25), "ten positions"


def test_repeats_are_taken_together() -> None:
    one = log(response(0, (made(1.0, 1, 1.0), made(2.0, 5, 1.0)), ended=True))
    other = log(response(0, (made(1.0, 1, 1.0), made(4.0, 5, 3.0, ViolationCause.QUEUE)), ended=True))
    found = figures([one, other], block_tokens=BLOCK, grace_s=GRACE_S)
    assert (found.promised.devices, found.promised.late_devices) == (2, 1)
    assert found.round_times.count == 2
    assert (found.round_times.p50_s, found.queue_times.mean_s) == pytest.approx((2.0, 1.0))
    assert found.mean_batch_blocks == 2.0
    assert (found.measured_s, found.busy_share) == pytest.approx((20.0, 0.05))

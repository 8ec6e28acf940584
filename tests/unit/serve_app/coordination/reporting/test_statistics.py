"""What a coordinator counts, told twice: in its report and in the metrics."""

import json
from dataclasses import asdict, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.messages import DrafterId, LinkReport, SloRounds
from actors.tcp_counts import Carried
from outrider.admission.decisions import AdmissionReport, ClassAdmission
from outrider.contracts.link import Csi
from outrider.contracts.verifying import KvUsage
from outrider.rounds.timing import RoundTiming
from outrider.scheduling.attribution import ViolationCause
from outrider.scheduling.policy import StopReason
from outrider.selection.tuning.report import TunerReport
from serve_app import metrics
from serve_app.coordination.drafting.drafter_book import DrafterFigures, ExchangeOutcome
from serve_app.coordination.reporting.gauges import FaultCounter
from serve_app.coordination.reporting.statistics import POSITIONS, BatchRecord, CoordinatorStats, GenerationsNow
from serve_app.metrics import Sink
from tests.unit.serve_app.coordination.in_memory import RecordingSink

ALONE = RoundTiming(None, 0, 0, 1, draft_s=0.0, link_s=0.0, queue_s=0.25, verify_s=1.0, total_s=1.5)
DRAFTED = RoundTiming(
    "tslt",
    4,
    3,
    4,
    draft_s=2.0,
    link_s=0.5,
    queue_s=0.25,
    verify_s=1.0,
    total_s=4.0,
    up_bits=80,
    down_bits=64,
)
USAGE = KvUsage(block_tokens=16, total_blocks=10, used_blocks=3, cached_blocks=2, generations=1, evictions=0)
BATCH = BatchRecord(3, StopReason.MAX_BLOCKS, predicted_s=1.0, engine_s=0.8, idle_s=0.5, usage=USAGE)


class HandDrivenClock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def made() -> tuple[CoordinatorStats, RecordingSink, HandDrivenClock]:
    sink, clock = RecordingSink(), HandDrivenClock()
    return CoordinatorStats("c", sink, clock), sink, clock


def test_what_was_looked_up_is_counted_apart() -> None:
    stats, sink, _ = made()
    stats.round(replace(DRAFTED, protocol="lookup", drafted_tokens=8, accepted_tokens=3, trimmed_tokens=1))
    stats.round(DRAFTED)
    assert sink.of(metrics.ROUNDS, "lookup") == [1]
    assert (sink.of(metrics.LOOKUP_TOKENS, "accepted"), sink.of(metrics.LOOKUP_TOKENS, "rejected")) == ([3], [4])


def test_rounds_add_up_in_report_and_metrics() -> None:
    stats, sink, clock = made()
    for timing in (ALONE, DRAFTED, DRAFTED):
        stats.round(timing)
    clock.now_s += 7.0
    report = stats.report("ready", GenerationsNow(admitted=5, running=3, queued_blocks=2))
    assert (report.id, report.verifier, report.uptime_s) == ("c", "ready", 7.0)
    assert (report.generations, report.queued_generations, report.queued_blocks) == (3, 2, 2)
    assert (report.rounds, report.speculative_rounds, report.committed_tokens) == (3, 2, 9)
    assert (report.drafted_tokens, report.accepted_tokens) == (8, 6)
    assert report.phase_seconds == pytest.approx(
        {"draft": 4.0, "link": 1.0, "queue": 0.75, "verify": 3.0, "orchestration": 0.75}
    )
    assert (sink.of(metrics.ROUNDS, "none"), sink.of(metrics.ROUNDS, "tslt")) == ([1], [1, 1])
    assert sink.of(metrics.DRAFTS, "tslt") == [1, 1]
    assert (sink.of(metrics.DRAFT_TOKENS, "tslt"), sink.of(metrics.ACCEPTED_TOKENS, "tslt")) == ([4, 4], [3, 3])
    assert [sum(sink.of(metrics.ACCEPTED_AT, str(i))) for i in range(POSITIONS)] == [2, 2, 2] + [0] * (POSITIONS - 3)
    assert sink.of(metrics.DRAFT_WINDOW) == [4, 4], "a round without a message has no window"
    assert sink.of(metrics.WASTED_DRAFT_S) == [0.5, 0.5], "a quarter of the drafted tokens was rejected"
    assert sink.of(metrics.PHASE_S, "draft") == [2.0, 2.0], "a round without a draft has no such phase"
    assert sink.of(metrics.PHASE_S, "verify") == [1.0, 1.0, 1.0]
    assert sink.of(metrics.PAYLOAD_BITS, "tslt", "up") == [80, 80]
    assert sink.of(metrics.PAYLOAD_BITS, "tslt", "down") == [64, 64]
    assert sink.of(metrics.PAYLOAD_BITS, "none", "up") == []


def test_a_draft_that_was_ordered_and_not_sent_is_waste() -> None:
    stats, sink, _ = made()
    stopped = replace(DRAFTED, protocol=None, drafted_tokens=0, accepted_tokens=0, ordered_tokens=4)
    stats.round(stopped)
    stats.round(replace(stopped, ordered_tokens=0))  # for a correction alone
    assert sink.of(metrics.WASTED_DRAFT_S) == [2.0, 0.0]
    assert sink.of(metrics.DRAFTS, "tslt") == sink.of(metrics.DRAFTS, "none") == []


def test_what_nobody_judged_is_told_apart() -> None:
    stats, sink, _ = made()
    stats.round(replace(DRAFTED, trimmed_tokens=1))
    report = stats.report("ready", GenerationsNow())
    assert (report.drafted_tokens, report.trimmed_tokens, report.accepted_tokens) == (4, 1, 3)
    assert sink.of(metrics.DRAFT_TOKENS, "tslt") == [3]


def test_a_round_that_follows_by_itself_is_counted_but_its_phases_are_no_histograms() -> None:
    stats, sink, _ = made()
    for _ in range(2):
        stats.round(replace(ALONE, follows=True))
    report = stats.report("ready", GenerationsNow())
    assert (report.rounds, report.committed_tokens) == (2, 2 * ALONE.committed_tokens)
    assert report.phase_seconds["verify"] == 2 * ALONE.verify_s
    for _ in range(2):
        stats.batch(BATCH)
    assert sink.of(metrics.ROUNDS, "none") == [2], "those of a step are told together, once"
    assert sink.of(metrics.PHASE_S, "verify") == []


def test_what_a_verifier_has_drafted_itself_is_counted_like_any_draft() -> None:
    stats, sink, _ = made()
    stats.round(replace(DRAFTED, protocol="lookup", follows=True, draft_s=0.0, link_s=0.0, up_bits=0, down_bits=0))
    report = stats.report("ready", GenerationsNow())
    assert (report.speculative_rounds, report.drafted_tokens, report.accepted_tokens) == (1, 4, 3)
    assert (sink.of(metrics.ROUNDS, "lookup"), sink.of(metrics.ROUNDS, "none")) == ([1], [])
    assert sink.of(metrics.LOOKUP_TOKENS, "accepted") == [3]
    assert report.phase_seconds["verify"] == DRAFTED.verify_s
    assert sink.of(metrics.PHASE_S, "verify") == []


JUDGED = st.lists(
    st.builds(
        replace,
        st.just(ALONE),
        slo_class=st.sampled_from([None, "speed_2", "speed_8"]),
        late=st.none() | st.sampled_from(ViolationCause),
        behind=st.booleans(),
    ),
    max_size=12,
)


@given(timings=JUDGED)
def test_promises_are_counted_by_class_and_cause_and_told_twice(timings: list[RoundTiming]) -> None:
    stats, sink, _ = made()
    for timing in timings:
        stats.round(timing)
    promised = [timing for timing in timings if timing.slo_class is not None]
    slo = stats.report("ready", GenerationsNow()).slo
    assert set(slo) == {timing.slo_class for timing in promised}, "best effort is not judged"
    for name, sent in slo.items():
        rounds = [timing for timing in promised if timing.slo_class == name]
        late = [timing.late for timing in rounds]
        queue, compute = late.count(ViolationCause.QUEUE), late.count(ViolationCause.COMPUTE)
        assert sent == SloRounds(len(rounds), queue, compute, sum(timing.behind for timing in rounds))
        counted = [
            sum(sink.of(metrics.SLO_ROUNDS, name)),
            sum(sink.of(metrics.SLO_LATE_ROUNDS, name, "queue")),
            sum(sink.of(metrics.SLO_LATE_ROUNDS, name, "compute")),
            sum(sink.of(metrics.SLO_BEHIND, name)),
        ]
        assert counted == [sent.rounds, sent.late_queue, sent.late_compute, sent.behind]
    assert sum(len(v) for key, v in sink.values.items() if key[0] == metrics.SLO_ROUNDS.name) == len(promised)


def test_of_a_groups_links_the_worst_is_told() -> None:
    stats, sink, _ = made()
    near, far = Csi(20e6, 9e6, 0.0, 0.0, 0.001), Csi(30e6, 5e6, 0.0, 0.0, 0.05)
    stats.gauges.record_links({DrafterId("edge", 0): near, DrafterId("edge", 1): far, DrafterId("lab", 0): near})
    assert sink.of(metrics.LINK_RTT_S, "edge") == [0.05]
    assert (sink.of(metrics.LINK_RATE_BPS, "edge", "up"), sink.of(metrics.LINK_RATE_BPS, "edge", "down")) == (
        [20e6],
        [5e6],
    )
    assert sink.of(metrics.LINK_RTT_S, "lab") == [0.001]


def test_a_devices_figures_are_told_as_far_as_they_are_measured() -> None:
    stats, sink, _ = made()
    stats.gauges.record_devices(
        {DrafterId("edge", 0): DrafterFigures(0.25, 0.02, 0.5), DrafterId("edge", 1): DrafterFigures(0.0, 0.0, 1.0)}
    )
    assert sink.of(metrics.DEVICE_RTT_S, "drafter-edge-0") == [0.25]
    assert sink.of(metrics.DEVICE_SPEED, "drafter-edge-0") == [50.0]
    assert sink.of(metrics.DEVICE_UNANSWERED, "drafter-edge-0") == [0.5]
    assert sink.of(metrics.DEVICE_UNANSWERED, "drafter-edge-1") == [1.0]
    assert sink.of(metrics.DEVICE_RTT_S, "drafter-edge-1") == sink.of(metrics.DEVICE_SPEED, "drafter-edge-1") == []


@pytest.mark.parametrize("timings", [[], [ALONE], [DRAFTED]], ids=["none", "alone", "drafted"])
def test_a_report_of_few_rounds_is_made_of_numbers(timings: list[RoundTiming]) -> None:
    stats, _, _ = made()
    for timing in timings:
        stats.round(timing)
    report = asdict(stats.report("restarting", GenerationsNow()))
    assert report["kv"] is None
    assert not any(isinstance(value, bool) for value in report.values()), "which JSON would tell as true and false"
    assert json.loads(json.dumps(report)) == report


def test_batches_tell_idleness_prediction_and_evictions() -> None:
    stats, sink, _ = made()
    for number in (2, 2, 5, 1):  # then it restarted
        usage = replace(USAGE, evictions=number, unowed_evictions=number // 2, evicted_blocks=10 * number)
        usage = replace(usage, recomputed_tokens=number + 1, swapped_out_blocks=3 * number, swapped_in_blocks=number)
        stats.batch(replace(BATCH, usage=usage))
    assert sink.of(metrics.KV_EVICTIONS, "yes") == [1, 2, 1]
    assert sink.of(metrics.KV_EVICTIONS, "no") == [1, 1, 0]
    assert sink.of(metrics.KV_EVICTED_BLOCKS) == [20, 30, 10]
    assert sink.of(metrics.KV_RECOMPUTED_TOKENS) == [3, 3, 2]
    assert sink.of(metrics.KV_SWAPPED_BLOCKS, "out") == [6, 9, 3]
    assert sink.of(metrics.KV_SWAPPED_BLOCKS, "in") == [2, 3, 1]
    assert sink.of(metrics.VERIFIER_IDLE_S) == [0.5] * 4
    assert stats.idle_s == 2.0
    assert sink.of(metrics.BATCHES, "max_blocks") == [1] * 4
    assert sink.of(metrics.BATCH_BLOCKS) == [3] * 4
    assert sink.of(metrics.COST_ERROR) == pytest.approx([0.25] * 4)
    assert (sink.of(metrics.PREDICTED_S), sink.of(metrics.MEASURED_S)) == ([1.0] * 4, [0.8] * 4)
    assert stats.usage == usage
    assert stats.report("ready", GenerationsNow()).verifier_idle_s == 2.0


def test_a_call_without_blocks_is_no_batch() -> None:
    stats, sink, _ = made()
    stats.batch(replace(BATCH, blocks=0, engine_s=0.0))
    sent = {metrics.VERIFIER_IDLE_S.name}
    assert {key[0] for key in sink.values} == sent
    stats.batch(replace(BATCH, engine_s=0.0))
    assert sink.of(metrics.COST_ERROR) == [1e6], "an engine that took no time divides nothing by zero"


def test_a_report_sets_the_gauges() -> None:
    stats, sink, _ = made()
    stats.report("ready", GenerationsNow(admitted=5, running=3, queued_blocks=2))
    assert sink.of(metrics.KV_BLOCKS, "used") == [], "before the first batch nobody knows"
    stats.batch(BATCH)
    assert stats.report("ready", GenerationsNow(admitted=4, running=4, queued_blocks=1)).kv == USAGE
    assert (sink.of(metrics.GENERATIONS, "running"), sink.of(metrics.GENERATIONS, "queued")) == ([3, 4], [2, 0])
    assert sink.of(metrics.QUEUED_BLOCKS) == [2, 1]
    assert [sink.of(metrics.KV_BLOCKS, state) for state in ("used", "cached", "free")] == [[3], [2], [5]]
    stats.report("restarting", GenerationsNow())
    assert sink.of(metrics.VERIFIER_READY) == [1, 1, 0]


@given(
    parts=st.tuples(*[st.floats(0.0, 100.0)] * 5),
    drafted=st.integers(1, 8),
)
def test_a_rounds_phases_add_up_to_its_time(parts: tuple[float, ...], drafted: int) -> None:
    draft_s, link_s, queue_s, verify_s, rest_s = parts
    timing = RoundTiming(None, drafted, 0, 1, draft_s, link_s, queue_s, verify_s, total_s=sum(parts))
    assert sum(timing.phases_s.values()) == pytest.approx(timing.total_s)
    assert timing.phases_s["orchestration"] == pytest.approx(rest_s, abs=1e-9)
    alone = RoundTiming(None, 0, 0, 1, 0.0, 0.0, queue_s, verify_s, total_s=queue_s + verify_s + rest_s)
    assert sum(alone.phases_s.values()) == pytest.approx(alone.total_s)
    assert sorted(alone.phases_s) == ["orchestration", "queue", "verify"]


def test_a_tuner_sets_its_gauges_and_counts_what_came_since_the_last_report() -> None:
    stats, sink, _ = made()
    sent = TunerReport("none", "none", (), (("none", 0), ("draft", 1)), 0.5, 10.0, 0)
    sent = replace(sent, at_load=(("none", 40.0, 0.0), ("draft", 30.0, 0.25)))
    later = replace(sent, arm="draft", kept="draft", probes=(("none", 2), ("draft", 1)), probes_lost_s=0.75, changes=1)
    for tuner in (sent, later, later):
        report = stats.report("ready", GenerationsNow(tuner=tuner))
        assert report.regime == tuner
    assert (sink.of(metrics.TUNER_MODE, "none"), sink.of(metrics.TUNER_MODE, "draft")) == ([1, 0, 0], [0, 1, 1])
    assert (sink.of(metrics.TUNER_PROBES, "none"), sink.of(metrics.TUNER_PROBES, "draft")) == ([0, 2, 0], [1, 0, 0])
    assert sink.of(metrics.TUNER_PROBES_LOST_S) == [0.5, 0.25, 0.0]
    assert sink.of(metrics.TUNER_ACTIVE_S) == [10.0, 0.0, 0.0]
    assert sink.of(metrics.TUNER_CHANGES) == [0, 1, 0]
    assert (sink.of(metrics.TUNER_REWARD, "none"), sink.of(metrics.TUNER_LOSS, "draft")) == ([40.0] * 3, [0.25] * 3)


def test_admission_is_reported_and_its_counters_move_by_what_is_new() -> None:
    stats, sink, _ = made()

    def tell(**counts: int) -> None:
        classes = {"fast": ClassAdmission(**counts)}
        report = AdmissionReport(load=0.5, limit=0.7, classes=classes)
        sent = stats.report("ready", GenerationsNow(admission=report))
        assert sent.admission == report

    tell(asked=5, admitted=3, lowered=1, kept=2, late=1, waiting=2)
    tell(asked=8, admitted=7, lowered=1, kept=4, late=1, waiting=0)
    assert sink.of(metrics.ADMITTED, "fast") == [3, 4]
    assert sink.of(metrics.LOWERED, "fast") == [1, 0]
    assert (sink.of(metrics.ENDED_KEPT, "fast", "yes"), sink.of(metrics.ENDED_KEPT, "fast", "no")) == ([2, 2], [1, 0])
    assert sink.of(metrics.QUEUED_RESPONSES, "fast") == [2, 0]
    assert (sink.of(metrics.PROMISED_LOAD, "needed")[-1], sink.of(metrics.PROMISED_LOAD, "allowed")[-1]) == (0.5, 0.7)


def test_links_and_faults_are_reported() -> None:
    stats, _, _ = made()
    now = GenerationsNow(links={DrafterId("near", 1): Csi(2e7, 3e7, 0.0, 0.0, 0.05)})
    sent = stats.report("ready", now, faults={"drafter_losses": 2})
    assert (sent.links, sent.faults) == ({"drafter-near-1": LinkReport(0.05, 2e7, 3e7)}, {"drafter_losses": 2})


def test_faults_are_what_the_metrics_count() -> None:
    faults = FaultCounter()
    sink = Sink(faults.exporter)
    sink.record(metrics.DRAFTER_LOSSES, 0)
    sink.record(metrics.ROUNDS, protocol="none")
    assert faults.counts == {}
    sink.record(metrics.PASS_FAULTS, kind="pass")
    sink.record(metrics.PASS_FAULTS, kind="load")
    sink.record(metrics.DRAFTER_LOSSES, 3)
    assert faults.counts == {"pass_faults": 2, "drafter_losses": 3}


def test_the_wire_is_told_in_bits_by_group_and_what_came_of_messages() -> None:
    stats, sink, _ = made()
    stats.gauges.record_wire({"edge": Carried(100, 50, 3, 1), "lab": Carried(7, 0, 1, 0)})
    assert (sink.of(metrics.WIRE_BITS, "edge", "down"), sink.of(metrics.WIRE_BITS, "edge", "up")) == ([800], [400])
    assert (sink.of(metrics.SENT_SEGMENTS, "edge"), sink.of(metrics.RESENT_SEGMENTS, "edge")) == ([3], [1])
    assert sink.of(metrics.WIRE_BITS, "lab", "down") == [56]
    stats.gauges.record_exchanges({("edge", ExchangeOutcome.ANSWERED): 5, ("edge", ExchangeOutcome.SILENT): 1})
    assert (sink.of(metrics.EXCHANGES, "edge", "answered"), sink.of(metrics.EXCHANGES, "edge", "silent")) == ([5], [1])

"""Counts a coordinator's rounds and steps, for its report to the fleet and for the metrics."""

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from actors.messages import CoordinatorReport, DrafterId, LinkReport, SloRounds
from actors.tcp_counts import Carried
from outrider.admission.decisions import AdmissionReport, ClassAdmission
from outrider.contracts.link import Csi
from outrider.contracts.verifying import KvUsage
from outrider.costs.profiles import ProfiledOn
from outrider.rounds.lookup.ngram_drafts import LOOKUP
from outrider.rounds.timing import RoundTiming
from outrider.scheduling.attribution import ViolationCause
from outrider.scheduling.policy import StopReason
from outrider.selection.drift import RejectionDrift
from outrider.selection.tuning.report import TunerReport
from serve_app import metrics
from serve_app.coordination.drafting.drafter_book import ExchangeOutcome
from serve_app.metrics import Sink

POSITIONS = 16  # draft positions whose acceptances are counted separately
_COUNTED_OF_KV = (
    "evictions",
    "unowed_evictions",
    "evicted_blocks",
    "recomputed_tokens",
    "swapped_out_blocks",
    "swapped_in_blocks",
)


@dataclass(frozen=True, slots=True)
class BatchRecord:
    """One step of the verifier."""

    blocks: int
    reason: StopReason  # why no more blocks joined
    predicted_s: float
    engine_s: float
    idle_s: float  # idle time of the verifier before the step
    usage: KvUsage
    faults: tuple[str, ...] = ()  # kinds of its passes' faults


class CoordinatorStats:
    """Counters since the coordinator's start."""

    def __init__(self, coordinator_id: str, sink: Sink, clock: Callable[[], float]) -> None:
        """Begin at zero; ``clock`` is monotonic, in seconds."""
        self._id = coordinator_id
        self.sink = sink
        self._clock = clock
        self._started_at_s = clock()
        self._counts: Counter[str] = Counter()
        self._phase_s: defaultdict[str, float] = defaultdict(float)
        self._accepted_at = [0] * POSITIONS  # since the last export, as are
        self._followed = 0  # autonomous rounds without a draft
        self._slo: dict[str, SloRounds] = {}
        self._tuner: TunerReport | None = None  # as exported last
        self._admission = AdmissionReport()  # likewise
        self._last_reply_at_s = self._started_at_s
        self.idle_s = 0.0
        self.usage: KvUsage | None = None

    def round(self, timing: RoundTiming) -> None:
        """Record a committed round. Autonomous ones without a draft are many: they are only counted."""
        if timing.follows and not timing.drafted_tokens:
            self._followed_round(timing)
            return
        sink, counts = self.sink, self._counts
        counts["rounds"] += 1
        counts["committed"] += timing.committed_tokens
        protocol = timing.protocol or "none"
        sink.record(metrics.ROUNDS, protocol=protocol)
        for direction, bits in (("up", timing.up_bits), ("down", timing.down_bits)):
            if bits:
                sink.record(metrics.PAYLOAD_BITS, bits, protocol=protocol, direction=direction)
        if timing.drafted_tokens:
            self._draft_verified(timing, protocol)
        if timing.draft_s:
            sink.record(metrics.WASTED_DRAFT_S, timing.wasted_draft_s)
        if timing.drafted_tokens or timing.up_bits:
            sink.record(metrics.DRAFT_WINDOW, timing.ordered_tokens or timing.drafted_tokens)
        self._slo_round(timing)
        if timing.follows:
            self._took(timing)
            return
        for phase, seconds in timing.phases_s.items():
            self._phase_s[phase] += seconds
            sink.record(metrics.PHASE_S, seconds, phase=phase)

    def _draft_verified(self, timing: RoundTiming, protocol: str) -> None:
        drafted, accepted, sink, counts = timing.drafted_tokens, timing.accepted_tokens, self.sink, self._counts
        counts["speculative"] += 1
        counts["drafted"] += drafted
        counts["accepted"] += accepted
        counts["trimmed"] += timing.trimmed_tokens
        sink.record(metrics.DRAFTS, protocol=protocol)
        sink.record(metrics.DRAFT_TOKENS, drafted - timing.trimmed_tokens, protocol=protocol)
        sink.record(metrics.ACCEPTED_TOKENS, accepted, protocol=protocol)
        for position in range(min(accepted, POSITIONS)):
            self._accepted_at[position] += 1
        if timing.judged_tokens:
            passed = timing.override_tokens
            sink.record(metrics.JUDGED_TOKENS, passed, outcome="passed")
            sink.record(metrics.JUDGED_TOKENS, timing.judged_tokens - passed, outcome="rejected")
        if timing.protocol == LOOKUP:
            rejected = drafted - timing.trimmed_tokens - accepted
            sink.record(metrics.LOOKUP_TOKENS, accepted, outcome="accepted")
            sink.record(metrics.LOOKUP_TOKENS, rejected, outcome="rejected")

    def _followed_round(self, timing: RoundTiming) -> None:
        counts = self._counts
        counts["rounds"] += 1
        counts["committed"] += timing.committed_tokens
        self._followed += 1
        self._slo_round(timing)
        self._took(timing)

    def _took(self, timing: RoundTiming) -> None:
        phase_s = self._phase_s
        phase_s["queue"] += timing.queue_s
        phase_s["verify"] += timing.verify_s
        phase_s["orchestration"] += max(0.0, timing.orchestration_s)

    def _slo_round(self, timing: RoundTiming) -> None:
        name, late, sink = timing.slo_class, timing.late, self.sink
        if name is None:
            return
        sink.record(metrics.SLO_ROUNDS, slo_class=name)
        if late is not None:
            sink.record(metrics.SLO_LATE_ROUNDS, slo_class=name, cause=late)
        if timing.behind:
            sink.record(metrics.SLO_BEHIND, slo_class=name)
        counted = self._slo.get(name, SloRounds())
        self._slo[name] = SloRounds(
            counted.rounds + 1,
            counted.late_queue + (late is ViolationCause.QUEUE),
            counted.late_compute + (late is ViolationCause.COMPUTE),
            counted.behind + timing.behind,
        )

    def batch(self, record: BatchRecord) -> None:
        """Record a step of the verifier."""
        before, self.usage = self.usage, record.usage
        self.idle_s += record.idle_s
        self._last_reply_at_s = self._clock()
        sink = self.sink
        if self._followed:
            sink.record(metrics.ROUNDS, self._followed, protocol="none")
            self._followed = 0
        sink.record(metrics.VERIFIER_IDLE_S, record.idle_s)
        for kind in record.faults:
            sink.record(metrics.PASS_FAULTS, kind=kind)
        self._made_room(record.usage, before)
        if record.blocks:
            sink.record(metrics.BATCHES, reason=record.reason)
            sink.record(metrics.BATCH_BLOCKS, record.blocks)
            error_s = abs(record.predicted_s - record.engine_s)
            sink.record(metrics.COST_ERROR, error_s / max(record.engine_s, 1e-6))
            sink.record(metrics.PREDICTED_S, record.predicted_s)
            sink.record(metrics.MEASURED_S, record.engine_s)

    def _made_room(self, usage: KvUsage, before: KvUsage | None) -> None:
        """Record evictions since the step before, and the blocks and tokens that they cost."""
        sink = self.sink
        if before is None or usage.evictions < before.evictions:  # a restarted verifier counts from zero
            before = replace(usage, **dict.fromkeys(_COUNTED_OF_KV, 0))
        if all(getattr(usage, name) == getattr(before, name) for name in _COUNTED_OF_KV):  # most steps
            return
        unowed = usage.unowed_evictions - before.unowed_evictions
        sink.record(metrics.KV_EVICTIONS, usage.evictions - before.evictions - unowed, owed="yes")
        sink.record(metrics.KV_EVICTIONS, unowed, owed="no")
        sink.record(metrics.KV_EVICTED_BLOCKS, usage.evicted_blocks - before.evicted_blocks)
        sink.record(metrics.KV_RECOMPUTED_TOKENS, usage.recomputed_tokens - before.recomputed_tokens)
        for direction in ("out", "in"):
            name = f"swapped_{direction}_blocks"
            sink.record(metrics.KV_SWAPPED_BLOCKS, getattr(usage, name) - getattr(before, name), direction=direction)

    def report(
        self,
        *,
        verifier: str,
        admitted: int,
        running: int,
        queued_blocks: int,
        idle: bool = False,
        tuner: TunerReport | None = None,
        admission: AdmissionReport | None = None,
        machine: ProfiledOn | None = None,
        target: str = "",
        links: Mapping[DrafterId, Csi] | None = None,
        faults: Mapping[str, int] | None = None,
    ) -> CoordinatorReport:
        """Return the report to the fleet, and set the gauges.

        ``idle``: nothing is under way at the verifier. The time since its last reply is then added to the idle time;
        the verifier itself reports it only with its next reply.
        """
        queued, counts = admitted - running, self._counts
        self._set_gauges(running, queued, queued_blocks, is_ready=verifier == "ready")
        if tuner is not None:
            self._publish_tuner(tuner)
        if admission is not None:
            self._admission_stands(admission)
        return CoordinatorReport(
            id=self._id,
            verifier=verifier,
            uptime_s=self._clock() - self._started_at_s,
            generations=running,
            queued_generations=queued,
            queued_blocks=queued_blocks,
            rounds=counts["rounds"],
            speculative_rounds=counts["speculative"],
            drafted_tokens=counts["drafted"],
            accepted_tokens=counts["accepted"],
            trimmed_tokens=counts["trimmed"],
            committed_tokens=counts["committed"],
            verifier_idle_s=self.idle_s + (self._clock() - self._last_reply_at_s if idle else 0.0),
            kv=self.usage,
            phase_seconds=dict(self._phase_s),
            slo=dict(self._slo),
            regime=tuner,
            admission=admission,
            machine=machine,
            target=target,
            links={d.actor_name: LinkReport(csi.rtt_s, csi.up_bps, csi.down_bps) for d, csi in (links or {}).items()},
            faults=dict(faults or {}),
        )

    def _set_gauges(self, running: int, queued: int, queued_blocks: int, *, is_ready: bool) -> None:
        usage, sink = self.usage, self.sink
        sink.record(metrics.GENERATIONS, running, state="running")
        sink.record(metrics.GENERATIONS, queued, state="queued")
        sink.record(metrics.QUEUED_BLOCKS, queued_blocks)
        sink.record(metrics.VERIFIER_READY, float(is_ready))
        for position, drafts in enumerate(self._accepted_at):
            sink.record(metrics.ACCEPTED_AT, drafts, position=str(position))
        self._accepted_at = [0] * POSITIONS
        if usage is not None:
            free = usage.total_blocks - usage.used_blocks - usage.cached_blocks
            for state, blocks in (("used", usage.used_blocks), ("cached", usage.cached_blocks), ("free", free)):
                sink.record(metrics.KV_BLOCKS, blocks, state=state)
            sink.record(metrics.KV_HOST_BLOCKS, usage.host_used_blocks, state="used")
            sink.record(metrics.KV_HOST_BLOCKS, usage.host_blocks - usage.host_used_blocks, state="free")

    def _admission_stands(self, admission: AdmissionReport) -> None:
        sink, before = self.sink, self._admission
        sink.record(metrics.PROMISED_LOAD, admission.load, state="needed")
        sink.record(metrics.PROMISED_LOAD, admission.limit, state="allowed")
        for name, now in admission.classes.items():
            then = before.classes.get(name, ClassAdmission())
            sink.record(metrics.QUEUED_RESPONSES, now.waiting, slo_class=name)
            sink.record(metrics.ADMITTED, now.admitted - then.admitted, slo_class=name)
            sink.record(metrics.LOWERED, now.lowered - then.lowered, slo_class=name)
            sink.record(metrics.ENDED_KEPT, now.kept - then.kept, slo_class=name, kept="yes")
            sink.record(metrics.ENDED_KEPT, now.late - then.late, slo_class=name, kept="no")
        self._admission = admission

    def _publish_tuner(self, tuner: TunerReport) -> None:
        sink, before = self.sink, self._tuner
        earlier = dict(before.probes) if before else {}
        for mode, probes in tuner.probes:
            sink.record(metrics.TUNER_MODE, float(mode == tuner.arm), arm=mode)
            sink.record(metrics.TUNER_PROBES, probes - earlier.get(mode, 0), arm=mode)
        for mode, tokens_per_s, loss in tuner.at_load:
            sink.record(metrics.TUNER_REWARD, tokens_per_s, arm=mode)
            sink.record(metrics.TUNER_LOSS, loss, arm=mode)
        sink.record(metrics.TUNER_PROBES_LOST_S, tuner.probes_lost_s - (before.probes_lost_s if before else 0.0))
        sink.record(metrics.TUNER_ACTIVE_S, tuner.active_s - (before.active_s if before else 0.0))
        sink.record(metrics.TUNER_CHANGES, tuner.changes - (before.changes if before else 0))
        self._tuner = tuner

    def settings_refused(self, refused: bool) -> None:
        """Set the gauge that says whether the last reloadable settings were refused."""
        self.sink.record(metrics.SETTINGS_REFUSED, float(refused), deployment="coordinator")

    def record_drifts(self, drifts: Mapping[str, RejectionDrift]) -> None:
        """Set the drift gauges of decision heads, by draft model."""
        for model, drift in drifts.items():
            self.sink.record(metrics.HEAD_DRIFT, float(drift.alarmed), model=model)

    def record_links(self, estimates: Mapping[DrafterId, Csi]) -> None:
        """Set the link gauges of each group, to the worst value of its links."""
        by_group: dict[str, list[Csi]] = {}
        for drafter, csi in estimates.items():
            by_group.setdefault(drafter.group, []).append(csi)
        for group, links in by_group.items():
            self.sink.record(metrics.LINK_RTT_S, max(csi.rtt_s for csi in links), group=group)
            up_bps, down_bps = min(csi.up_bps for csi in links), min(csi.down_bps for csi in links)
            for direction, rate_bps in (("up", up_bps), ("down", down_bps)):
                self.sink.record(metrics.LINK_RATE_BPS, rate_bps, group=group, direction=direction)

    def record_exchanges(self, outcomes: Mapping[tuple[str, ExchangeOutcome], int]) -> None:
        """Add counts of exchanges with drafters, by group and outcome."""
        for (group, outcome), count in outcomes.items():
            self.sink.record(metrics.EXCHANGES, count, group=group, outcome=outcome)

    def record_wire(self, groups: Mapping[str, Carried]) -> None:
        """Add what connections with drafters have carried, by group."""
        for group, carried in groups.items():
            for direction, sent_bytes in (("up", carried.received_bytes), ("down", carried.sent_bytes)):
                self.sink.record(metrics.WIRE_BITS, sent_bytes * 8, group=group, direction=direction)
            self.sink.record(metrics.SENT_SEGMENTS, carried.sent_segments, group=group)
            self.sink.record(metrics.RESENT_SEGMENTS, carried.resent_segments, group=group)

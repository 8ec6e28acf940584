"""Counts a coordinator's rounds and steps, for its report to the fleet and for the metrics."""

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from actors.messages import CoordinatorReport, DrafterId, LinkReport, SloRounds
from outrider.admission.decisions import AdmissionReport
from outrider.contracts.link import Csi
from outrider.contracts.verifying import KvUsage
from outrider.costs.profiles import ProfiledOn
from outrider.rounds.lookup.ngram_drafts import LOOKUP
from outrider.rounds.timing import RoundTiming
from outrider.scheduling.attribution import ViolationCause
from outrider.scheduling.policy import StopReason
from outrider.selection.tuning.report import TunerReport
from serve_app import metrics
from serve_app.coordination.drafting.drafter_book import DrafterFigures
from serve_app.coordination.reporting.gauges import CoordinatorGauges
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
    blocks: int
    reason: StopReason  # why no more blocks joined
    predicted_s: float
    engine_s: float
    idle_s: float  # idle time of the verifier before the step
    usage: KvUsage
    faults: tuple[str, ...] = ()  # kinds of its passes' faults


@dataclass(frozen=True, slots=True)
class GenerationsNow:
    admitted: int = 0  # responses that have not ended; ``running``: those of them that hold a place
    running: int = 0
    queued_blocks: int = 0
    idle: bool = False  # nothing is under way at the verifier
    tuner: TunerReport | None = None
    admission: AdmissionReport | None = None
    machine: ProfiledOn | None = None  # the verifier's
    links: Mapping[DrafterId, Csi] = field(default_factory=dict)  # estimates of the drafters' links
    worst: Mapping[DrafterId, DrafterFigures] = field(default_factory=dict)


NOTHING_YET = GenerationsNow(idle=True)  # while the verifier loads its model


class CoordinatorStats:
    def __init__(self, coordinator_id: str, sink: Sink, clock: Callable[[], float]) -> None:
        """Begin at zero; ``clock`` is monotonic, in seconds."""
        self._id = coordinator_id
        self.sink, self.gauges = sink, CoordinatorGauges(sink)
        self._clock = clock
        self._started_at_s = clock()
        self._counts: Counter[str] = Counter()
        self._phase_s: defaultdict[str, float] = defaultdict(float)
        self._accepted_at = [0] * POSITIONS  # since the last export, as are
        self._followed = 0  # autonomous rounds without a draft
        self._slo: dict[str, SloRounds] = {}
        self._last_reply_at_s = self._started_at_s
        self.idle_s = 0.0
        self.usage: KvUsage | None = None

    def round(self, timing: RoundTiming) -> None:
        """Record a committed round. Autonomous ones without a draft are many: they are only counted."""
        sink, counts = self.sink, self._counts
        counts["rounds"] += 1
        counts["committed"] += timing.committed_tokens
        self._slo_round(timing)
        if timing.follows:
            self._took(timing)
            if not timing.drafted_tokens:
                self._followed += 1
                return
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
        if timing.follows:
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
        verifier: str,
        now: GenerationsNow = NOTHING_YET,
        target: str = "",
        faults: Mapping[str, int] | None = None,
    ) -> CoordinatorReport:
        """Return the report to the fleet, and set the gauges."""
        counts = self._counts
        self._set_gauges(now, is_ready=verifier == "ready")
        if now.tuner is not None:
            self.gauges.record_tuner(now.tuner)
        if now.admission is not None:
            self.gauges.record_admission(now.admission)
        return CoordinatorReport(
            id=self._id,
            verifier=verifier,
            uptime_s=self._clock() - self._started_at_s,
            generations=now.running,
            queued_generations=now.admitted - now.running,
            queued_blocks=now.queued_blocks,
            rounds=counts["rounds"],
            speculative_rounds=counts["speculative"],
            drafted_tokens=counts["drafted"],
            accepted_tokens=counts["accepted"],
            trimmed_tokens=counts["trimmed"],
            committed_tokens=counts["committed"],
            # The verifier reports its idle time only with its next reply.
            verifier_idle_s=self.idle_s + (self._clock() - self._last_reply_at_s if now.idle else 0.0),
            kv=self.usage,
            phase_seconds=dict(self._phase_s),
            slo=dict(self._slo),
            regime=now.tuner,
            admission=now.admission,
            machine=now.machine,
            target=target,
            links={at.actor_name: LinkReport(csi.rtt_s, csi.up_bps, csi.down_bps) for at, csi in now.links.items()},
            faults=dict(faults or {}),
        )

    def _set_gauges(self, now: GenerationsNow, *, is_ready: bool) -> None:
        usage, sink = self.usage, self.sink
        sink.record(metrics.GENERATIONS, now.running, state="running")
        sink.record(metrics.GENERATIONS, now.admitted - now.running, state="queued")
        sink.record(metrics.QUEUED_BLOCKS, now.queued_blocks)
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

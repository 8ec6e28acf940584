"""Publishes what a coordinator's parts report about themselves, once per heartbeat."""

from collections import Counter
from collections.abc import Callable, Mapping

from actors.messages import DrafterId
from actors.tcp_counts import Carried
from outrider.admission.decisions import AdmissionReport, ClassAdmission
from outrider.contracts.link import Csi
from outrider.selection.drift import RejectionDrift
from outrider.selection.tuning.report import TunerReport
from serve_app import metrics
from serve_app.coordination.drafting.drafter_book import DrafterFigures, ExchangeOutcome
from serve_app.metrics import Metric, Sink

_FAULTS = {
    metrics.DRAFTER_LOSSES.name: "drafter_losses",
    metrics.VERIFIER_LOSSES.name: "verifier_losses",
    metrics.PASS_FAULTS.name: "pass_faults",
    metrics.DRAFTS_GIVEN_UP.name: "drafts_given_up",
    metrics.CORRECTIONS_GIVEN_UP.name: "corrections_given_up",
}


class CoordinatorGauges:
    """Reports count since the start; of these the difference to the last one published is added."""

    def __init__(self, sink: Sink) -> None:
        self.sink = sink
        self._tuner: TunerReport | None = None  # as published last
        self._admission = AdmissionReport()  # likewise

    def record_admission(self, admission: AdmissionReport) -> None:
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

    def record_tuner(self, tuner: TunerReport) -> None:
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
        self.sink.record(metrics.SETTINGS_REFUSED, float(refused), deployment="coordinator")

    def record_drifts(self, drifts: Mapping[str, RejectionDrift]) -> None:
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

    def record_devices(self, worst: Mapping[DrafterId, DrafterFigures]) -> None:
        for drafter, figures in worst.items():
            name = drafter.actor_name
            self.sink.record(metrics.DEVICE_UNANSWERED, figures.unanswered, drafter=name)
            if figures.rtt_s:
                self.sink.record(metrics.DEVICE_RTT_S, figures.rtt_s, drafter=name)
            if figures.step_s:
                self.sink.record(metrics.DEVICE_SPEED, 1.0 / figures.step_s, drafter=name)

    def record_exchanges(self, outcomes: Mapping[tuple[str, ExchangeOutcome], int]) -> None:
        for (group, outcome), count in outcomes.items():
            self.sink.record(metrics.EXCHANGES, count, group=group, outcome=outcome)

    def record_wire(self, groups: Mapping[str, Carried]) -> None:
        for group, carried in groups.items():
            for direction, sent_bytes in (("up", carried.received_bytes), ("down", carried.sent_bytes)):
                self.sink.record(metrics.WIRE_BITS, sent_bytes * 8, group=group, direction=direction)
            self.sink.record(metrics.SENT_SEGMENTS, carried.sent_segments, group=group)
            self.sink.record(metrics.RESENT_SEGMENTS, carried.resent_segments, group=group)


class FaultCounter:
    """Counts faults since the coordinator's start for ``/status``, as an exporter: metrics count the same."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()

    def exporter(self, metric: Metric) -> Callable[[float, dict[str, str]], None] | None:
        name = _FAULTS.get(metric.name)
        return None if name is None else lambda value, _: self._counts.update({name: int(value)})

    @property
    def counts(self) -> dict[str, int]:
        return {name: count for name, count in self._counts.items() if count}

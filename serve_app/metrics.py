"""Defines and publishes every metric.

A metric is recorded into *sinks*: Ray's exporter, which Prometheus scrapes on every node (and which puts ``ray_``
before each name), and on the ingress ``prometheus_client`` as well, for ``/metrics``. Names are the field's own behind
one prefix; units are Prometheus's base units, but for what crosses a link, which is counted in bits as the papers do.
Labels are few and bounded: never a generation, a prompt or a user; an API key by its name in the operator's file,
which is bounded in ``serve_app.api.response_meter``. ``docs/reference/metrics.md`` lists all of them;
panels and alerts are in ``cluster/monitoring``.

Definitions that tools disagree on: acceptance rate is ``accepted / draft`` tokens, over rounds that drafted; mean
acceptance length is ``(accepted + drafts) / drafts``, the verifier's own token included; inter-token latency is the
time between two chunks divided by the tokens of the later one, once for each of these tokens.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import prometheus_client
from ray.util import metrics as ray_metrics

_PREFIX = "outrider_"
_LATENCY_S = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
_LENGTHS = tuple(float(digit * 10**power) for power in range(6) for digit in (1, 2, 5))
_PHASE_S = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 5.0, 30.0)
_BLOCKS = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0)
_SPEEDS = (0.5, 1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0, 24.0, 32.0, 64.0, 128.0)
_WINDOWS = (0.5, 1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0, 32.0, 64.0)
_RATIOS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)


class MetricKind(StrEnum):
    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric; ``boundaries`` are a histogram's upper bounds, without infinity."""

    name: str
    kind: MetricKind
    help: str
    labels: tuple[str, ...] = ()
    boundaries: tuple[float, ...] = ()


def _counter(name: str, text: str, *labels: str) -> Metric:
    return Metric(_PREFIX + name, MetricKind.COUNTER, text, labels)


def _gauge(name: str, text: str, *labels: str) -> Metric:
    return Metric(_PREFIX + name, MetricKind.GAUGE, text, labels)


def _histogram(name: str, text: str, boundaries: Sequence[float], *labels: str) -> Metric:
    return Metric(_PREFIX + name, MetricKind.HISTOGRAM, text, labels, tuple(boundaries))


# Responses, recorded by the ingress.
RESPONSES = _counter("responses_total", "Responses by how they ended: stop, length, cancelled, refused, failed", "end")
RUNNING = _gauge("responses_running", "Responses running")
TTFT_S = _histogram("time_to_first_token_seconds", "From request to first chunk", _LATENCY_S)
FIRST_TOKEN_PHASE_S = _histogram(
    "first_token_phase_seconds",
    "Parts of the time to the first token: read, route (of ingresses), admission, queue, prefill (of coordinators)",
    _LATENCY_S,
    "phase",
)
INTER_TOKEN_S = _histogram("inter_token_latency_seconds", "Between tokens, a chunk's time shared by them", _LATENCY_S)
E2E_S = _histogram("e2e_request_latency_seconds", "From request to last chunk", _LATENCY_S)
PROMPT_TOKENS = _counter("prompt_tokens_total", "Prompt tokens of started responses")
CACHED_TOKENS = _counter("cached_prompt_tokens_total", "Of these, tokens whose KV was resident")
GENERATION_TOKENS = _counter("generation_tokens_total", "Tokens of responses")
PROMPT_LENGTH = _histogram("request_prompt_tokens", "Prompt tokens of a started response", _LENGTHS)
RESPONSE_LENGTH = _histogram("request_generation_tokens", "Tokens of a complete response", _LENGTHS)
RESUMED = _counter(
    "responses_resumed_total", "Times a response moved to another coordinator, from a lost or drained one"
)
CONNECTIONS_CUT = _counter(
    "connections_cut_total",
    "Connections that the ingress's own listener ended, by reason: reader (took nothing of its response), head, body "
    "(not sent in time), full (too many of its address, or of all)",
    "reason",
)

SLO_RESPONSES = _counter(
    "slo_responses_total", "Complete responses that were promised a speed, by whether it was kept", "slo_class", "kept"
)
SLO_BROKEN = _counter(
    "slo_broken_responses_total",
    "Of these, responses slower than promised, by the cause of most of their late rounds: queue, compute",
    "slo_class",
    "cause",
)
RESPONSE_SPEED = _histogram(
    "response_tokens_per_second", "Of complete responses, without their first tokens", _SPEEDS, "slo_class"
)

KEY_TOKENS = _counter(
    "key_tokens_total",
    "Tokens of requests that have ended, by API key: prompt, generation; _others: keys beyond the first 256",
    "key",
    "kind",
)

# Reloadable settings, recorded by ingresses and coordinators.
SETTINGS_REFUSED = _gauge(
    "settings_refused",
    "1: a replica refused the last reloadable settings, and keeps the ones before: ingress, coordinator",
    "deployment",
)

# API keys, recorded by ingresses that ask for one.
KEYS_AGE_S = _gauge("keys_age_seconds", "Since the file of keys was last found to hold the keys in use")
KEYS_REFUSED = _gauge("keys_refused", "1: the file of keys has new content that is invalid, 0: it has not")

# Rounds, recorded by coordinators.
ROUNDS = _counter("rounds_total", "Committed rounds; protocol none: without a draft", "protocol")
DRAFT_TOKENS = _counter("spec_decode_num_draft_tokens_total", "Draft tokens verified", "protocol")
ACCEPTED_TOKENS = _counter("spec_decode_num_accepted_tokens_total", "Draft tokens accepted", "protocol")
DRAFTS = _counter("spec_decode_num_drafts_total", "Rounds that verified a draft", "protocol")
ACCEPTED_AT = _counter(
    "spec_decode_num_accepted_tokens_per_pos_total",
    "Drafts whose token at this position, from 0, was accepted; further positions are not counted",
    "position",
)
DRAFT_WINDOW = _histogram(
    "draft_window_tokens", "Draft tokens of a round, ordered from a device or found by prompt lookup", _WINDOWS
)
LOOKUP_TOKENS = _counter(
    "looked_up_tokens_total",
    "Verified draft tokens of n-gram drafts: accepted, rejected",
    "outcome",
)
JUDGED_TOKENS = _counter("judged_tokens_total", "Mismatches that a decision head judged: passed, rejected", "outcome")
HEAD_DRIFT = _gauge(
    "decision_head_drifted", "1: a draft model's head rejects another share than at calibration", "model"
)
WASTED_DRAFT_S = _counter(
    "wasted_draft_seconds_total", "Drafters' seconds spent on rejected tokens, and on drafts of none"
)
PHASE_S = _histogram(
    "round_phase_seconds",
    "Time of rounds by phase, autonomous ones apart: draft, link, queue, verify, orchestration",
    _PHASE_S,
    "phase",
)
BATCHES = _counter("verify_batches_total", "Steps of the verifier, by why they have no more blocks", "reason")
BATCH_BLOCKS = _histogram("verify_batch_blocks", "Blocks verified together in a step", _BLOCKS)
COST_ERROR = _histogram(
    "verify_cost_error_ratio", "Of the predicted time of a step: |predicted - measured| / measured", _RATIOS
)
PREDICTED_S = _counter("verify_predicted_seconds_total", "Time of steps with blocks, as the cost model predicted it")
MEASURED_S = _counter("verify_measured_seconds_total", "Time of the same steps, as it was measured")
PREFIX_TOKENS = _counter(
    "prefix_cache_tokens_total",
    "Prompt tokens of begun responses, by whether their KV was resident: hit, miss",
    "outcome",
)
VERIFIER_READY = _gauge("verifier_ready", "1: a coordinator's verifier answers, 0: it is being started")
VERIFIER_IDLE_S = _counter("verifier_idle_seconds_total", "Time in which the verifier had nothing to do")
GENERATIONS = _gauge("generations", "Generations at a coordinator: running, queued", "state")
QUEUED_BLOCKS = _gauge("queued_blocks", "Blocks that wait for a step")
KV_BLOCKS = _gauge("kv_blocks", "The verifier's KV memory: used, cached, free", "state")
KV_EVICTIONS = _counter(
    "kv_evictions_total", "Times KV of a generation was evicted, by whether its response has a deadline", "owed"
)
KV_EVICTED_BLOCKS = _counter("kv_evicted_blocks_total", "KV blocks evicted so")
KV_RECOMPUTED_TOKENS = _counter("kv_recomputed_tokens_total", "Positions computed again because of that")
KV_SWAPPED_BLOCKS = _counter(
    "kv_swapped_blocks_total", "KV blocks copied to host memory (out), or back from there (in)", "direction"
)
KV_HOST_BLOCKS = _gauge("kv_host_blocks", "Host memory for evicted KV, in blocks: used, free", "state")
ADMISSION_WAIT_S = _histogram("admission_wait_seconds", "Time that admitted responses waited", _LATENCY_S, "slo_class")
NOT_ADMITTED = _counter(
    "responses_not_admitted_total",
    "Refused responses, by the last class they could have had and what was short: load, memory, places, queue",
    "slo_class",
    "reason",
)
SUSPENDED = _counter("responses_suspended_total", "Times that a best-effort response was suspended for a promise")
STALLED = _counter(
    "responses_stalled_total", "Times that a response gave its place back, as its client did not read for seconds"
)
ADMITTED = _counter("responses_admitted_total", "Admitted responses, by the class they were given", "slo_class")
LOWERED = _counter("responses_lowered_total", "Of these, responses that would have preferred this class", "slo_class")
ENDED_KEPT = _counter(
    "responses_ended_total", "Responses that completed, by whether the promise was kept", "slo_class", "kept"
)
PROMISED_LOAD = _gauge("promised_load", "Verifier seconds per second, of promises: needed, allowed", "state")
QUEUED_RESPONSES = _gauge("queued_responses", "Responses that wait for admission", "slo_class")
PASS_FAULTS = _counter(
    "pass_faults_total",
    "Failed passes of the verifier, by kind: pass (of a block), memory, device (the accelerator), lost, "
    "non_finite (of a response)",
    "kind",
)
VERIFIER_LOSSES = _counter("verifier_losses_total", "Rounds lost because the verifier died or hung")
SLO_ROUNDS = _counter("slo_rounds_total", "Rounds of responses that were promised a speed", "slo_class")
SLO_LATE_ROUNDS = _counter(
    "slo_late_rounds_total", "Of these, rounds slower than promised, by cause: queue, compute", "slo_class", "cause"
)
SLO_BEHIND = _counter("slo_behind_total", "Rounds after which a response was slower than promised", "slo_class")
DRAFTER_LOSSES = _counter("drafter_losses_total", "Generations whose drafter failed")
PAYLOAD_BITS = _counter(
    "payload_bits_total", "Bits of messages of rounds, by protocol and direction: up, down", "protocol", "direction"
)
WIRE_BITS = _counter(
    "wire_bits_total",
    "Bits of all IP packets between coordinators and a group's drafters, as TCP counts them: calls around messages, "
    "headers and retransmissions included",
    "group",
    "direction",
)
SENT_SEGMENTS = _counter("link_sent_segments_total", "TCP segments sent to a group's drafters, with data", "group")
RESENT_SEGMENTS = _counter("link_resent_segments_total", "Of these, retransmissions", "group")
UP_SENT_SEGMENTS = _counter(
    "link_up_sent_segments_total", "TCP segments with data that a group's drafters sent up, as they report", "group"
)
UP_RESENT_SEGMENTS = _counter("link_up_resent_segments_total", "Of these, retransmissions, as they report", "group")
EXCHANGES = _counter(
    "drafter_exchanges_total",
    "Messages to a group's drafters that need an answer, by outcome: answered, silent, gone, broken",
    "group",
    "outcome",
)
CANDIDATE_FALLBACKS = _counter("candidate_fallbacks_total", "Corrections for which no candidate was accepted")
CORRECTIONS_GIVEN_UP = _counter("corrections_given_up_total", "Corrections drawn inexactly, as their drafter was lost")
TUNER_MODE = _gauge("regime_arm", "Speculation mode of the verifier: 1 for the one in use", "arm")
TUNER_CHANGES = _counter("regime_changes_total", "Times another mode was measured to be faster, and kept")
TUNER_PROBES = _counter("regime_probes_total", "Probes of a mode other than the kept one", "arm")
TUNER_PROBES_LOST_S = _counter(
    "regime_probes_lost_seconds_total", "Cost of probes, in seconds of all active responses' time"
)
TUNER_ACTIVE_S = _counter("regime_active_seconds_total", "Time in which responses were active, without that cost")
TUNER_REWARD = _gauge(
    "regime_reward_tokens_per_second", "Measured speed of a response under a mode at the present load", "arm"
)
TUNER_LOSS = _gauge(
    "regime_loss_ratio",
    "Share of the kept mode's speed that this one was measured to lose at the present load; below 0: to gain",
    "arm",
)
DRAFTS_GIVEN_UP = _counter("drafts_given_up_total", "Drafts that had to be used and never arrived: inexact rounds")
LINK_RATE_BPS = _gauge(
    "link_rate_bits_per_second", "Measured rate of a group's links, the slowest: up, down", "group", "direction"
)
LINK_RTT_S = _gauge("link_rtt_seconds", "Measured round-trip time of a group's links, the longest", "group")
DEVICE_RTT_S = _gauge("device_rtt_seconds", "Measured round-trip time of the devices with the worst figures", "drafter")
DEVICE_SPEED = _gauge(
    "device_draft_tokens_per_second", "Of these, forward passes per second of drafting: a chain's tokens", "drafter"
)
DEVICE_UNANSWERED = _gauge(
    "device_unanswered_ratio", "Of these, moving average of messages without a valid answer in time", "drafter"
)
DEVICE_STRIKES = _gauge(
    "device_strikes", "Times taken out, forgotten after 300 s without, of the eight with most", "drafter"
)
GATEWAYS = _gauge("gateways", "Gateways that devices dial in to: wanted, running", "state")
DRAFTERS = _gauge("drafters", "Drafters by group and state: starting, ready, suspect, refused", "group", "state")
REFUSED_DIALS = _counter("refused_dials_total", "Dials of devices that gateways refused, by reason", "reason")
LEASES = _gauge("drafter_leases", "Generations leased to the drafters of a group", "group")

ALL: tuple[Metric, ...] = tuple(value for value in list(globals().values()) if isinstance(value, Metric))


_Record = Callable[[float, dict[str, str]], None]


class Sink:
    """Passes values to exporters. An exporter learns of a metric with its first value, and may ignore the metric."""

    def __init__(self, *exporters: Callable[[Metric], _Record | None]) -> None:
        self._exporters = exporters
        self._records: dict[str, list[_Record]] = {}

    def record(self, metric: Metric, value: float = 1.0, **labels: str) -> None:
        """Add to a counter, set a gauge, or observe in a histogram."""
        records = self._records.get(metric.name)
        if records is None:
            made = [exporter(metric) for exporter in self._exporters]
            records = self._records[metric.name] = [record for record in made if record is not None]
        for record in records:
            record(value, labels)


def in_ray(metric: Metric) -> _Record:
    """Export a metric by Ray's exporter, which has one port on every node."""
    match metric.kind:
        case MetricKind.COUNTER:
            counter = ray_metrics.Counter(metric.name, metric.help, metric.labels)
            return lambda value, labels: counter.inc(value, labels) if value > 0 else None  # Ray refuses to add 0
        case MetricKind.GAUGE:
            return ray_metrics.Gauge(metric.name, metric.help, metric.labels).set
        case MetricKind.HISTOGRAM:
            return ray_metrics.Histogram(metric.name, metric.help, list(metric.boundaries), metric.labels).observe


def in_prometheus(registry: prometheus_client.CollectorRegistry, metric: Metric) -> _Record:
    """Export a metric to a registry of this process, for Prometheus's text format."""
    name, text, labelled = metric.name, metric.help, metric.labels
    match metric.kind:
        case MetricKind.COUNTER:
            counter = prometheus_client.Counter(name, text, labelled, registry=registry)
            return lambda value, labels: (counter.labels(**labels) if labelled else counter).inc(value)
        case MetricKind.GAUGE:
            gauge = prometheus_client.Gauge(name, text, labelled, registry=registry)
            return lambda value, labels: (gauge.labels(**labels) if labelled else gauge).set(value)
        case MetricKind.HISTOGRAM:
            times = prometheus_client.Histogram(name, text, labelled, buckets=metric.boundaries, registry=registry)
            return lambda value, labels: (times.labels(**labels) if labelled else times).observe(value)


class _OfReplica:
    """A registry that labels each sample with its replica: behind a balancer the next page is another replica's."""

    def __init__(self, registry: prometheus_client.CollectorRegistry, replica: str) -> None:
        self._registry, self._replica = registry, replica

    def collect(self) -> Iterator[Any]:
        for family in self._registry.collect():
            own = {"replica": self._replica}
            family.samples = [sample._replace(labels={**sample.labels, **own}) for sample in family.samples]
            yield family


def page_of(registry: prometheus_client.CollectorRegistry, replica: str) -> bytes:
    """Return a registry in Prometheus's text format, each sample labelled with ``replica`` unless that is empty."""
    source: Any = _OfReplica(registry, replica) if replica else registry
    return prometheus_client.generate_latest(source)

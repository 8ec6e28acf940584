"""Prometheus's rules: what vLLM calls our metrics, what is worth keeping, and what somebody has to be told."""

from dataclasses import dataclass, field
from typing import Any

from cluster.monitoring.drawing.promql import (
    CLUSTER_LABEL,
    COORDINATOR_LABEL,
    NOT_READY,
    READY,
    named,
    quantile,
    series,
)
from serve_app import metrics as m
from serve_app.metrics import Kind, Metric

OBJECTIVE = 0.95  # of promised responses come as promised
_BUDGET = 1.0 - OBJECTIVE
_WINDOWS = ("5m", "30m", "1h", "6h", "3d")
_LEAST_RESPONSES = 20  # in an hour: of fewer one broken promise would be a crisis
_BY = CLUSTER_LABEL
_BY_CLASS = f"{_BY}, slo_class"
_MODEL = {"model_name": "outrider"}


@dataclass(frozen=True, slots=True)
class Recording:
    """A value that is kept under a name of its own."""

    record: str
    expr: str
    labels: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Alert:
    """Something somebody has to be told.

    Attributes:
        severity: ``page`` (now), ``ticket`` (in working hours).
        wait: it has to be so for so long.
        summary: in one line; ``{{ $labels.x }}`` and ``{{ $value }}`` are what was found.
        board: the dashboard that shows it.
    """

    name: str
    expr: str
    severity: str
    wait: str
    summary: str
    board: str


def _sum(counter: Metric, over: str, *where: str, by: str = _BY) -> str:
    return f"sum by ({by}) (rate({series(counter, *where)}[{over}]))"


def _happened(counter: Metric, over: str, *labels: str) -> str:
    """How often in this time. A counter is absent before its first event, which no increase shows: that counts too."""
    name = named(counter)
    within, first = f"increase({name}[{over}])", f"({name} unless {name} offset {over})"
    return f"sum by ({', '.join((_BY, *labels))}) ({within} > 0 or {first})"


# --- what vLLM calls them ---

_COUNTERS_OF_VLLM = {
    "spec_decode_num_drafts_total": m.DRAFTS,
    "spec_decode_num_draft_tokens_total": m.DRAFT_TOKENS,
    "spec_decode_num_accepted_tokens_total": m.ACCEPTED_TOKENS,
    "spec_decode_num_accepted_tokens_per_pos_total": m.ACCEPTED_AT,
    "prompt_tokens_total": m.PROMPT_TOKENS,
    "generation_tokens_total": m.GENERATION_TOKENS,
    "prefix_cache_queries_total": m.PROMPT_TOKENS,
    "prefix_cache_hits_total": m.CACHED_TOKENS,
}
_HISTOGRAMS_OF_VLLM = {
    "time_to_first_token_seconds": m.TTFT_S,
    "inter_token_latency_seconds": m.INTER_TOKEN_S,
    "e2e_request_latency_seconds": m.E2E_S,
}


def _as_vllm() -> list[Recording]:
    renamed = {f"vllm:{name}": named(metric) for name, metric in _COUNTERS_OF_VLLM.items()}
    for name, metric in _HISTOGRAMS_OF_VLLM.items():
        assert metric.kind is Kind.HISTOGRAM
        renamed |= {f"vllm:{name}{end}": named(metric, end) for end in ("_bucket", "_sum", "_count")}
    used, kv = series(m.KV_BLOCKS, 'state="used"'), named(m.KV_BLOCKS)
    per_process = f"{_BY}, {COORDINATOR_LABEL}"
    ended = series(m.RESPONSES, 'end=~"stop|length"')
    renamed |= {
        "vllm:num_requests_running": series(m.GENERATIONS, 'state="running"'),
        "vllm:num_requests_waiting": series(m.GENERATIONS, 'state="queued"'),
        "vllm:kv_cache_usage_perc": f"sum by ({per_process}) ({used}) / sum by ({per_process}) ({kv})",
        "vllm:request_success_total": f'label_replace({ended}, "finished_reason", "$1", "end", "(.*)")',
    }
    return [Recording(name, expr, _MODEL) for name, expr in renamed.items()]


# --- what is worth keeping ---


def _broken(window: str) -> str:
    return f"outrider:promises_broken:ratio_rate{window}"


def _kept() -> list[Recording]:
    shares = []
    for window in _WINDOWS:
        whole = _sum(m.SLO_RESPONSES, window, by=_BY_CLASS)
        part = _sum(m.SLO_RESPONSES, window, 'kept="no"', by=_BY_CLASS)
        shares.append(Recording(_broken(window), f"({part} or 0 * {whole}) / {whole}"))
    accepted, drafts = _sum(m.ACCEPTED_TOKENS, "5m"), _sum(m.DRAFTS, "5m")
    cached, prompts = _sum(m.CACHED_TOKENS, "5m"), _sum(m.PROMPT_TOKENS, "5m")
    process = f"{_BY}, {COORDINATOR_LABEL}"
    return [
        *shares,
        Recording("outrider:draft_acceptance:ratio_rate5m", f"{accepted} / {_sum(m.DRAFT_TOKENS, '5m')}"),
        Recording("outrider:accepted_length:rate5m", f"1 + {accepted} / {drafts}"),
        Recording("outrider:output_from_drafts:ratio_rate5m", f"{accepted} / {_sum(m.GENERATION_TOKENS, '5m')}"),
        Recording("outrider:prompt_cache_hits:ratio_rate5m", f"{cached} / {prompts}"),
        Recording("outrider:first_token_seconds:p99_5m", quantile(0.99, m.TTFT_S, by=_BY, over="5m")),
        Recording("outrider:inter_token_seconds:p99_5m", quantile(0.99, m.INTER_TOKEN_S, by=_BY, over="5m")),
        Recording("outrider:goodput_responses:rate5m", _sum(m.SLO_RESPONSES, "5m", 'kept="yes"', by=_BY_CLASS)),
        Recording(
            "outrider:pass_measured_to_predicted:ratio_rate10m",
            f"{_sum(m.MEASURED_S, '10m', by=process)} / {_sum(m.PREDICTED_S, '10m', by=process)}",
        ),
        Recording("outrider:verifier_busy:ratio_rate5m", f"1 - {_sum(m.VERIFIER_IDLE_S, '5m', by=process)}"),
    ]


# --- what somebody has to be told ---


def _burn(factor: float, long: str, short: str) -> str:
    """Promises are broken so many times as fast as the objective allows, lately and still."""
    limit = f"{factor * _BUDGET:g}"
    return f"({_broken(long)} > {limit} and {_broken(short)} > {limit})"


_FAILED = 'end="failed"'
_ENOUGH = f"sum by ({_BY_CLASS}) (increase({named(m.SLO_RESPONSES)}[1h])) >= {_LEAST_RESPONSES}"
_DRAFTERS = f"max by ({_BY}, group, state) ({named(m.DRAFTERS)})"
_MISSING = f"max by ({_BY}, group, state) ({series(m.DRAFTERS, NOT_READY)})"
_READY = f"sum by ({_BY}) (max by ({_BY}, group) ({series(m.DRAFTERS, READY)}))"
_WITH_DEVICES = series(m.REGIME_LOSS, 'arm=~"draft|lookup_draft"')
_QUEUED, _RUNNING = (
    f"sum by ({_BY}) ({series(m.GENERATIONS, state)})" for state in ('state="queued"', 'state="running"')
)
_REFUSED, _BEGUN = _sum(m.NOT_ADMITTED, "10m"), _sum(m.ADMITTED, "10m")
_COMPUTED = f"({_sum(m.PROMPT_TOKENS, '10m')} + {_sum(m.GENERATION_TOKENS, '10m')})"

ALERTS = (
    Alert(
        "OutriderVerifierDown",
        f"min by ({_BY}, {COORDINATOR_LABEL}) ({named(m.VERIFIER_READY)}) == 0",
        "page",
        "3m",
        "A verifier has not answered for minutes: its responses stand still.",
        "verifier",
    ),
    Alert(
        "OutriderNothingExported",
        f"absent({named(m.VERIFIER_READY)})",
        "page",
        "5m",
        "No coordinator exports anything: the service is gone, or it is not scraped.",
        "overview",
    ),
    Alert(
        "OutriderResponsesFail",
        f"{_sum(m.RESPONSES, '5m', _FAILED)} / {_sum(m.RESPONSES, '5m')} > 0.01",
        "page",
        "5m",
        "{{ $value | humanizePercentage }} of responses fail with a server error.",
        "overview",
    ),
    Alert(
        "OutriderPromisesBurnFast",
        f"({_burn(14.4, '1h', '5m')} or {_burn(6.0, '6h', '30m')}) and {_ENOUGH}",
        "page",
        "2m",
        "{{ $value | humanizePercentage }} of promises of {{ $labels.slo_class }} are broken: "
        "the month's budget is gone within days.",
        "overview",
    ),
    Alert(
        "OutriderPromisesBurnSlowly",
        f"{_burn(1.0, '3d', '6h')} and {_ENOUGH}",
        "ticket",
        "1h",
        "{{ $value | humanizePercentage }} of promises of {{ $labels.slo_class }} were broken over three days.",
        "overview",
    ),
    Alert(
        "OutriderDraftingNetLoss",
        f"(min by ({_BY}, {COORDINATOR_LABEL}) ({_WITH_DEVICES}) > 0.03) and on ({_BY}) ({_READY} > 0)",
        "ticket",
        "30m",
        "Drafting by devices was measured to lose {{ $value | humanizePercentage }} against what is in use.",
        "speculation",
    ),
    Alert(
        "OutriderCostModelOff",
        "abs(outrider:pass_measured_to_predicted:ratio_rate10m - 1) > 0.5",
        "ticket",
        "15m",
        "Passes take other times than predicted, by {{ $value | humanizePercentage }} on average.",
        "verifier",
    ),
    Alert(
        "OutriderDraftersMissing",
        f"sum by ({_BY}, group) ({_MISSING}) / sum by ({_BY}, group) ({_DRAFTERS}) > 0.25",
        "ticket",
        "10m",
        "{{ $value | humanizePercentage }} of the drafters of {{ $labels.group }} cannot be leased.",
        "fleet",
    ),
    Alert(
        "OutriderDraftersLost",
        f"{_happened(m.DRAFTER_LOSSES, '15m')} > 3",
        "ticket",
        "0m",
        "{{ $value | humanize }} times in 15 minutes a response lost its drafter.",
        "fleet",
    ),
    Alert(
        "OutriderPassesFail",
        f"{_happened(m.PASS_FAULTS, '15m', 'kind')} >= 3",
        "ticket",
        "0m",
        "{{ $value | humanize }} passes of the verifier went wrong in 15 minutes: {{ $labels.kind }}.",
        "verifier",
    ),
    Alert(
        "OutriderQueueGrows",
        f"{_QUEUED} > {_RUNNING} and {_QUEUED} > ({_QUEUED.replace('})', '} offset 5m)')})",
        "ticket",
        "10m",
        "{{ $value }} responses wait for a place, more than are being made, and the queue grows.",
        "overview",
    ),
    Alert(
        "OutriderResponsesRefused",
        f"{_REFUSED} / ({_REFUSED} + ({_BEGUN} or 0 * {_REFUSED})) > 0.1",
        "ticket",
        "10m",
        "{{ $value | humanizePercentage }} of responses find no room.",
        "overview",
    ),
    Alert(
        "OutriderKvPressure",
        f"{_sum(m.KV_RECOMPUTED_TOKENS, '10m')} / {_COMPUTED} > 0.1",
        "ticket",
        "10m",
        "For each token asked for, {{ $value | humanize }} are computed again because their KV was evicted.",
        "verifier",
    ),
    Alert(
        "OutriderHeadDrifted",
        f"max by ({_BY}, model) ({named(m.HEAD_DRIFT)}) == 1",
        "ticket",
        "5m",
        "The decision head of {{ $labels.model }} lets other shares pass than when calibrated: it judges no more.",
        "speculation",
    ),
)


def as_dict() -> dict[str, Any]:
    """Prometheus's rule file."""
    return {
        "groups": [
            {"name": "outrider-as-vllm", "rules": [_recorded(rule) for rule in _as_vllm()]},
            {"name": "outrider-kept", "rules": [_recorded(rule) for rule in _kept()]},
            {"name": "outrider-alerts", "rules": [_alert(alert) for alert in ALERTS]},
        ]
    }


def _recorded(rule: Recording) -> dict[str, Any]:
    return {"record": rule.record, "expr": rule.expr} | ({"labels": rule.labels} if rule.labels else {})


def _alert(alert: Alert) -> dict[str, Any]:
    return {
        "alert": alert.name,
        "expr": alert.expr,
        "for": alert.wait,
        "labels": {"severity": alert.severity},
        "annotations": {
            "summary": alert.summary,
            "runbook": f"docs/runbook.md#{alert.name.lower()}",
            "dashboard": f"/d/outrider-{alert.board}",
        },
    }

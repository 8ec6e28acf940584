"""Prometheus recording rules: metrics under vLLM's names where they mean the same, and expensive expressions."""

from dataclasses import dataclass, field

from lab.dashboards.promql import BY_CLASS, BY_CLUSTER, BY_PROCESS, broken, named, quantile, series, summed
from serve_app import metrics as m
from serve_app.metrics import MetricKind

_WINDOWS = ("5m", "30m", "1h", "6h", "3d")
_MODEL = {"model_name": "outrider"}


@dataclass(frozen=True, slots=True)
class Recording:
    record: str
    expr: str
    labels: dict[str, str] = field(default_factory=dict)


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
    "request_prompt_tokens": m.PROMPT_LENGTH,
    "request_generation_tokens": m.RESPONSE_LENGTH,
}


def as_vllm() -> list[Recording]:
    """Rename to vLLM's names, series by series, so that rates and quantiles over them are right."""
    renamed = {f"vllm:{name}": named(metric) for name, metric in _COUNTERS_OF_VLLM.items()}
    for name, metric in _HISTOGRAMS_OF_VLLM.items():
        assert metric.kind is MetricKind.HISTOGRAM
        renamed |= {f"vllm:{name}{end}": named(metric, end) for end in ("_bucket", "_sum", "_count")}
    used, kv = series(m.KV_BLOCKS, 'state="used"'), named(m.KV_BLOCKS)
    ended = series(m.RESPONSES, 'end=~"stop|length"')
    renamed |= {
        "vllm:num_requests_running": series(m.GENERATIONS, 'state="running"'),
        "vllm:num_requests_waiting": series(m.GENERATIONS, 'state="queued"'),
        "vllm:kv_cache_usage_perc": f"sum by ({BY_PROCESS}) ({used}) / sum by ({BY_PROCESS}) ({kv})",
        "vllm:request_success_total": f'label_replace({ended}, "finished_reason", "$1", "end", "(.*)")',
    }
    return [Recording(name, expr, _MODEL) for name, expr in renamed.items()]


def kept() -> list[Recording]:
    """Expressions that would be slow over days, or are used often."""
    shares = []
    for window in _WINDOWS:
        whole = summed(m.SLO_RESPONSES, window, by=BY_CLASS)
        part = summed(m.SLO_RESPONSES, window, 'kept="no"', by=BY_CLASS)
        shares.append(Recording(broken(window), f"({part} or 0 * {whole}) / {whole}"))
    accepted, drafts = summed(m.ACCEPTED_TOKENS, "5m"), summed(m.DRAFTS, "5m")
    cached, prompts = summed(m.CACHED_TOKENS, "5m"), summed(m.PROMPT_TOKENS, "5m")
    return [
        *shares,
        Recording("outrider:draft_acceptance:ratio_rate5m", f"{accepted} / {summed(m.DRAFT_TOKENS, '5m')}"),
        Recording("outrider:accepted_length:rate5m", f"1 + {accepted} / {drafts}"),
        Recording("outrider:output_from_drafts:ratio_rate5m", f"{accepted} / {summed(m.GENERATION_TOKENS, '5m')}"),
        Recording("outrider:prompt_cache_hits:ratio_rate5m", f"{cached} / {prompts}"),
        Recording("outrider:first_token_seconds:p99_5m", quantile(0.99, m.TTFT_S, by=BY_CLUSTER, over="5m")),
        Recording("outrider:inter_token_seconds:p99_5m", quantile(0.99, m.INTER_TOKEN_S, by=BY_CLUSTER, over="5m")),
        Recording("outrider:goodput_responses:rate5m", summed(m.SLO_RESPONSES, "5m", 'kept="yes"', by=BY_CLASS)),
        Recording(
            "outrider:pass_measured_to_predicted:ratio_rate10m",
            f"{summed(m.MEASURED_S, '10m', by=BY_PROCESS)} / {summed(m.PREDICTED_S, '10m', by=BY_PROCESS)}",
        ),
        Recording("outrider:verifier_busy:ratio_rate5m", f"1 - {summed(m.VERIFIER_IDLE_S, '5m', by=BY_PROCESS)}"),
    ]

"""An ingress's load under vLLM's names, which endpoint pickers (llm-d, Gateway API), KEDA and routers read."""

from collections.abc import Iterable

from prometheus_client import CollectorRegistry, Gauge, generate_latest

from outrider.contracts.verifying import KvUsage

WAITING, RUNNING, KV_USAGE = "vllm:num_requests_waiting", "vllm:num_requests_running", "vllm:kv_cache_usage_perc"


def fullest(usages: Iterable[KvUsage | None]) -> float | None:
    """Share of KV that responses hold at the verifier with least room, 0 to 1; None if none has told."""
    shares = [usage.used_blocks / usage.total_blocks for usage in usages if usage is not None and usage.total_blocks]
    return max(shares, default=None)


def engine_page(model: str, *, waiting: int, running: int, kv_usage: float | None) -> bytes:
    """The gauges in Prometheus's text format, labelled with the served model's name."""
    registry = CollectorRegistry()
    for name, about, value in (
        (WAITING, "Responses of this ingress that have no token yet.", waiting),
        (RUNNING, "Responses of this ingress that have begun.", running),
        (KV_USAGE, "KV that responses hold at the fullest verifier; 1 is all.", kv_usage),
    ):
        if value is not None:
            Gauge(name, about, ["model_name"], registry=registry).labels(model).set(value)
    return generate_latest(registry)

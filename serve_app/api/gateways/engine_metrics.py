"""An ingress's load under vLLM's names, which endpoint pickers (llm-d, Gateway API), KEDA and routers read."""

from collections.abc import Iterable, Iterator

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily

from outrider.contracts.verifying import KvUsage

WAITING, RUNNING, KV_USAGE = "vllm:num_requests_waiting", "vllm:num_requests_running", "vllm:kv_cache_usage_perc"


def fullest(usages: Iterable[KvUsage | None]) -> float | None:
    """Share of KV that responses hold at the verifier with least room, 0 to 1; None if none has told."""
    shares = [usage.used_blocks / usage.total_blocks for usage in usages if usage is not None and usage.total_blocks]
    return max(shares, default=None)


def engine_page(model: str, *, waiting: int, running: int, kv_usage: float | None) -> bytes:
    """The gauges in Prometheus's text format, labelled with the served model's name."""

    class _Gauges:
        def collect(self) -> Iterator[GaugeMetricFamily]:
            for name, about, value in (
                (WAITING, "Responses of this ingress that have no token yet.", float(waiting)),
                (RUNNING, "Responses of this ingress that have begun.", float(running)),
                (KV_USAGE, "KV that responses hold at the fullest verifier; 1 is all.", kv_usage),
            ):
                if value is not None:
                    family = GaugeMetricFamily(name, about, labels=["model_name"])
                    family.add_metric([model], value)
                    yield family

    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Gauges())
    return generate_latest(registry)

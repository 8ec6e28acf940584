"""Write the monitoring files into a folder, for an operator's own Prometheus and Grafana."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from outrider.documents.whole_file import write_whole

FOLDER = Path(__file__).parent
DISCOVERY_FILE = "/tmp/ray/prom_metrics_service_discovery.json"  # noqa: S108 (where Ray writes it)
PROMETHEUS_URL = "http://127.0.0.1:9090"
CLUSTER_NAME = "outrider"
MODEL_NAME = "outrider"
RUNBOOK = "docs/how-to/runbook.md"
_DASHBOARDS = "/etc/outrider/monitoring/dashboards"  # path used in the packaged files
_KINDS = {".json", ".yaml"}


@dataclass(frozen=True, slots=True)
class MonitoringTargets:
    discovery: str = DISCOVERY_FILE  # the file in which Ray keeps the addresses of its exporters, on the head
    prometheus_url: str = PROMETHEUS_URL  # where Grafana finds Prometheus
    cluster: str = CLUSTER_NAME  # name that Prometheus adds to everything it scrapes, as the label ``ray_io_cluster``
    model: str = MODEL_NAME  # the label ``model_name`` of what is recorded under vLLM's names
    runbook: str = RUNBOOK  # where alerts lead: the address of that page, wherever an operator has it


def packaged() -> Iterator[Path]:
    for file in sorted(FOLDER.rglob("*")):
        if file.suffix in _KINDS:
            yield file.relative_to(FOLDER)


def write(out: Path, places: MonitoringTargets) -> list[Path]:
    """Write the files into a folder, creating it if needed; return their paths."""
    replaced = {
        DISCOVERY_FILE: places.discovery,
        PROMETHEUS_URL: places.prometheus_url,
        _DASHBOARDS: str((out / "dashboards").resolve()),
        f"replacement: {CLUSTER_NAME}": f"replacement: {places.cluster}",
        f"runbook_url: {RUNBOOK}": f"runbook_url: {places.runbook}",
        f"model_name: {MODEL_NAME}": f"model_name: {places.model}",
    }
    written = []
    for path in packaged():
        text = (FOLDER / path).read_text(encoding="utf-8")
        if path.suffix == ".yaml":
            for packaged_value, own in replaced.items():
                text = text.replace(packaged_value, own)
        file = out / path
        write_whole(file, text)
        written.append(file)
    return written

"""Run Prometheus, and Grafana if it is installed, on written files: on this machine, until Ctrl-C."""

import os
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from cluster.monitoring.files import MonitoringTargets
from outrider.contracts.errors import ParameterError

_GRAFANA_HOMES = ("/usr/share/grafana", "/opt/grafana")
_GRAFANA_URL = "http://127.0.0.1:3000"
_STOPS_WITHIN_S = 20.0
_LOOKED_AFTER_S = 0.5


def run_until_interrupted(out: Path, places: MonitoringTargets) -> None:
    """Start both and wait."""
    with ExitStack() as stack:
        prometheus = stack.enter_context(prometheus_over(out, places.prometheus_url))
        print(f"Prometheus: {places.prometheus_url}, alerts at {places.prometheus_url}/alerts", flush=True)
        grafana = grafana_command()
        if grafana is None:
            print("Grafana: not installed; its files are in", out / "grafana", flush=True)
        else:
            stack.enter_context(_process(grafana, out / "grafana.log", grafana_settings(out)))
            print(f"Grafana: {_GRAFANA_URL}/dashboards", flush=True)
        while prometheus.poll() is None:
            time.sleep(_LOOKED_AFTER_S)
        said = (out / "prometheus.log").read_text(encoding="utf-8").strip().splitlines()
        raise ParameterError("prometheus", "to keep running", said[-1] if said else "no output")


@contextmanager
def prometheus_over(out: Path, url: str) -> Iterator["subprocess.Popen[bytes]"]:
    """Run Prometheus with the folder's configuration while the block is open; its data and log are in the folder."""
    program = shutil.which("prometheus")
    if program is None:
        raise ParameterError("prometheus", "an installed program (Debian's package of that name)", "none in PATH")
    command = [
        program,
        f"--config.file={out / 'prometheus.yaml'}",
        f"--storage.tsdb.path={out / 'data'}",
        f"--web.listen-address={urlsplit(url).netloc}",
    ]
    with _process(command, out / "prometheus.log", {}) as process:
        yield process


def grafana_command() -> list[str] | None:
    """The command that starts Grafana here; None if it is not installed."""
    program = shutil.which("grafana-server") or shutil.which("grafana")
    if program is None:
        return None
    home = next((home for home in _GRAFANA_HOMES if Path(home).is_dir()), None)
    named = [] if home is None else [f"--homepath={home}"]
    return [program, *([] if program.endswith("-server") else ["server"]), *named]


def grafana_settings(out: Path) -> dict[str, str]:
    """Grafana's settings as environment variables: readable without a login, from this machine only."""
    return {
        "GF_PATHS_PROVISIONING": str((out / "grafana" / "provisioning").resolve()),
        "GF_PATHS_DATA": str((out / "grafana" / "data").resolve()),
        "GF_SERVER_HTTP_ADDR": "127.0.0.1",
        "GF_AUTH_ANONYMOUS_ENABLED": "true",
        "GF_ANALYTICS_REPORTING_ENABLED": "false",
    }


@contextmanager
def _process(command: Sequence[str], log: Path, settings: Mapping[str, str]) -> Iterator["subprocess.Popen[bytes]"]:
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, env={**os.environ, **settings})
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(_STOPS_WITHIN_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

"""Write Grafana dashboards, Prometheus rules and alerts, and the configuration that provisions them."""

import argparse
from pathlib import Path

from cluster.monitoring.files import DISCOVERY_FILE, MonitoringTargets, write

_USUAL = MonitoringTargets()


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.description = __doc__
    parser.add_argument("--out", type=Path, required=True, metavar="FOLDER", help="created if needed")
    parser.add_argument(
        "--discovery",
        metavar="FILE",
        help=f"file with the addresses of Ray's exporters (default: {DISCOVERY_FILE}, Ray's own; with --start that of "
        "`outrider serve` on this machine)",
    )
    parser.add_argument(
        "--prometheus", default=_USUAL.prometheus_url, metavar="URL", help="its URL for Grafana (default: %(default)s)"
    )
    parser.add_argument(
        "--cluster", default=_USUAL.cluster, metavar="NAME", help="the label ray_io_cluster (default: %(default)s)"
    )
    parser.add_argument(
        "--model",
        default=_USUAL.model,
        metavar="NAME",
        help="the label model_name of vLLM's names: what you serve (default: %(default)s)",
    )
    parser.add_argument(
        "--runbook",
        default=_USUAL.runbook,
        metavar="URL",
        help="of your copy of it, for alerts to lead to (default: %(default)s)",
    )
    parser.add_argument(
        "--start", action="store_true", help="start Prometheus with them, and Grafana if it is installed, until Ctrl-C"
    )


def run(arguments: argparse.Namespace) -> None:
    out: Path = arguments.out
    discovery = arguments.discovery or _discovery(local=arguments.start)
    places = MonitoringTargets(discovery, arguments.prometheus, arguments.cluster, arguments.model, arguments.runbook)
    for file in write(out, places):
        print(file)
    if arguments.start:
        from cluster.monitoring.running import run_until_interrupted

        run_until_interrupted(out, places)


def _discovery(*, local: bool) -> str:
    if not local:
        return DISCOVERY_FILE
    from cluster.private_ray import private_folder

    return str(private_folder() / Path(DISCOVERY_FILE).name)

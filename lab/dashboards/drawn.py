"""All generated files: path and content."""

import yaml

from lab.dashboards.boards import BOARDS
from lab.dashboards.grafana import as_json
from lab.dashboards.rules import as_dict

_MADE = "# Made by `make dashboards` from lab/dashboards.\n"


def drawn() -> dict[str, str]:
    """Text by path in ``cluster/monitoring``."""
    rules = as_dict()
    operated = {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": {"name": "outrider", "labels": {"release": "prometheus"}},
        "spec": rules,
    }
    return {
        **{f"dashboards/{board.name}.json": as_json(board) for board in BOARDS},
        "rules.yaml": _MADE + _yaml(rules),
        "kubernetes/prometheusrule.yaml": _MADE + _yaml(operated),
    }


def _yaml(content: object) -> str:
    return yaml.safe_dump(content, sort_keys=False, width=100_000)

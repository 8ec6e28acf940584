"""All generated files, path and content: dashboards, and Prometheus's rule file."""

from typing import Any

import yaml

from lab.dashboards import fleet, link, overview, speculation, verifier
from lab.dashboards.alerts import ALERTS, Alert
from lab.dashboards.grafana import as_json
from lab.dashboards.recordings import Recording, as_vllm, kept


def as_dict() -> dict[str, Any]:
    return {
        "groups": [
            {"name": "outrider-as-vllm", "rules": [_recorded(rule) for rule in as_vllm()]},
            {"name": "outrider-kept", "rules": [_recorded(rule) for rule in kept()]},
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
            "runbook_url": f"docs/how-to/runbook.md#{alert.name.lower()}",
            "dashboard": f"/d/outrider-{alert.board}",
        },
    }


BOARDS = (overview.BOARD, speculation.BOARD, link.BOARD, verifier.BOARD, fleet.BOARD)


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

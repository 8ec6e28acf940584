"""Prometheus's rule file."""

from typing import Any

from lab.dashboards.alerts import ALERTS, Alert
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
            "runbook": f"docs/how-to/runbook.md#{alert.name.lower()}",
            "dashboard": f"/d/outrider-{alert.board}",
        },
    }

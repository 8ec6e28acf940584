"""Prometheus's own checker of rules, and what of boards it is given."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from lab.dashboards.drawn import BOARDS

_VALUES = {
    "$__rate_interval": "1m",
    "$__range": "1h",
    "$cluster": ".*",
    "$coordinator": ".*",
    "$class": ".*",
    "$group": ".*",
}


def filled_in(expr: str) -> str:
    """An expression of a board as Grafana sends it with everything chosen."""
    for variable, value in _VALUES.items():
        expr = expr.replace(variable, value)
    assert "$" not in expr, expr
    return expr


def expressions() -> list[str]:
    """All of the boards, each once."""
    return list(dict.fromkeys(query.expr for board in BOARDS for panel in board.panels for query in panel.queries))


def names_in(expr: str) -> set[str]:
    """Metrics of ours, and recorded ones, in an expression: without what a histogram's series end in."""
    names = re.findall(r"\bray_(outrider_[a-z0-9_]+)|\b(outrider:[a-z0-9_:]+|vllm:[a-z0-9_]+)", expr)
    return {re.sub(r"_(bucket|sum|count)$", "", one or other) for one, other in names}


def promtool(*arguments: str, folder: Path) -> None:
    """Run it; what it finds wrong fails the test."""
    program = shutil.which("promtool")
    if program is None:
        pytest.skip("needs promtool (Debian package prometheus)")
    done = subprocess.run([program, *arguments], cwd=folder, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]


def as_rules(expressions: list[str]) -> str:
    """A rule file of nothing but these."""
    rules = [{"record": f"outrider:expression:{i}", "expr": expr} for i, expr in enumerate(expressions)]
    return yaml.safe_dump({"groups": [{"name": "all", "rules": rules}]}, width=100_000)

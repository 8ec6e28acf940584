"""Helm's own library on the chart: ``... helm_process render`` (or ``lint``) takes sets of values and answers in JSON.

It is in Go, and so in a process of its own, which imports nothing of ours and starts at once.
"""

import importlib
import json
import sys
from pathlib import Path
from typing import Any

CHART = Path(__file__).parents[3] / "k8s" / "chart" / "outrider"


def render(asked: list[dict[str, Any]]) -> list[dict[str, str]]:
    """Text by path for each set of values, or Helm's word against them under ``error``."""
    helm: Any = importlib.import_module("helm_python")
    chart = helm.Chart.load(CHART)
    answers = []
    for values in asked:
        try:
            chart.validate_schema(values)
            files = chart.render(values, name="outrider", namespace="outrider")
            answers.append({path.removeprefix("outrider/templates/"): text for path, text in files.items()})
        except helm.HelmError as error:
            answers.append({"error": str(error)})
    return answers


def lint(asked: list[dict[str, Any]]) -> list[list[str]]:
    """What Helm's linter warns of, or refuses."""
    helm: Any = importlib.import_module("helm_python")
    reports = [helm.lint(CHART, values, strict=True, kube_version="v1.33.0") for values in asked]
    return [
        [one["error"] for one in report["messages"] if one["severity"] > 1] + report["errors"] for report in reports
    ]


if __name__ == "__main__":
    given = json.load(sys.stdin)
    answers: Any = render(given) if sys.argv[1] == "render" else lint(given)
    print(json.dumps(answers))  # noqa: T201  # to the tests

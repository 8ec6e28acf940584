"""The Helm chart, rendered by Helm's own library, and the overlays that are its presets.

``python -m tests.unit.deployment.chart`` renders the overlays anew.
"""

import importlib.util
import json
import subprocess
import sys
from functools import lru_cache
from typing import Any

import pytest
import yaml

from tests.unit.deployment.helm_process import CHART
from tests.unit.deployment.manifests import OVERLAYS, ROOT, Overlay

_MADE = """# The chart's preset {name}, rendered by `python -m tests.unit.deployment.chart`.
# Change k8s/chart/outrider, not this.
"""


def preset(name: str) -> dict[str, Any]:
    values: dict[str, Any] = yaml.safe_load((CHART / "presets" / f"{name}.yaml").read_text(encoding="utf-8"))
    return values


def rendered(*asked: dict[str, Any]) -> list[dict[str, str]]:
    """Text by path for each set of values, or Helm's word against them under ``error``."""
    return _asked("render", json.dumps(asked))  # type: ignore[no-any-return]  # JSON


def lint(*asked: dict[str, Any]) -> list[list[str]]:
    """What Helm's linter warns of, or refuses."""
    return _asked("lint", json.dumps(asked))  # type: ignore[no-any-return]  # JSON


@lru_cache
def _asked(act: str, asked: str) -> Any:
    if importlib.util.find_spec("helm_python") is None:
        pytest.skip("needs helm-python-sdk (of the extra dev), found none")
    command = [sys.executable, "-m", "tests.unit.deployment.helm_process", act]
    done = subprocess.run(command, input=asked, cwd=ROOT, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def installed(values: dict[str, Any]) -> Overlay:
    """All objects of the chart with these values."""
    (files,) = rendered(values)
    assert "error" not in files, files["error"]
    return Overlay("chart", tuple(objects(files)))


def objects(files: dict[str, str]) -> list[Any]:
    texts = (text for path, text in sorted(files.items()) if path.endswith(".yaml"))
    return [document for text in texts for document in yaml.safe_load_all(text) if document]


def as_overlay(name: str, files: dict[str, str]) -> str:
    """One file, with the templates' comments, without their empty lines."""
    texts = (text for path, text in sorted(files.items()) if path.endswith(".yaml"))
    parts = ("\n".join(line.rstrip() for line in text.splitlines() if line.strip()) for text in texts)
    bodies = "\n---\n".join(part.removeprefix("---\n") for part in parts if part)
    return _MADE.format(name=name) + bodies + "\n"


def main() -> None:
    """Render the presets anew into ``k8s/overlays``."""
    for name, files in zip(OVERLAYS, rendered(*map(preset, OVERLAYS)), strict=True):
        text = as_overlay(name, files)
        (ROOT / "k8s" / "overlays" / name / "outrider.yaml").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()

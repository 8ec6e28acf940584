"""Scenarios to begin with, for ``outrider simulate`` and ``outrider plan``."""

from pathlib import Path

_FOLDER = Path(__file__).parent

SCENARIOS = tuple(sorted(file.stem for file in _FOLDER.glob("*.yaml")))


def scenario_file(name: str) -> Path:
    """Where a scenario of this name is; any other name is that of a file."""
    return _FOLDER / f"{name}.yaml" if name in SCENARIOS else Path(name)

"""Scenarios to begin with, for ``outrider simulate`` and ``outrider plan``; those in ``fleets`` for the first alone."""

from pathlib import Path

_FOLDER = Path(__file__).parent
_FLEETS = _FOLDER / "fleets"

SCENARIOS = tuple(sorted(file.stem for file in _FOLDER.glob("*.yaml")))
FLEETS = tuple(sorted(file.stem for file in _FLEETS.glob("*.yaml")))


def scenario_file(name: str) -> Path:
    """Where a scenario of this name is; any other name is that of a file."""
    if name in FLEETS:
        return _FLEETS / f"{name}.yaml"
    return _FOLDER / f"{name}.yaml" if name in SCENARIOS else Path(name)

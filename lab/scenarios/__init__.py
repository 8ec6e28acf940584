"""Example scenarios, for ``outrider simulate`` and ``outrider plan``; those in ``fleets`` only for the former."""

from pathlib import Path

_FOLDER = Path(__file__).parent
_FLEETS = _FOLDER / "fleets"

SCENARIOS = tuple(sorted(file.stem for file in _FOLDER.glob("*.yaml")))
FLEETS = tuple(sorted(file.stem for file in _FLEETS.glob("*.yaml")))


def scenario_file(name: str) -> Path:
    """The file of a named example; any other name is taken as a path."""
    if name in FLEETS:
        return _FLEETS / f"{name}.yaml"
    return _FOLDER / f"{name}.yaml" if name in SCENARIOS else Path(name)

"""Record of a run as JSON: command, machine, date, versions and figures."""

import os
import platform
import shlex
import sys
from argparse import Namespace
from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from lab.reports.json_file import write_json
from outrider import __version__
from outrider.costs.machine import cpu_name

_ROOT = Path(__file__).parents[3]
_PACKAGES = ("ray", "torch", "transformers", "vllm")


def write_record(file: Path, settings: Namespace | Mapping[str, object], content: Mapping[str, object]) -> None:
    asked = vars(settings) if isinstance(settings, Namespace) else settings
    shown = {name: str(value) if isinstance(value, Path) else value for name, value in asked.items()}
    write_json(file, {"run": described(), "settings": shown, **content})


def described() -> dict[str, object]:
    return {
        "command": shlex.join((_program(Path(sys.argv[0])), *sys.argv[1:])),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": {"cpu": cpu_name(), "cores": os.cpu_count(), "system": platform.platform()},
        "versions": {"outrider": __version__, "python": platform.python_version(), **versions(_PACKAGES)},
    }


def _program(file: Path) -> str:
    """Return a program's path in the checkout; of one elsewhere its name."""
    if not file.is_absolute():
        return str(file)
    return str(file.relative_to(_ROOT)) if file.is_relative_to(_ROOT) else file.name


def versions(packages: Iterable[str]) -> dict[str, str]:
    """Return the versions of those that are installed."""
    found = {}
    for name in packages:
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return found

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

_PACKAGES = ("ray", "torch", "transformers", "vllm")


def write_record(file: Path, settings: Namespace | Mapping[str, object], content: Mapping[str, object]) -> None:
    asked = vars(settings) if isinstance(settings, Namespace) else settings
    shown = {name: str(value) if isinstance(value, Path) else value for name, value in asked.items()}
    write_json(file, {"run": described(), "settings": shown, **content})


def described() -> dict[str, object]:
    return {
        "command": shlex.join(sys.argv),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": {"cpu": cpu_name(), "cores": os.cpu_count(), "system": platform.platform()},
        "versions": {"outrider": __version__, "python": platform.python_version(), **versions(_PACKAGES)},
    }


def versions(packages: Iterable[str]) -> dict[str, str]:
    """Return the versions of those that are installed."""
    found = {}
    for name in packages:
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return found

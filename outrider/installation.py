"""Refuse to start where another distribution's packages hide ours, which have names that others may have, too."""

import sys
from importlib import import_module
from importlib.metadata import packages_distributions
from importlib.util import find_spec
from pathlib import Path

from outrider.contracts.errors import InstallationError

_BESIDE = Path(__file__).resolve().parents[1]


def check_packages() -> None:
    """Look for ``actors``, ``cluster``, ``edge`` and ``serve_app``, without importing them.

    One that is found elsewhere than beside this package, or not at all, is an ``InstallationError``.
    """
    for name in ("actors", "cluster", "edge", "serve_app"):
        spec = find_spec(name)
        origin = None if spec is None or spec.origin is None else Path(spec.origin).resolve()
        if origin == _BESIDE / name / "__init__.py":
            continue
        found = "no such package" if origin is None else f"{origin}{_owners(name)}"
        raise InstallationError(
            f"needs outrider's own package {name!r} in {_BESIDE}, found {found}; "
            "uninstall the other one, or install outrider into a virtual environment of its own"
        )


def _owners(name: str) -> str:
    others = sorted(set(packages_distributions().get(name, ())) - {"outrider"})
    return f" of {' and '.join(others)}" if others else ""


def main() -> int:
    """Run the ``outrider`` command; returns the exit status."""
    try:
        check_packages()
    except InstallationError as error:
        print(f"outrider: error: {error}", file=sys.stderr)  # noqa: T201 (a command line)
        return 2
    return int(import_module("cluster.cli").main())

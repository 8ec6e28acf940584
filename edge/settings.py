"""Settings of a device: a TOML file with few fields."""

import tomllib
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from outrider.contracts.errors import ConfigError

_RANGES = {"threads": (1, 1024), "kv_budget_mib": (1, 1_048_576), "status_s": (1, 86_400)}


@dataclass(frozen=True, slots=True)
class EdgeSettings:
    drafter: str  # file made by `outrider export drafter`
    listen: str  # local socket on which a coordinator's orders come
    sha256: str | None = None  # of the drafter's file; None: it is not compared
    threads: int = 1  # of computation
    kv_budget_mib: int = 256
    status_s: int = 10  # between two status lines

    def __post_init__(self) -> None:
        for name, (low, high) in _RANGES.items():
            value: object = getattr(self, name)
            if type(value) is not int or not low <= value <= high:
                raise ConfigError(name, f"an integer in {low}..{high}", value)
        for name in ("drafter", "listen"):
            value = getattr(self, name)
            if not isinstance(value, str) or not Path(value).is_absolute():
                raise ConfigError(name, "an absolute path", value)
        if self.sha256 is not None and not _is_digest(self.sha256):
            raise ConfigError("sha256", "64 hex digits, in lower case", self.sha256)


def read_settings(file: Path) -> EdgeSettings:
    """Read a settings file; one that is missing, no TOML, or has other fields or values is a ``ConfigError``."""
    try:
        found: dict[str, Any] = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(str(file), "a TOML file", str(error)) from error
    known = [field.name for field in fields(EdgeSettings)]
    for name, value in found.items():
        if name not in known:
            raise ConfigError(name, f"one of {', '.join(known)}", value)
    for name in ("drafter", "listen"):
        if name not in found:
            raise ConfigError(name, "an absolute path", None)
    return EdgeSettings(**found)


def _is_digest(value: object) -> bool:
    return isinstance(value, str) and len(value) == 64 and set(value) <= set("0123456789abcdef")

"""Figures for other programs."""

import json
from collections.abc import Mapping
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import Any


def write_json(file: Path, content: Mapping[str, object]) -> None:
    """Write a JSON file; dataclasses become objects."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(content, indent=1, default=_plain) + "\n", encoding="utf-8")
    print(f"wrote {file}")


def _plain(value: object) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    raise TypeError(f"needs a JSON value or a dataclass, found {type(value).__name__}")

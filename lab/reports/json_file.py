"""Figures for other programs."""

import json
from collections.abc import Mapping
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import Any

from outrider.documents.whole_file import write_whole


def write_json(file: Path, content: Mapping[str, object]) -> None:
    """Write a JSON file; dataclasses become objects."""
    write_whole(file, json.dumps(content, indent=1, default=_plain) + "\n")
    print(f"wrote {file}")


def _plain(value: object) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    raise TypeError(f"needs a JSON value or a dataclass, found {type(value).__name__}")

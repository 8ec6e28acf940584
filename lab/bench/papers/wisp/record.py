"""Results of cells, kept in a file after each one, so that a run that was ended goes on where it was."""

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from outrider.documents.whole_file import write_whole


class Record:
    def __init__(self, file: Path | None) -> None:
        """Go on with the cells of ``file``, if it exists; None keeps them in memory."""
        self._file = file
        self._found: dict[str, Any] = {}
        if file is not None and file.exists():
            self._found = json.loads(file.read_text(encoding="utf-8"))
        self._began_at_s = time.monotonic()

    def __contains__(self, key: str) -> bool:
        return key in self._found

    def __getitem__(self, key: str) -> Mapping[str, Any]:
        found: Mapping[str, Any] = self._found[key]
        return found

    def get(self, key: str) -> Mapping[str, Any] | None:
        return self._found.get(key)

    def put(self, key: str, found: Mapping[str, object]) -> None:
        self._found[key] = json.loads(json.dumps(found))
        print(f"{time.monotonic() - self._began_at_s:6.0f} s  {key}: {found.get('devices', '')}", flush=True)
        if self._file is not None:
            lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(one)}" for name, one in self._found.items())
            write_whole(self._file, f"{{\n{lines}\n}}\n")  # a cell is a line

    @property
    def all(self) -> Mapping[str, Any]:
        return self._found

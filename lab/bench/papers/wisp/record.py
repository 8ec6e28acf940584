"""Results of cells, kept in a file after each one, so that a run that was ended goes on where it was.

A cell is kept by name and provenance (``lab.bench.papers.wisp.provenance``). One of another provenance is stale: it is
not found, and gives way to the cell that is run in its place.
"""

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from outrider.documents.whole_file import write_whole


class Record:
    def __init__(self, file: Path | None, commit: str | None = None) -> None:
        """Go on with the cells of ``file``, if it exists; None keeps them in memory. ``commit`` is of what is run."""
        self._file, self._commit = file, commit
        self._found: dict[str, Any] = {}
        if file is not None and file.exists():
            self._found = json.loads(file.read_text(encoding="utf-8"))
        self._began_at_s = time.monotonic()
        self.current: dict[str, Any] = {}  # by name: cells that were found or put, and what follows from them

    def get(self, name: str, provenance: str) -> Mapping[str, Any] | None:
        found: Mapping[str, Any] | None = self._found.get(_key(name, provenance))
        if found is not None:
            self.current[name] = found
        return found

    def put(self, name: str, provenance: str, found: Mapping[str, object]) -> Mapping[str, Any]:
        """Keep a cell in place of any of the same name; return it as a file would have it."""
        stale = _key(name, "")
        self._found = {key: one for key, one in self._found.items() if not key.startswith(stale)}
        kept: Mapping[str, Any] = json.loads(json.dumps({**found, "commit": self._commit}))
        self._found[_key(name, provenance)] = self.current[name] = kept
        print(f"{time.monotonic() - self._began_at_s:6.0f} s  {name}: {found.get('devices', '')}", flush=True)
        if self._file is not None:
            lines = ",\n".join(f"{json.dumps(key)}: {json.dumps(one)}" for key, one in self._found.items())
            write_whole(self._file, f"{{\n{lines}\n}}\n")  # a cell is a line
        return kept


def _key(name: str, provenance: str) -> str:
    return f"{name} | of {provenance}"

"""Writes a device's log of its rounds to files of bounded total size, in a thread of its own.

Drafting must not wait for the log. The engine's thread only queues a verdict; the features of its rows are computed
here, too, unless a stop rule has computed them already. Verdicts that do not fit the queue are left out. If the disk
refuses, that is logged once, and writing is tried again later.
"""

import logging
import secrets
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from queue import Empty, Full, Queue
from typing import BinaryIO

from outrider.contracts.requests import GenerationId
from outrider.contracts.verifying import AcceptanceRule
from outrider.drafting.recalibration import ChainVerdict
from outrider.drafting.round_log import SUFFIX, LogHeader, logged_round, write_header, write_round
from outrider.events import event

_LOG = logging.getLogger(__name__)
_FILES = 16  # files per drafter, so that the oldest to be deleted is a sixteenth of its share of the disk
_QUEUED = 64  # most verdicts that wait to be written, as they hold rows of probabilities
_TRIED_AGAIN_BEHIND = 512  # records lost to a disk that refuses, before the next try


@dataclass(slots=True)
class _OpenFile:
    path: Path
    stream: BinaryIO
    written_bytes: int = 0


class RoundFiles:
    """One drafter's files, ``<number>-<rule>.rounds``, with one open per rule; the oldest are deleted. Not thread-safe.

    A process begins new files; those of earlier processes count towards the same total size.
    """

    def __init__(self, folder: Path, most_bytes: int, header: LogHeader) -> None:
        """Touch no file before the first record. ``folder`` is this drafter's alone, with ``most_bytes`` in all."""
        self._folder, self._most_bytes, self._header = folder, most_bytes, header
        self._open: dict[AcceptanceRule, _OpenFile] = {}
        self._closed: dict[Path, int] | None = None  # bytes of each, the oldest first; None: not looked at yet
        self._number = 0

    def write(self, rule: AcceptanceRule, record: bytes) -> None:
        """Append a record; if the disk refuses, close all files and raise ``OSError``."""
        try:
            file = self._file(rule)
            self._append(file, record)
            if file.written_bytes >= self._most_bytes // _FILES:
                self._close(rule)
        except OSError:
            self.close()
            raise

    def flush(self) -> None:
        try:
            for file in self._open.values():
                file.stream.flush()
        except OSError:
            self.close()
            raise

    def close(self) -> None:
        for rule in tuple(self._open):
            self._close(rule)

    def _file(self, rule: AcceptanceRule) -> _OpenFile:
        if rule in self._open:
            return self._open[rule]
        if self._closed is None:
            self._closed = self._found()
        path = self._folder / f"{self._number:08d}-{rule}{SUFFIX}"
        self._number += 1
        self._folder.mkdir(parents=True, exist_ok=True)
        file = self._open[rule] = _OpenFile(path, path.open("xb"))
        self._append(file, write_header(replace(self._header, rule=rule, file=secrets.token_hex(8))))
        return file

    def _found(self) -> dict[Path, int]:
        """Return files of earlier processes with their sizes, oldest first, and number new ones after them."""
        files = sorted(self._folder.glob(f"*{SUFFIX}")) if self._folder.is_dir() else []
        numbers = [int(file.name.partition("-")[0]) for file in files if file.name.partition("-")[0].isdigit()]
        self._number = max(numbers, default=-1) + 1
        return {file: file.stat().st_size for file in files}

    def _append(self, file: _OpenFile, data: bytes) -> None:
        self._make_room(len(data))
        file.written_bytes += len(data)
        file.stream.write(data)

    def _make_room(self, needed_bytes: int) -> None:
        assert self._closed is not None, "looked at before anything is opened"
        held = sum(self._closed.values()) + sum(file.written_bytes for file in self._open.values())
        for path, size in tuple(self._closed.items()):
            if held + needed_bytes <= self._most_bytes:
                return
            path.unlink(missing_ok=True)
            del self._closed[path]
            held -= size

    def _close(self, rule: AcceptanceRule) -> None:
        file = self._open.pop(rule)
        with suppress(OSError):
            file.stream.close()
        with suppress(OSError):
            size = file.path.stat().st_size
            if size and self._closed is not None:
                self._closed[file.path] = size
            else:
                file.path.unlink(missing_ok=True)


class RoundLogWriter:
    """Takes verdicts from the engine's thread, and writes them in a daemon thread."""

    def __init__(self) -> None:
        self._queue: Queue[tuple[GenerationId, ChainVerdict]] = Queue(_QUEUED)
        self._refused = False
        self._lost = 0  # records since the disk last refused

    def note(self, generation: GenerationId, verdict: ChainVerdict) -> None:
        """Queue a chain's verdict without waiting; drop it if the queue is full."""
        with suppress(Full):
            self._queue.put_nowait((generation, verdict))

    def begin(self, files: RoundFiles) -> None:
        """Start the thread that writes to ``files``. Verdicts may be noted before."""
        threading.Thread(target=self._write_on, args=(files,), name="round log", daemon=True).start()

    def write_waiting(self, files: RoundFiles) -> None:
        """Write all queued verdicts, in the caller's thread."""
        with suppress(Empty):
            while True:
                self._write(files, *self._queue.get_nowait())

    def _write_on(self, files: RoundFiles) -> None:
        while True:
            self._write(files, *self._queue.get())
            self.write_waiting(files)
            self._attempt(files.flush)

    def _write(self, files: RoundFiles, generation: GenerationId, verdict: ChainVerdict) -> None:
        if self._refused and self._lost < _TRIED_AGAIN_BEHIND:
            self._lost += 1
            return
        if (logged := logged_round(generation, verdict)) is not None:
            self._attempt(lambda: files.write(verdict.sent_chain.rule, write_round(logged)))

    def _attempt(self, act: Callable[[], None]) -> None:
        try:
            act()
        except OSError as error:
            if not self._refused:
                event(_LOG, "round_log_refused", logging.WARNING, error=str(error))
            self._refused, self._lost = True, 0

"""Keeps drafters' files by their hash in the user's cache, and fetches what is missing of them."""

import fcntl
import hashlib
import os
import random
import re
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from threading import Event
from typing import IO
from urllib.error import HTTPError
from urllib.request import HTTPRedirectHandler, HTTPSHandler, Request, build_opener

from edge.gateway_access import GatewayAccess
from outrider.contracts.errors import ModelUnavailableError
from outrider.wire.dialling import FILES_PATH

MOST_CACHED_BYTES = 2**32
_MOST_FILE_BYTES = 2**31  # of one protobuf message
_SUFFIX, _PART = ".onnx", ".part"
_OURS = re.compile(r"[0-9a-f]{64}\.(onnx|part)|lock")
_CHUNK_BYTES = 2**16
_PATIENCE_S = 10.0  # with a gateway that sends nothing of a file
_LOCK_POLL_S = 0.2
_RANGE_NOT_SATISFIABLE = 416
_NOT_YET, _NOT_YET_S = 503, 10.0  # as many are sent the file as may be: it is asked for again on the same connection


class FetchAbandonedError(OSError):
    """Nobody waits for the file any more."""


class DrafterCache:
    """May be used by several threads and processes."""

    def __init__(self, folder: Path, most_bytes: int = MOST_CACHED_BYTES) -> None:
        self._folder, self._most_bytes = folder, most_bytes

    def newest(self) -> bytes | None:
        """Return the hash of the file that was used last."""
        with suppress(OSError):  # another process may remove some
            files = [file for file in self._folder.glob(f"*{_SUFFIX}") if _OURS.fullmatch(file.name)]
            return bytes.fromhex(max(files, key=lambda file: file.stat().st_mtime).stem) if files else None
        return None

    def file(
        self,
        digest: bytes,
        size: int,
        opened: Callable[[int], AbstractContextManager[HTTPResponse]],
        abandoned: Event,
        note: Callable[[int], None],
    ) -> Path:
        """Return a drafter's file, which is fetched if it is missing. Blocks.

        Args:
            digest: SHA-256 of the file.
            size: its bytes.
            opened: returns the answer of a gateway with the file from an offset on.
            abandoned: ends the fetch, when set.
            note: called with the bytes that are there.

        Raises:
            ModelUnavailableError: the file is larger than may be, or another than promised, and was removed.
            OSError: it cannot be fetched or written; what came is kept.
        """
        most = min(_MOST_FILE_BYTES, self._most_bytes)
        if not 0 < size <= most:
            raise ModelUnavailableError(f"needs a drafter of at most {most} bytes, found {size}; distil a smaller one")
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        file = self._folder / f"{digest.hex()}{_SUFFIX}"
        with self._alone(abandoned):
            if not (file.is_file() and _sha256(file) == digest):
                part = file.with_suffix(_PART)
                self._make_room(size, part)
                _fetch(part, size, opened, abandoned, note)
                if (found := _sha256(part)) != digest:
                    part.unlink()
                    raise ModelUnavailableError(
                        f"needs a drafter with sha256 {digest.hex()}, found {found.hex()}, and removed it; "
                        "whoever runs the gateway has to look at its files"
                    )
                part.replace(file)
            os.utime(file)
        return file

    def forget(self) -> tuple[int, int]:
        """Remove all files; returns how many drafters, and bytes."""
        files = [file for file in self._folder.glob("*") if _OURS.fullmatch(file.name)]
        drafters = sum(file.suffix == _SUFFIX for file in files)
        size = sum(file.stat().st_size for file in files)
        for file in files:
            file.unlink(missing_ok=True)
        return drafters, size

    @contextmanager
    def _alone(self, abandoned: Event) -> Iterator[None]:
        with (self._folder / "lock").open("w") as lock:
            while True:
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if abandoned.wait(_LOCK_POLL_S):
                        raise FetchAbandonedError from None
            yield

    def _make_room(self, size: int, part: Path) -> None:
        """Remove parts of other files, and the files that were used longest ago, as far as needed."""
        files = [file for file in self._folder.glob("*") if _OURS.fullmatch(file.name) and file.suffix and file != part]
        left = sum(file.stat().st_size for file in files)
        for file in sorted(files, key=lambda file: (file.suffix == _SUFFIX, file.stat().st_mtime)):
            if file.suffix == _PART or left + size > self._most_bytes:
                left -= file.stat().st_size
                file.unlink()


def open_file(access: GatewayAccess, address: str, digest: bytes, start: int) -> HTTPResponse:
    """Ask a gateway for a file from an offset on. No redirection is followed: it would be told who this device is."""
    headers = access.headers() | ({"Range": f"bytes={start}-"} if start else {})
    request = Request(f"https://{address}{FILES_PATH}{digest.hex()}", headers=headers)
    opener = build_opener(HTTPSHandler(context=access.context()), _NoRedirections)
    answer: HTTPResponse = opener.open(request, timeout=_PATIENCE_S)
    return answer


class _NoRedirections(HTTPRedirectHandler):
    def redirect_request(self, *_: object) -> None:
        return None


def _fetch(
    part: Path,
    size: int,
    opened: Callable[[int], AbstractContextManager[HTTPResponse]],
    abandoned: Event,
    note: Callable[[int], None],
) -> None:
    """Fetch what is missing of a file; never more than it should have."""
    held = part.stat().st_size if part.is_file() else 0
    if held == size:
        return
    if held > size:
        part.unlink()
        held = 0
    while not _asked(part, held, size, opened, abandoned, note):
        if abandoned.wait(random.uniform(0.5, 1.0) * _NOT_YET_S):  # noqa: S311 (spreads devices)
            raise FetchAbandonedError


def _asked(
    part: Path,
    held: int,
    size: int,
    opened: Callable[[int], AbstractContextManager[HTTPResponse]],
    abandoned: Event,
    note: Callable[[int], None],
) -> bool:
    """Ask once for what is missing; return whether it came: others may be sent the file first."""
    try:
        with opened(held) as answer:
            begins = f"bytes {held}-"
            goes_on = answer.status == 206 and (answer.headers.get("Content-Range") or "").startswith(begins)
            with part.open("ab" if goes_on else "wb") as file:
                _copy(answer, file, held if goes_on else 0, size, abandoned, note)
    except HTTPError as error:
        if error.code == _RANGE_NOT_SATISFIABLE:
            part.unlink(missing_ok=True)
        if error.code != _NOT_YET:
            raise
        return False
    except HTTPException as error:
        raise ConnectionError(f"needs the drafter's file, found {error!r:.100}") from error
    return True


def _copy(
    answer: HTTPResponse, file: IO[bytes], held: int, size: int, abandoned: Event, note: Callable[[int], None]
) -> None:
    noted_at_s = 0.0
    while held < size and (chunk := answer.read1(min(_CHUNK_BYTES, size - held))):
        if abandoned.is_set():
            raise FetchAbandonedError
        file.write(chunk)
        held += len(chunk)
        if time.monotonic() - noted_at_s > 1.0:
            noted_at_s = time.monotonic()
            note(held)
    file.flush()
    os.fsync(file.fileno())
    if held < size:
        raise ConnectionError(f"needs a drafter of {size} bytes, found the first {held}; the rest is fetched next")


def _sha256(file: Path) -> bytes:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").digest()


def cache_folder() -> Path:
    """Return the user's folder, or the one that a service manager made."""
    given = os.environ.get("CACHE_DIRECTORY")
    if given:
        return Path(given)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "outrider-edge"

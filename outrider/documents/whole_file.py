"""Files that are there whole or not at all, whatever becomes of the disk meanwhile."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from outrider.contracts.errors import OutriderError


class FileNotWrittenError(OutriderError):
    """The disk refuses a file: it is full, or nobody may write there."""


@contextmanager
def whole_file(file: Path) -> Iterator[Path]:
    """A place beside ``file`` to write it at, in a folder that exists; it takes the file's name when the block ends.

    Raises:
        FileNotWrittenError: the disk refuses. What was there stays, and nothing half is left.
    """
    partial = file.with_name(f".{file.name}.{os.getpid()}.partial")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        yield partial
        partial.replace(file)
    except OSError as error:
        raise FileNotWrittenError(
            f"needs room and leave to write {file}, found: {error}; make room, or name another place"
        ) from error
    finally:
        with suppress(OSError):
            partial.unlink()


def write_whole(file: Path, text: str) -> None:
    """Write text as UTF-8; as ``whole_file``."""
    with whole_file(file) as partial:
        partial.write_text(text, encoding="utf-8")

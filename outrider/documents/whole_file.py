"""Write files atomically: a file is there whole or not at all, even if the disk fails meanwhile."""

import glob
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from outrider.contracts.errors import OutriderError

_LEFT_BEHIND_S = 3600.0  # since it was last written to


class FileNotWrittenError(OutriderError):
    """A file cannot be written: the disk is full, or permission is missing."""


@contextmanager
def whole_file(file: Path) -> Iterator[Path]:
    """Yield a path beside ``file`` to write to; it is renamed to ``file`` when the block ends. Its folder is created.

    Raises:
        FileNotWrittenError: it cannot be written. An earlier file stays, and no partial file is left.
    """
    partial = file.with_name(f".{file.name}.{os.getpid()}.partial")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        _remove_left_behind(file)
        yield partial
        partial.replace(file)
    except OSError as error:
        raise FileNotWrittenError(
            f"needs space and permission to write {file}, found: {error}; free space, or name another place"
        ) from error
    finally:
        with suppress(OSError):
            partial.unlink()


def write_whole(file: Path, text: str) -> None:
    with whole_file(file) as partial:
        partial.write_text(text, encoding="utf-8")


def _remove_left_behind(file: Path) -> None:
    """Remove what processes that were killed had written of it: a checkpoint's may be large.

    Only what is old: a process of another container that writes to the same volume has no pid here.
    """
    for partial in file.parent.glob(f".{glob.escape(file.name)}.*.partial"):
        with suppress(OSError):
            if time.time() - partial.stat().st_mtime > _LEFT_BEHIND_S:
                partial.unlink()

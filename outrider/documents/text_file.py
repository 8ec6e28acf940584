"""Read files that operators wrote: bounded in size, regular files only, and without waiting for a writer."""

import errno
import os
import stat
from pathlib import Path

from outrider.contracts.errors import ConfigError

MAX_SETTINGS_BYTES = 2**20  # YAML takes 5 s a MiB to parse: some 8,000 API keys
MAX_DATA_BYTES = 256 * 2**20  # tasks, traces and prompts, read by commands
_PATH_CHARS = 1_000  # shown of a path, so that the reason behind it is, too
_KINDS = {
    stat.S_IFDIR: "a directory",
    stat.S_IFIFO: "a pipe",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
}


def read_text(path: str | Path, field: str, kind: str, max_bytes: int = MAX_SETTINGS_BYTES) -> str:
    """Read a file as text; ``field`` and ``kind`` name it in messages.

    Raises:
        ConfigError: it cannot be read, is no regular file, has more than ``max_bytes``, or is not UTF-8.
    """
    return decode(read_bytes(path, field, kind, max_bytes), path, field, kind)


def decode(data: bytes, path: str | Path, field: str, kind: str) -> str:
    """Decode the bytes of a file; other text than UTF-8 is a ``ConfigError``."""
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise _unreadable(path, field, kind, "not UTF-8") from error


def read_bytes(path: str | Path, field: str, kind: str, max_bytes: int = MAX_SETTINGS_BYTES) -> bytes:
    """Read a file as ``read_text`` does, without decoding."""
    try:
        data = _read_regular(path, max_bytes + 1)
    except (OSError, ValueError) as error:  # ValueError: a null byte in the path
        raise _unreadable(path, field, kind, getattr(error, "strerror", None) or str(error)) from error
    if len(data) > max_bytes:
        raise ConfigError(field, f"a {kind} file of at most {max_bytes:,} bytes", f"{path}: more")
    return data


def _read_regular(path: str | Path, max_bytes: int) -> bytes:
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # a pipe without a writer would block
    try:
        file_type = stat.S_IFMT(os.fstat(descriptor).st_mode)
        if file_type != stat.S_IFREG:
            found = _KINDS.get(file_type, "something else")
            raise OSError(errno.EINVAL, f"{found}, not a regular file; write it to one")
        with open(descriptor, "rb", closefd=False) as stream:
            return stream.read(max_bytes)
    finally:
        os.close(descriptor)


def _unreadable(path: str | Path, field: str, kind: str, reason: str) -> ConfigError:
    named = str(path)
    shown = named if len(named) <= _PATH_CHARS else f"{named[:_PATH_CHARS]}..."
    return ConfigError(field, f"a readable {kind} file", f"{shown}: {reason}")

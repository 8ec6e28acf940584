"""Keep the embedded Ray cluster private to its user: loopback addresses, and a folder and token that only it can read.

Access to a Ray port with the token allows running code as the service's user, and anybody could create a folder of a
known name in ``/tmp`` before us.
"""

import os
import secrets
import stat
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from ipaddress import ip_address
from pathlib import Path

from actors.ray_internals.core import clusters_disabled
from outrider.contracts.errors import ConfigError

_CLUSTERS = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"  # "0" on any system, in spite of the name, makes Ray use 127.0.0.1
_MAX_FOLDER_CHARS = 36  # a socket's path has at most 107, of which Ray's folder, session and names below it take 68
_AUTH_MODE = "RAY_AUTH_MODE"


def check_authentication(environment: Mapping[str, str]) -> None:
    """Refuse to start with Ray's token authentication switched off; unset, Ray switches it on."""
    mode = environment.get(_AUTH_MODE)
    if mode is not None and mode.lower() != "token":
        needed = "token, or not to be set: without tokens every user of this machine could run code as you"
        raise ConfigError(_AUTH_MODE, needed, mode)


def private_folder(parent: Path | None = None) -> Path:
    """Return a folder for Ray's sessions that is private to this user; the user's name in it helps to find logs.

    Args:
        parent: of the folder; None: ``RAY_TMPDIR``, else the system's for temporary files, or ``/tmp`` where that is
            too long for sockets.

    Raises:
        ConfigError: it belongs to another user, or others can access it.
    """
    name = f"outrider-{os.getuid()}"
    if parent is None:
        parent = Path(os.environ.get("RAY_TMPDIR") or tempfile.gettempdir())
        if len(str(parent / name)) > _MAX_FOLDER_CHARS:
            parent = Path("/tmp")  # noqa: S108 (the folder is checked)
    folder = parent / name
    try:
        folder.mkdir(mode=0o700)
    except FileExistsError:
        found = folder.lstat()  # not stat, which follows a link
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
            raise ConfigError(
                "TMPDIR", f"{folder} to be a folder of yours; remove it", "another user's, or a link"
            ) from None
        if stat.S_IMODE(found.st_mode) & 0o077:
            raise ConfigError(
                "TMPDIR", f"{folder} to be yours alone (chmod 700)", oct(stat.S_IMODE(found.st_mode))
            ) from None
    except OSError as error:
        raise ConfigError("TMPDIR", f"a folder that can be made at {folder}", error.strerror) from error
    return folder


@contextmanager
def listening_on_loopback() -> Iterator[None]:
    """Make a Ray cluster that is started while the block is open listen on 127.0.0.1 only, with all of its processes.

    Ray does so by default on macOS and Windows. ``ray.init(_node_ip_address="127.0.0.1")`` is not enough: Ray
    replaces it with the machine's address.
    """
    before = os.environ.get(_CLUSTERS)
    os.environ[_CLUSTERS] = "0"  # for Ray's processes
    try:
        with clusters_disabled():
            yield
    finally:
        if before is None:
            del os.environ[_CLUSTERS]
        else:
            os.environ[_CLUSTERS] = before


def check_address(address: str) -> None:
    """Refuse a node that other machines can reach, as another version of Ray may choose addresses differently."""
    if not ip_address(address).is_loopback:
        raise ConfigError("ray", "a version whose nodes listen on 127.0.0.1 alone (see constraints.txt)", address)


def protect_token(home: Path) -> Path:
    """Create Ray's token for local clusters if it is missing, make it private, and return its file.

    Ray would make it readable by everybody. A token elsewhere (``RAY_AUTH_TOKEN_PATH``) is its owner's to protect.

    Raises:
        ConfigError: it is a link, or cannot be written.
    """
    file = home / ".ray" / "auth_token"
    try:
        file.parent.mkdir(mode=0o700, exist_ok=True)
        try:
            descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        except FileExistsError:
            descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
            try:
                os.fchmod(descriptor, 0o600)
            finally:
                os.close(descriptor)
        else:
            with os.fdopen(descriptor, "w", encoding="ascii") as stream:
                stream.write(secrets.token_hex(32))
    except OSError as error:
        raise ConfigError("HOME", f"a token that is yours alone at {file}", error.strerror) from error
    return file

"""What keeps the embedded Ray cluster to its user: whoever reaches a Ray port with its token runs code as that user."""

import os
import secrets
from collections.abc import Mapping
from pathlib import Path

from outrider.contracts.errors import ConfigError

_AUTH_MODE = "RAY_AUTH_MODE"


def check_authentication(environment: Mapping[str, str]) -> None:
    """Refuse to start where Ray's token authentication was switched off; unset, Ray switches it on.

    Raises:
        ConfigError: it was.
    """
    mode = environment.get(_AUTH_MODE)
    if mode is not None and mode.lower() != "token":
        needed = "token, or not to be set: without tokens every user of this machine could run code as you"
        raise ConfigError(_AUTH_MODE, needed, mode)


def protect_token(home: Path) -> Path:
    """Make Ray's token of local clusters, unless there is one, and keep others from reading it; returns its file.

    Ray would make it readable by everybody. A file elsewhere, by ``RAY_AUTH_TOKEN_PATH``, is its owner's to protect.

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

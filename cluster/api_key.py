"""The one key of ``outrider serve --api-key``: of it only a digest leaves the process that was given it.

Everybody on a machine can read the arguments of its processes, and Ray's processes inherit and record more than they
need. So a key among the arguments moves to the environment by a second ``exec``, from there to this process's memory,
and ingresses get a file that holds its SHA-256.
"""

import json
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from tempfile import NamedTemporaryFile

from cluster.private_ray import private_folder
from outrider.config.schema import Config
from outrider.contracts.errors import ConfigError
from outrider.tenants.keys import MAX_CHOICES, MAX_KEY_CHARS, digest_of

FLAG, VARIABLE = "--api-key", "OUTRIDER_API_KEY"
_VARIABLES = (VARIABLE, "VLLM_API_KEY")
_NAME = "api-key"


def take_key(given: str | None, config: Config) -> str | None:
    """Return the key to ask for, and remove it from the environment of processes that are started from now on.

    Args:
        given: by ``--api-key``; then this process is replaced by one without it among its arguments.
        config: with its ``auth.keys_file``, keys of the environment are not asked for: they may be a client's.

    Raises:
        ConfigError: the key is given beside a file of keys, or is not one.
    """
    if given is not None:
        if config.auth.has_keys:
            raise ConfigError(FLAG, "no auth.keys_file beside it", "both")
        _check(given, FLAG)
        _move_to_environment(given, sys.orig_argv)
    found = {name: value for name in _VARIABLES if (value := os.environ.pop(name, ""))}
    if given is not None or config.auth.has_keys or not found:
        return given
    name, key = next(iter(found.items()))
    _check(key, name)
    return key


@contextmanager
def asking_for(key: str | None, config: Config) -> Iterator[Config]:
    """Yield the configuration with a file of this key's digest while the block is open; without a key as it is.

    The key has all of the service: what limits keys is said in files of keys.
    """
    if key is None:
        yield config
        return
    tenant = {"name": _NAME, "sha256": digest_of(key).hex(), "concurrent_responses": None, "max_choices": MAX_CHOICES}
    with NamedTemporaryFile("w", dir=private_folder(), prefix="keys-", suffix=".yaml", encoding="utf-8") as file:
        json.dump({"keys": [tenant]}, file)
        file.flush()
        yield replace(config, auth=config.auth.with_keys(file.name))


def without_key(arguments: Sequence[str], key: str) -> list[str]:
    """Return a command line without ``--api-key KEY`` or ``--api-key=KEY``."""
    kept: list[str] = []
    for each in arguments:
        if kept[-1:] == [FLAG] and each == key:
            kept.pop()
        elif each != f"{FLAG}={key}":
            kept.append(each)
    return kept


def _move_to_environment(key: str, arguments: Sequence[str]) -> None:
    """Start this process's program anew, if its arguments have the key; else ``main`` was called by a program."""
    kept = without_key(arguments, key)
    if kept == list(arguments) or not sys.executable:
        return
    environment = {name: value for name, value in os.environ.items() if name not in _VARIABLES}
    os.execve(sys.executable, [sys.executable, *kept[1:]], environment | {VARIABLE: key})  # noqa: S606 (ourselves)


def _check(key: str, source: str) -> None:
    if not (0 < len(key) <= MAX_KEY_CHARS and key.isascii() and key.isprintable() and " " not in key):
        raise ConfigError(source, f"1 to {MAX_KEY_CHARS} printable characters without spaces", "something else")

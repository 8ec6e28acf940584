"""Versions of the application's replicas: Serve starts one anew where its version has changed, and only there."""

import json
import uuid
from collections.abc import Iterable
from hashlib import sha256
from importlib.metadata import distributions
from pathlib import Path

import actors
import outrider
import serve_app
from outrider.assembly.heads import head_files
from outrider.config.reloadable import rest_of
from outrider.config.schema import Config

_PACKAGES = (outrider, actors, serve_app)


def fingerprint(config: Config, *, ingress_listens: bool) -> str:
    """Of all that replicas are made of, but for light settings and how many there are.

    That is the other settings, the files that are read where the application is put together, and the code and the
    packages there. Nothing is known of files that only other machines have.
    """
    packages = sorted(f"{found.name}=={found.version}" for found in distributions())
    made_of = sha256(json.dumps([rest_of(config), ingress_listens, packages], sort_keys=True).encode())
    for file in (*map(Path, config.scheduling.cost_profiles), *head_files(config).values(), *_code()):
        made_of.update(file.read_bytes())
    return made_of.hexdigest()[:32]


def version_of(found: str, running: str) -> str:
    """That of replicas that are running, if they have the same fingerprint; else one that never was."""
    return running if running.partition("-")[0] == found else f"{found}-{uuid.uuid4().hex[:8]}"


def _code() -> Iterable[Path]:
    return (file for package in _PACKAGES for root in package.__path__ for file in sorted(Path(root).rglob("*.py")))

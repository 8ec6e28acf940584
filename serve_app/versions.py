"""Computes the version of the application's replicas: Serve replaces a replica only if its version has changed."""

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
    """Return a hash of all that replicas are made of, except reloadable settings and their number.

    These are the other settings, the files that ``build_app`` reads, and the code and packages on this machine. Files
    that only other machines have are not covered.
    """
    packages = sorted(f"{found.name}=={found.version}" for found in distributions())
    made_of = sha256(json.dumps([rest_of(config), ingress_listens, packages], sort_keys=True).encode())
    for file in (*map(Path, config.scheduling.cost_profiles), *head_files(config).values(), *_code()):
        made_of.update(file.read_bytes())
    return made_of.hexdigest()[:32]


def version_of(found: str, running: str) -> str:
    """Return the running version if its fingerprint is ``found``; else a new version that was never used."""
    return running if running.partition("-")[0] == found else f"{found}-{uuid.uuid4().hex[:8]}"


def _code() -> Iterable[Path]:
    return (file for package in _PACKAGES for root in package.__path__ for file in sorted(Path(root).rglob("*.py")))

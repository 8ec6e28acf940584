"""Check a model folder's files against recorded SHA-256 hashes.

Hashes are recorded in a converted model's ``manifest.json``, or in ``SHA256SUMS`` as ``sha256sum *.safetensors``
writes it. Hashing takes 0.45 s of CPU time for the embedded target's 269 MB.
"""

import hashlib
import json
from pathlib import Path
from typing import Any

from outrider.contracts.errors import ModelUnavailableError

MANIFEST, SUMS = "manifest.json", "SHA256SUMS"
MANIFEST_FORMAT = 1
_SOURCE = "source_sha256"  # with ``format`` it distinguishes our manifests from others


def recorded_hashes(folder: Path) -> dict[str, str]:
    """Return SHA-256 by file name; empty if nothing is recorded.

    A record that cannot be read, or names a file elsewhere, is a ``ModelUnavailableError``.
    """
    try:
        manifest = _manifest(folder / MANIFEST)
        if manifest is not None:
            hashes = {str(name): str(facts["sha256"]) for name, facts in manifest["files"].items()}
        elif (folder / SUMS).is_file():
            lines = (folder / SUMS).read_text(encoding="utf-8").splitlines()
            hashes = dict(_sum(line) for line in lines if line)
        else:
            return {}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        needed = f"{MANIFEST} or {SUMS} with a SHA-256 of each file in {folder}"
        raise ModelUnavailableError(f"needs {needed}, found: {error!r}; write it again or remove it") from error
    for name in hashes:
        if Path(name).name != name:
            raise ModelUnavailableError(f"needs only names of files in {folder} in its record, found {name!r}")
    return hashes


def _manifest(file: Path) -> dict[str, Any] | None:
    """Read our manifest; None if there is none: model repositories may have a file of that name with any content."""
    if not file.is_file():
        return None
    text = file.read_text(encoding="utf-8", errors="replace")
    try:
        manifest = json.loads(text)
    except (ValueError, RecursionError):
        if f'"{_SOURCE}"' in text:  # our manifest, damaged
            raise
        return None
    if not (isinstance(manifest, dict) and {"format", _SOURCE} <= manifest.keys()):
        return None
    if manifest["format"] != MANIFEST_FORMAT:
        raise ValueError(f"format {manifest['format']!r:.40} in {MANIFEST}, only {MANIFEST_FORMAT} is known")
    return manifest


def _sum(line: str) -> tuple[str, str]:
    """Return file name and SHA-256 of a line written by ``sha256sum``, called with ``*`` or ``./*``."""
    if line.startswith("\\"):
        raise ValueError(f"an escaped file name ({line[66:130]!r}); rename the file, without backslash and line break")
    digest, name = line.split(maxsplit=1)
    return name.removeprefix("*").removeprefix("./"), digest.lower()


def check_hashes(folder: Path) -> int:
    """Hash every recorded file and compare; return the number of files.

    Raises:
        ModelUnavailableError: a file is damaged or missing, or the record cannot be read.
    """
    hashes = recorded_hashes(folder)
    for name, recorded in hashes.items():
        try:
            with (folder / name).open("rb") as stream:
                found = hashlib.file_digest(stream, "sha256").hexdigest()
        except OSError as error:
            found = str(error.strerror)
        if found != recorded:
            raise ModelUnavailableError(
                f"needs {folder / name} with sha256 {recorded}, found {found}; the file is damaged: copy it again "
                "(the embedded model: `outrider models fetch`)"
            )
    return len(hashes)

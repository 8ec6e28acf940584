"""Reads the files of ``assets/`` once, so that only these can be requested."""

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b
from importlib.resources import files
from importlib.resources.abc import Traversable

_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
}
INDEX = "index.html"


@dataclass(frozen=True, slots=True)
class Asset:
    content: bytes
    media_type: str
    tag: str  # HTTP entity tag, a hash of the content


def read_assets() -> Mapping[str, Asset]:
    """Return all assets by their path below ``assets/``; files of other types are left out."""
    return dict(_assets_in(files("serve_app.page") / "assets", ""))


def _assets_in(folder: Traversable, prefix: str) -> list[tuple[str, Asset]]:
    found = []
    for entry in folder.iterdir():
        if entry.is_dir():
            found += _assets_in(entry, f"{prefix}{entry.name}/")
            continue
        suffix = "." + entry.name.rpartition(".")[2]
        if suffix in _TYPES:
            content = entry.read_bytes()
            tag = f'"{blake2b(content, digest_size=12).hexdigest()}"'
            found.append((prefix + entry.name, Asset(content, _TYPES[suffix], tag)))
    return found

"""Reads the files of ``assets/`` once, so that only these can be requested."""

from collections.abc import Mapping
from pathlib import Path

from serve_app.api.tagged_page import TaggedPage

_ASSETS = Path(__file__).parent / "assets"
_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
}
# Only our own files, no inline script or style, no embedding in frames, and no text that becomes markup or script.
_POLICY = "; ".join((
    "default-src 'none'",
    *(f"{kind}-src 'self'" for kind in ("script", "style", "img", "connect")),
    *(f"{what} 'none'" for what in ("base-uri", "form-action", "frame-ancestors")),
    "require-trusted-types-for 'script'",
    "trusted-types 'none'",
))  # fmt: skip
HEADERS = {
    "content-security-policy": _POLICY,
    "cross-origin-opener-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}
INDEX = "index.html"


def read_assets() -> Mapping[str, TaggedPage]:
    """Return all assets by their path below ``assets/``; files of other types are left out."""
    files = (file for file in sorted(_ASSETS.rglob("*")) if file.suffix in _TYPES)
    return {
        file.relative_to(_ASSETS).as_posix(): TaggedPage(file.read_bytes(), _TYPES[file.suffix], HEADERS)
        for file in files
    }

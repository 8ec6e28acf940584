"""A page that changes rarely: clients keep it, and ask each time whether it is current by its entity tag."""

from collections.abc import Mapping
from hashlib import blake2b

from fastapi import Request
from fastapi.responses import Response


class TaggedPage:
    def __init__(self, content: bytes, media_type: str, headers: Mapping[str, str] | None = None) -> None:
        tag = f'"{blake2b(content, digest_size=12).hexdigest()}"'
        self.content = content
        self._headers = {"content-type": media_type, **(headers or {}), "etag": tag, "cache-control": "no-cache"}

    def response(self, request: Request) -> Response:
        """Send the page, or 304 if the client's copy is current."""
        if request.headers.get("if-none-match") == self._headers["etag"]:
            return Response(status_code=304, headers=self._headers)
        return Response(self.content, headers=self._headers)

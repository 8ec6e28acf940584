"""``/openapi.json`` and ``/docs``: descriptions of the API."""

import asyncio
import json
from base64 import b64encode
from collections.abc import Mapping
from functools import cache
from hashlib import sha256
from html import escape
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response

from serve_app.api.openapi.document import openapi_document
from serve_app.api.service import Service
from serve_app.api.tagged_page import TaggedPage

_STYLE = """
:root { color-scheme: light dark; font: 16px/1.5 system-ui, sans-serif; }
body { max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
h2 code { font-size: 1rem; } pre { overflow: auto; padding: .75rem; border: 1px solid #8888; border-radius: .25rem; }
summary { cursor: pointer; } dt { font-weight: 600; } section { border-top: 1px solid #8888; }
"""
CONTENT_SECURITY_POLICY = (
    "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    f"style-src 'sha256-{b64encode(sha256(_STYLE.encode()).digest()).decode()}'"
)


def page_of(document: Mapping[str, Any]) -> str:
    info, schemas = document["info"], document["components"]["schemas"]
    parts = [
        _operation(method, path, operation)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    ]
    named = "".join(_folded(name, schema, f' id="{escape(name)}"') for name, schema in sorted(schemas.items()))
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(info['title'])} {escape(info['version'])}: API</title>"
        f"<style>{_STYLE}</style></head><body><main>"
        f"<h1>{escape(info['title'])} {escape(info['version'])}: API</h1><p>{escape(info['description'])}</p>"
        '<p>For programs: <a href="/openapi.json">/openapi.json</a>.</p>'
        f"{''.join(parts)}<section><h2>Schemas</h2>{named}</section></main></body></html>\n"
    )


def _operation(method: str, path: str, operation: Mapping[str, Any]) -> str:
    parts = [f"<section><h2><code>{method.upper()} {escape(path)}</code></h2><p>{escape(operation['summary'])}.</p>"]
    if "description" in operation:
        parts.append(f"<p>{escape(operation['description'])}</p>")
    if "parameters" in operation:
        parts.append(_folded("Parameters", operation["parameters"]))
    if "requestBody" in operation:
        parts.append(_folded("Body", operation["requestBody"]["content"]))
    answers = "".join(
        f"<dt>{status}</dt><dd>{escape(answer['description'])} ({escape(', '.join(answer['content']))})</dd>"
        for status, answer in sorted(operation["responses"].items())
    )
    return "".join([*parts, f"<dl>{answers}</dl></section>"])


def _folded(title: str, content: object, attributes: str = "") -> str:
    text = escape(json.dumps(content, indent=2, ensure_ascii=False))
    return f"<details{attributes}><summary>{escape(title)}</summary><pre>{text}</pre></details>"


_READ = ["GET", "HEAD"]


def docs_routes(service: Service) -> APIRouter:
    """Return the routes. They need no key, as they show what may be asked and no state.

    Each page is generated when it is first requested, off the event loop, and kept until reloadable settings change.
    """
    api = APIRouter(redirect_slashes=False)
    kept = _Descriptions(service)

    def current() -> _Descriptions:
        nonlocal kept
        if kept.limits is not service.limits:
            kept = _Descriptions(service)
        return kept

    @api.api_route("/openapi.json", methods=_READ)
    async def openapi(request: Request) -> Response:
        return (await _rendered(current().openapi_json)).response(request)

    @api.api_route("/docs", methods=_READ)
    async def docs(request: Request) -> Response:
        return (await _rendered(current().page)).response(request)

    return api


async def _rendered(page: Any) -> TaggedPage:
    """Get a page from its cached function, in a thread if it has not been generated."""
    rendered: TaggedPage = page() if page.cache_info().currsize else await asyncio.to_thread(page)
    return rendered


class _Descriptions:
    def __init__(self, service: Service) -> None:
        limits = self.limits = service.limits
        keys, reads_need_key = service.gate is not None, service.settings.reads_need_key
        document = cache(lambda: openapi_document(limits, keys=keys, reads_need_key=reads_need_key))
        policy = {"content-security-policy": CONTENT_SECURITY_POLICY}
        self.openapi_json = cache(
            lambda: TaggedPage(json.dumps(document(), ensure_ascii=False).encode(), "application/json")
        )
        self.page = cache(lambda: TaggedPage(page_of(document()).encode(), "text/html; charset=utf-8", policy))

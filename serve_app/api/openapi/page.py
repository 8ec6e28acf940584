"""The OpenAPI document as an HTML page, without scripts or external resources."""

import json
from base64 import b64encode
from collections.abc import Mapping
from hashlib import sha256
from html import escape
from typing import Any

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

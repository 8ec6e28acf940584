"""Errors for unknown URLs, which name what to use instead."""

from collections.abc import Mapping

from serve_app.api.http_errors import UnknownPathError

_CHATS = "use POST /v1/chat/completions"
_NOT_YET: Mapping[str, str] = {  # by path prefix
    "/v1/responses": "responses are not kept; send the whole input to POST /v1/responses",
    "/v1/messages/batches": "batches are not kept; use POST /v1/messages for each request",
    "/v1/complete": f"the Text Completions API is not supported; {_CHATS}",
    "/v1/conversations": f"conversations are not kept; {_CHATS} with all messages so far",
    "/v1/assistants": f"the Assistants API is not supported; {_CHATS}",
    "/v1/threads": f"the Assistants API is not supported; {_CHATS}",
    "/v1/embeddings": "this service generates text only; it has no embeddings",
    "/v1/images": "this service generates text only",
    "/v1/audio": "this service generates text only",
    "/v1/files": "files are not kept; send everything the model is to read in the prompt",
    "/v1/batches": f"batches are not kept; {_CHATS} for each request, with best effort as outrider.slo_class",
    "/tokenizer_info": "use POST /tokenize",
}
_OTHERWISE = "GET /openapi.json lists them all, GET /docs in a browser; answers are made by POST /v1/chat/completions"


def unknown_path(method: str, path: str) -> UnknownPathError:
    advice = next((_NOT_YET[start] for start in _NOT_YET if path == start or path.startswith(f"{start}/")), _OTHERWISE)
    return UnknownPathError(f"needs a URL of this API, found {method} {path:.200}; {advice}")

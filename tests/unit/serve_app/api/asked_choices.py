"""What coordinators are asked for by a body with some fields changed."""

import json
from typing import Any

from outrider.contracts.requests import GenerationRequest
from serve_app.api.openai.bodies import ChatBody, CompletionBody
from serve_app.api.openai.choices import Choice, ResponseIdentity, to_choices
from serve_app.api.openai.parsing import parse_body
from serve_app.api.openai.prompts import read_prompts
from serve_app.api.service import RequestLimits
from tests.unit.serve_app.api.text_service import LIMITS, MODEL, TOKENIZER

SEED = 2**64 - 5
COMPLETION: dict[str, object] = {"model": MODEL, "prompt": "Once upon"}
CHAT: dict[str, object] = {"model": MODEL, "messages": [{"role": "user", "content": "Hello"}]}


def choices(*, limits: RequestLimits = LIMITS, **fields: Any) -> list[Choice]:
    """Of a completion, or with ``messages`` or ``chat`` of a chat."""
    body = (CHAT if "messages" in fields or "chat" in fields else COMPLETION) | fields
    body.pop("chat", None)
    kind: type[ChatBody | CompletionBody] = ChatBody if "messages" in body else CompletionBody
    parsed = parse_body(json.dumps(body).encode(), kind, limits)
    prompts = read_prompts(parsed, TOKENIZER, limits)
    return to_choices(parsed, prompts, limits, ResponseIdentity("g", "r", SEED))


def generation(*, limits: RequestLimits = LIMITS, **fields: Any) -> GenerationRequest:
    """Of the only choice."""
    (choice,) = choices(limits=limits, **fields)
    return choice.request

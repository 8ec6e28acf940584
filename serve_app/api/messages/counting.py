"""``POST /v1/messages/count_tokens``: how many tokens a prompt has. May be called from any thread."""

import json
from collections.abc import Sequence

from transformers import PreTrainedTokenizerBase

from serve_app.api.api_forms import named_by
from serve_app.api.messages.answers import TokenCount
from serve_app.api.messages.reading import own_name, read_counted
from serve_app.api.openai.fields.ignored import IgnoredFields
from serve_app.api.openai.prompts import chat_text
from serve_app.api.openai.tokenizing import token_ids
from serve_app.api.service import RequestLimits


def count_tokens(
    content: bytes, tokenizer: PreTrainedTokenizerBase, limits: RequestLimits, ignored: IgnoredFields
) -> Sequence[bytes]:
    """Return the answer's JSON. A prompt may be longer than the context, as with ``tokenize``.

    Raises:
        OutriderError: as ``read_counted``; or the chat template refuses the messages.
    """
    body = read_counted(content, limits, ignored)
    with named_by(own_name):
        text = chat_text(body, tokenizer, limits)
        ids = token_ids(text, "messages", tokenizer, limits, special=False)
    counted: TokenCount = {"input_tokens": len(ids)}
    return [json.dumps(counted).encode()]

"""The prompts of a parsed request body, in tokens.

Prompts are tokenised as in vLLM: a chat is rendered by the model's template, then tokenised as one text. Text that
spells a special token, such as ``<|im_end|>``, therefore becomes that token, in message contents too. Unlike there,
system turns may be joined first (``fields.system_turns``).
"""

from dataclasses import dataclass
from functools import partial
from typing import Any

from transformers import PreTrainedTokenizerBase

from outrider.contracts.errors import ParameterError
from outrider.text.tokens import backend_of
from serve_app.api.http_errors import PromptTooLongError, UnsupportedFieldError
from serve_app.api.openai.bodies import ChatBody, CompletionBody
from serve_app.api.openai.encoding import decode, encode_bounded
from serve_app.api.openai.fields.system_turns import joined_leading, rendered_whole
from serve_app.api.openai.fields.template import bounded, template_variables, with_reasoning
from serve_app.api.openai.tools.request import read_tools, with_tools
from serve_app.api.service import RequestLimits

MAX_PROMPT_TOKENS = 2**20  # of several prompts together; 36 bytes each


@dataclass(frozen=True, slots=True)
class Prompt:
    """One prompt. ``text`` is exactly what was sent, or the decoded ids, special tokens included."""

    token_ids: tuple[int, ...]
    text: str


def read_prompts(
    body: CompletionBody | ChatBody, tokenizer: PreTrainedTokenizerBase, limits: RequestLimits
) -> list[Prompt]:
    """Tokenise the prompts, at least one; may be called from any thread.

    Raises:
        PromptTooLongError: a prompt leaves no room for an output token.
        ParameterError: a prompt is empty or has ids outside the vocabulary, the chat template refuses the messages, or
            there are too many choices, or too many tokens in all prompts together.
        UnsupportedFieldError: a chat for a model without a chat template.
    """
    if isinstance(body, ChatBody):
        _check_choices("n", 1, body.n, limits.max_choices)
        text = chat_text(body, tokenizer, limits)
        ids = _tokenised(text, "messages", tokenizer, limits, add_special_tokens=False)
        return [_checked(Prompt(tuple(ids), text), "messages", limits)]
    given, prompts, tokens = _given(body.prompt), list[Prompt](), 0
    _check_choices("prompt", len(given), body.n, limits.max_choices)
    for field, item in given:
        prompts.append(_checked(_completion_prompt(item, field, tokenizer, limits), field, limits))
        tokens += len(prompts[-1].token_ids)
        if tokens > MAX_PROMPT_TOKENS and len(prompts) > 1:
            raise ParameterError("prompt", f"prompts of at most {MAX_PROMPT_TOKENS} tokens together", tokens)
    return prompts


def _check_choices(field: str, prompts: int, n: int, most: int) -> None:
    if prompts * n <= most:
        return
    if n > most:
        raise ParameterError("n", f"an integer in 1..{most}, the choices there may be of a request", n)
    raise ParameterError(field, f"at most {most // n} prompts with n: {n} ({most} choices in all)", prompts)


def _given(prompt: str | list[int] | list[str] | list[list[int]]) -> list[tuple[str, str | list[int]]]:
    """Return each prompt with the path of its field."""
    if isinstance(prompt, str):
        return [("prompt", prompt)]
    ids = [item for item in prompt if isinstance(item, int)]
    several = [item for item in prompt if isinstance(item, str | list)]
    return [(f"prompt[{i}]", item) for i, item in enumerate(several)] or [("prompt", ids)]


def _completion_prompt(
    given: str | list[int], field: str, tokenizer: PreTrainedTokenizerBase, limits: RequestLimits
) -> Prompt:
    if isinstance(given, str):
        return Prompt(tuple(_tokenised(given, field, tokenizer, limits, add_special_tokens=True)), given)
    if len(given) >= limits.max_context_tokens:
        raise _too_long(field, len(given), limits)
    for i, token_id in enumerate(given):
        if not 0 <= token_id < limits.vocab_size:
            raise ParameterError(f"{field}[{i}]", f"a token id in 0..{limits.vocab_size - 1}", token_id)
    return Prompt(tuple(given), decode(given, backend_of(tokenizer)))


def _checked(prompt: Prompt, field: str, limits: RequestLimits) -> Prompt:
    if not prompt.token_ids:
        raise ParameterError(field, "at least one token", "")
    if len(prompt.token_ids) >= limits.max_context_tokens:
        raise _too_long(field, len(prompt.token_ids), limits)
    return prompt


def chat_text(
    body: ChatBody,
    tokenizer: PreTrainedTokenizerBase,
    limits: RequestLimits,
    *,
    opens_answer: bool = True,
    continues: bool = False,
) -> str:
    """Render a chat by the model's template; ``continues``: the last message is left open.

    Raises:
        ParameterError: the template refuses the messages or takes too long, or tools or variables are invalid.
        UnsupportedFieldError: there is no template.
    """
    messages, tools = body.messages, read_tools(body, limits.tool_format)
    template = tokenizer.chat_template
    if template is None:
        raise UnsupportedFieldError(
            "messages", "chat is not supported by this model (no template); use /v1/completions"
        )
    chat = with_tools(messages, tools, str(template), limits.tool_format)
    offered: Any = [dict(tool.given) for tool in tools] or None
    with_reasoning(chat, messages)
    render: Any = partial(
        tokenizer.apply_chat_template,
        tools=offered,
        add_generation_prompt=opens_answer,
        continue_final_message=continues,
        tokenize=False,
        **template_variables(body),
    )
    try:
        text_of = partial(rendered_whole, joined_leading(chat), lambda taken: str(render(conversation=taken)))
        return bounded(partial(text_of, keeps_last=continues))  # all renderings together
    except ParameterError:  # the deadline, or a system turn
        raise
    except Exception as error:  # templates raise any type, such as OverflowError
        roles = ", ".join(message.role for message in messages)
        raise ParameterError("messages", f"what the model's chat template takes ({error})", roles) from error


def _tokenised(
    text: str, field: str, tokenizer: PreTrainedTokenizerBase, limits: RequestLimits, *, add_special_tokens: bool
) -> list[int]:
    if len(text) > limits.max_prompt_chars:
        raise PromptTooLongError(
            field, f"{field} needs at most {limits.max_prompt_chars} characters, found {len(text)}; shorten the text"
        )
    most = limits.max_context_tokens
    ids = encode_bounded(text, backend_of(tokenizer), most, add_special_tokens=add_special_tokens)
    if isinstance(ids, int):
        raise _too_long(field, f"more than {ids}", limits)
    return ids


def _too_long(field: str, found_tokens: int | str, limits: RequestLimits) -> PromptTooLongError:
    most = limits.max_context_tokens - 1
    needed = f"at most {most} tokens (a context of {most + 1}, one of it for output)"
    return PromptTooLongError(field, f"{field} needs {needed}, found {found_tokens} tokens; shorten it")

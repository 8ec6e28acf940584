"""The turns of a Messages request as a chat's messages."""

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Literal

from outrider.contracts.errors import ParameterError
from serve_app.api.messages.bodies import (
    AnsweringBlock,
    AnsweringTurn,
    AskingBlock,
    AskingTurn,
    RedactedThinkingInput,
    TextInput,
    ThinkingInput,
    ToolResultInput,
    ToolUseInput,
)
from serve_app.api.openai.bodies import MAX_MESSAGES, MAX_TOOL_CALLS, ChatMessage
from serve_app.api.openai.fields.ignored import IgnoredFields

_BILLING = "x-anthropic-billing-header"  # begins a line of Claude Code's that differs in each request


def chat_messages(
    system: str | Sequence[TextInput], turns: Sequence[AskingTurn | AnsweringTurn], ignored: IgnoredFields
) -> list[ChatMessage]:
    """Return the chat's messages, with ``system`` first. Texts of one turn are joined by newlines, as in chats.

    Left out, and told in ``ignored``: redacted thinking, whether a result is an error, and the line of ``system`` that
    would keep an agent's prompts from being cached.

    Raises:
        ParameterError: there are too many messages, or calls in one of them.
    """
    messages = list[ChatMessage]()
    texts = [system] if isinstance(system, str) else [block.text for block in system]
    for i, text in enumerate(texts):
        if text.startswith(_BILLING):
            texts[i] = text.partition("\n")[2]
            ignored.tell(f"system.{_BILLING}")
    if kept := [text for text in texts if text]:
        messages.append(ChatMessage(role="system", content="\n".join(kept)))
    for i, turn in enumerate(turns):
        messages += _turn(turn, f"messages[{i}]", ignored)
    if len(messages) > MAX_MESSAGES:
        raise ParameterError("messages", f"at most {MAX_MESSAGES} turns and results of tools", len(messages))
    return messages


def _turn(turn: AskingTurn | AnsweringTurn, where: str, ignored: IgnoredFields) -> Iterator[ChatMessage]:
    if isinstance(turn.content, str):
        yield ChatMessage(role=turn.role, content=turn.content)
    elif isinstance(turn, AnsweringTurn):
        yield _answer(turn.content, where, ignored)
    else:
        yield from _users(turn.role, turn.content, ignored)


def _answer(blocks: Sequence[AnsweringBlock], where: str, ignored: IgnoredFields) -> ChatMessage:
    calls = [block for block in blocks if isinstance(block, ToolUseInput)]
    if len(calls) > MAX_TOOL_CALLS:
        raise ParameterError(f"{where}.content", f"at most {MAX_TOOL_CALLS} calls of tools", len(calls))
    if any(isinstance(block, RedactedThinkingInput) for block in blocks):
        ignored.tell("messages.content.redacted_thinking")
    thoughts = "\n".join(block.thinking for block in blocks if isinstance(block, ThinkingInput))
    return ChatMessage(
        role="assistant",
        content="\n".join(block.text for block in blocks if isinstance(block, TextInput)),
        reasoning_content=thoughts or None,
        tool_calls=[_call(call) for call in calls] or None,
    )


def _users(
    role: Literal["user", "system"], blocks: Sequence[AskingBlock], ignored: IgnoredFields
) -> Iterator[ChatMessage]:
    """Yield a turn's texts and results in their order; an empty turn is an empty text."""
    for results, group in groupby(blocks, lambda block: isinstance(block, ToolResultInput)):
        if results:
            yield from (_result(block, ignored) for block in group if isinstance(block, ToolResultInput))
        else:
            yield ChatMessage(role=role, content="\n".join(each.text for each in group if isinstance(each, TextInput)))
    if not blocks:
        yield ChatMessage(role=role, content="")


def _result(block: ToolResultInput, ignored: IgnoredFields) -> ChatMessage:
    if block.is_error:
        ignored.tell("messages.content.is_error")
    text = block.content if isinstance(block.content, str) else "\n".join(part.text for part in block.content)
    return ChatMessage(role="tool", content=text, tool_call_id=block.tool_use_id)


def _call(block: ToolUseInput) -> dict[str, object]:
    return {"id": block.id, "type": "function", "function": {"name": block.name, "arguments": block.input}}

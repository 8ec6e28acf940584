"""System and developer turns as chat templates take them.

Most templates take one, before all others: later ones are refused (Qwen 3.5, Mistral, Gemma) or left out (gpt-oss).
Agents send several at the beginning, and more within a dialogue.
"""

from collections.abc import Mapping, Sequence
from typing import Any

_ROLES = ("system", "developer")


def joined_leading(chat: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Join the system turns that a chat begins with into one, of the first one's role."""
    leading = next((i for i, message in enumerate(chat) if message["role"] not in _ROLES), len(chat))
    return _with_front(chat[:leading], chat[leading:])


def joined_in_front(chat: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Join all of a chat's system turns into one, before all others."""
    systems = [message for message in chat if message["role"] in _ROLES]
    return _with_front(systems, [message for message in chat if message["role"] not in _ROLES])


def are_told(chat: Sequence[Mapping[str, Any]], rendered: str) -> bool:
    """Whether a rendered chat has the text of each system turn behind the first message."""
    return all(str(message["content"]).strip() in rendered for message in later_turns(chat))


def later_turns(chat: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    return [message for message in chat[1:] if message["role"] in _ROLES]


def _with_front(systems: Sequence[Mapping[str, Any]], others: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    plain = [dict(message) for message in others]
    if not systems:
        return plain
    texts = [str(message["content"]) for message in systems if message["content"]]
    return [{**systems[0], "content": "\n\n".join(texts)}, *plain]

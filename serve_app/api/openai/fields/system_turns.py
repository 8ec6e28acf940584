"""System and developer turns as chat templates take them.

Most templates take one, before all others: later ones are refused (Qwen 3.5, Mistral, Gemma) or left out (gpt-oss).
Agents send several at the beginning, and more within a dialogue.
"""

import re
import secrets
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeAlias

from outrider.contracts.errors import ParameterError

_ROLES = ("system", "developer")
_NEEDED = "system turns that the model's chat template shows; move them to the beginning"
Chat: TypeAlias = Sequence[Mapping[str, Any]]


def joined_leading(chat: Chat) -> list[dict[str, Any]]:
    """Join the system turns that a chat begins with into one, of the first one's role."""
    leading = next((i for i, message in enumerate(chat) if message["role"] not in _ROLES), len(chat))
    return _with_front(chat[:leading], chat[leading:])


def rendered_whole(chat: Chat, render: Callable[[Chat], str], *, keeps_last: bool = False) -> str:
    """Render a chat; where the template refuses or leaves out a later system turn, all of them as one in front.

    ``keeps_last``: the last message stays where it is.

    Raises:
        ParameterError: the template leaves it out there, too.
    """
    if not any(message["role"] in _ROLES for message in chat[1:]):
        return render(chat)
    with suppress(Exception):  # templates raise any type
        text = render(chat)
        if _are_shown(chat, range(1, len(chat)), render):
            return text
    moved = chat[:-1] if keeps_last else chat
    systems = [message for message in moved if message["role"] in _ROLES]
    others = [message for message in moved if message["role"] not in _ROLES]
    joined = _with_front(systems, [*others, *chat[len(moved) :]])
    text = render(joined)
    if not _are_shown(joined, range(1), render):
        raise ParameterError("messages", _NEEDED, ", ".join(message["role"] for message in chat))
    return text


def _are_shown(chat: Chat, places: Sequence[int], render: Callable[[Chat], str]) -> bool:
    """Whether system turns of these places are rendered: another turn may quote them, so marks take their place."""
    mark, marked = secrets.token_hex(8), list(chat)
    asked = [i for i in places if chat[i]["role"] in _ROLES and str(chat[i]["content"]).strip()]
    for i in asked:
        marked[i] = {**chat[i], "content": f"{mark}-{i}."}
    return len(set(re.findall(rf"{mark}-\d+\.", render(marked)))) == len(asked)


def _with_front(systems: Chat, others: Chat) -> list[dict[str, Any]]:
    plain = [dict(message) for message in others]
    if not systems:
        return plain
    texts = [str(message["content"]) for message in systems if message["content"]]
    return [{**systems[0], "content": "\n\n".join(texts)}, *plain]

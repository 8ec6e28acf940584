"""Is a drafter's answer what was asked for? A device is not trusted to answer sensibly."""

from outrider.engines.base import Draft, DraftRequest

_SHOWN_CHARS = 40


def draft_fault(draft: object, request: DraftRequest, vocab_size: int) -> str | None:
    """What is wrong with an answer, or None.

    A shorter block than the window is allowed (stop rules, a nearly full context); anything else is not.
    """
    if not isinstance(draft, Draft):
        return f"needs to answer with a draft, found a {type(draft).__name__}"
    for field, needed in (
        ("generation", request.generation),
        ("round", request.round),
        ("position", request.feedback_position + len(request.feedback)),
    ):
        found = getattr(draft, field, None)  # a draft that was unpickled may lack any field
        if type(found) is not type(needed) or found != needed:
            return f"needs {field} {needed}, found {_shown(found)}"
    token_ids = getattr(draft, "token_ids", None)
    if type(token_ids) is not tuple:
        return f"needs a tuple of token ids, found a {type(token_ids).__name__}"
    if len(token_ids) > request.window:
        return f"needs at most {request.window} tokens, found {len(token_ids)}"
    for token_id in token_ids:
        if type(token_id) is not int or not 0 <= token_id < vocab_size:
            return f"needs token ids in 0..{vocab_size - 1}, found {_shown(token_id)}"
    return None


def _shown(value: object) -> str:
    """The beginning of a value, which may be anything."""
    try:
        return f"{value!r:.{_SHOWN_CHARS}}"
    except Exception:  # noqa: BLE001 (an integer of many digits cannot be shown; other values may do worse)
        return f"a {type(value).__name__}"

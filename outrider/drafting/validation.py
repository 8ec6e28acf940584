"""Is a drafter's answer what was asked for? A device is not trusted to answer sensibly."""

from outrider.engines.base import Draft, DraftRequest


def draft_fault(draft: Draft, request: DraftRequest, vocab_size: int) -> str | None:
    """What is wrong with an answer, or None.

    A shorter block than the window is allowed (stop rules, a nearly full context); anything else is not.
    """
    position = request.feedback_position + len(request.feedback)
    for what, needed, found in (
        ("generation", request.generation, draft.generation),
        ("round", request.round, draft.round),
        ("position", position, draft.position),
    ):
        if needed != found:
            return f"needs {what} {needed}, found {found}"
    if len(draft.token_ids) > request.window:
        return f"needs at most {request.window} tokens, found {len(draft.token_ids)}"
    for token_id in draft.token_ids:
        if not 0 <= token_id < vocab_size:
            return f"needs token ids in 0..{vocab_size - 1}, found {token_id}"
    return None

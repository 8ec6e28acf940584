"""Checks a joining drafter against the target: versions, token map and model; a mismatch is refused with its reason."""

from outrider.models.head_file import HeadInfo
from outrider.models.pair_file import pair_fault
from outrider.versions import VERSIONS
from outrider.wire.replies import DrafterCard


def handshake_fault(
    card: object, token_map_hash: str, model_hash: str | None, head: HeadInfo | None = None
) -> str | None:
    """Return why a drafter may not draft for the target, or None if it may.

    Args:
        card: the drafter's own card.
        token_map_hash: the target's. A drafter whose ids mean other tokens would be accepted by chance only.
        model_hash: the group's model, configured or else that of its first drafter; None for that one. A group has one
            model, as acceptance statistics are kept by model.
        head: the decision head for the group's model, if there is one.
    """
    if not isinstance(card, DrafterCard):
        return f"needs a model card, found a {type(card).__name__}; install the same version of outrider on its device"
    if (fault := VERSIONS.fault(card.versions)) is not None:
        return f"needs {fault}; install the same version of outrider on its device"
    if card.token_map_hash != token_map_hash:
        return (
            f"needs token map {token_map_hash:.12}, found {card.token_map_hash!s:.12}; give its group a drafter made "
            "for this target"
        )
    if model_hash is not None and card.model_hash != model_hash:
        return (
            f"needs model {model_hash:.12} as its group, found {card.model_hash!s:.12}; copy the group's model to its "
            "device"
        )
    return None if head is None else pair_fault(head, drafter_hash=card.model_hash)

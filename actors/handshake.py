"""May a drafter draft for this target? Decided when it joins; one that may not is refused with the reason."""

from actors.messages import PROTOCOL_VERSION, ModelCard
from outrider.models.head_file import HeadInfo
from outrider.models.pair_file import pair_fault
from outrider.sampling.noise import NOISE_VERSION


def handshake_fault(
    card: object, token_map_hash: str, model_hash: str | None, head: HeadInfo | None = None
) -> str | None:
    """What is wrong with a drafter, or None.

    Args:
        card: what it says of itself.
        token_map_hash: the target's. A drafter whose ids mean other tokens would be accepted by chance only.
        model_hash: what every drafter of its group runs, by the configuration; where that does not say, by the first
            of its group, and None of that. Acceptance statistics are kept by model, so a group is of one model.
        head: who is to judge its mismatches.

    Returns:
        What was needed, what was found and what to do.
    """
    if not isinstance(card, ModelCard):
        return f"needs a model card, found a {type(card).__name__}; install the same version of outrider on its device"
    version = getattr(card, "protocol_version", None)  # a card of another version may lack any field
    if version != PROTOCOL_VERSION:
        return (
            f"needs protocol version {PROTOCOL_VERSION}, found {version}; install the same version of outrider on its "
            "device"
        )
    noise = getattr(card, "noise_version", None)
    if noise != NOISE_VERSION:  # it would draft what the target's own noise does not draw
        return f"needs noise version {NOISE_VERSION}, found {noise}; install the same version of outrider on its device"
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

"""Whose response is it? One that was begun by one target is not gone on with by another."""

from actors.messages import ModelCard
from outrider.contracts.errors import OtherTargetError
from outrider.contracts.requests import GenerationRequest


def check_target(card: ModelCard, request: GenerationRequest) -> None:
    """Refuse what another target has begun, or what was written in another one's token ids.

    During an update coordinators of the old and the new target serve side by side, and either may be asked to go on.

    Raises:
        OtherTargetError: this target is not meant.
    """
    for what, needed, found in (
        ("target", request.target, card.target),
        ("token map", request.token_map, card.token_map_hash),
    ):
        if needed not in ("", found):
            raise OtherTargetError(f"needs {what} {needed}, found {found}: the target was replaced; try again")

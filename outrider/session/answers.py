"""Check that a drafter's answer could have been drawn as requested, as devices are not trusted.

Shape, ids and numbers were checked when the message was read (``session``). What no format can exclude remains: tokens
without probability.
"""

from outrider.contracts.drafting import Draft, DraftRequest
from outrider.contracts.exchanged import CorrectionSource, TargetRow
from outrider.contracts.requests import SamplingParams
from outrider.contracts.tree import node_depths
from outrider.protocols.registry import PROTOCOLS


def draft_fault(draft: Draft, request: DraftRequest, params: SamplingParams) -> str | None:
    """Return what is wrong with a decoded answer, or None."""
    correction, source = draft.correction, request.correction
    if correction is not None and source is not None and not _possible(correction, source):
        return f"needs a correction that the target can draw, found {correction}"
    return PROTOCOLS[request.plan.protocol].fault(draft, params)


def drafted_layers(draft: Draft) -> int:
    """Return the tokens on the longest path of a block."""
    return len(draft.token_ids) if draft.parents is None else max(node_depths(draft.parents), default=0)


def _possible(correction: int, source: CorrectionSource) -> bool:
    """Return whether the source of a correction contains the token; the device's own distribution is not known here."""
    if isinstance(source, TargetRow) and source.token_ids is None:
        return bool(source.probs[correction] > 0.0)
    return bool((source.probs[source.token_ids == correction] > 0.0).any())

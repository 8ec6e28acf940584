"""Could a drafter's answer have been drawn as it was asked for? A device is not trusted to answer sensibly.

Shape, ids and numbers are as the request needs them, or the message would not have been read (``session``). Left is
what no format can rule out: tokens without probability.
"""

from outrider.contracts.drafting import Draft, DraftRequest
from outrider.contracts.exchanged import CorrectionSource, TargetRow
from outrider.contracts.requests import SamplingParams
from outrider.contracts.tree import node_depths
from outrider.protocols.registry import PROTOCOLS


def draft_fault(draft: Draft, request: DraftRequest, params: SamplingParams) -> str | None:
    """What is wrong with a decoded answer, or None."""
    correction, source = draft.correction, request.correction
    if correction is not None and source is not None and not _possible(correction, source):
        return f"needs a correction the target could have said, found {correction}"
    return PROTOCOLS[request.plan.protocol].fault(draft, params)


def drafted_layers(draft: Draft) -> int:
    """Tokens on the longest path of a block."""
    return len(draft.token_ids) if draft.parents is None else max(node_depths(draft.parents), default=0)


def _possible(correction: int, source: CorrectionSource) -> bool:
    """Whether what the device drew from has the token; its own distribution is not known here."""
    if isinstance(source, TargetRow) and source.token_ids is None:
        return bool(source.probs[correction] > 0.0)
    return bool((source.probs[source.token_ids == correction] > 0.0).any())

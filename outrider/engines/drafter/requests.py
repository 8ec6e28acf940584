"""Requests a drafter cannot carry out, told before anything is run."""

import numpy as np

from outrider.contracts.drafting import DraftPlan, DraftRequest
from outrider.contracts.errors import ParameterError, UnsupportedBlockError
from outrider.contracts.exchanged import CorrectionSource, IntRow, TargetRow
from outrider.protocols.registry import PROTOCOLS, tree_protocols


def check_request(request: DraftRequest, vocab_size: int) -> None:
    """Refuse what makes no sense.

    Raises:
        UnsupportedBlockError: a tree of a protocol that has none.
        ParameterError: the plan's numbers contradict each other, or the correction's source is no distribution over
            this vocabulary.
    """
    _check_plan(request.plan)
    if request.correction is not None:
        _check_source(request.correction, vocab_size)


def _check_plan(plan: DraftPlan) -> None:
    if plan.window < 0:
        raise ParameterError("plan.window", "an integer >= 0", plan.window)
    if plan.expansion and not PROTOCOLS[plan.protocol].trees:
        raise UnsupportedBlockError(
            f"{plan.protocol} drafts chains, found a tree of {plan.expansion}; use one of {', '.join(tree_protocols())}"
        )
    if plan.expansion and (len(plan.expansion) != plan.window or min(plan.expansion) < 1):
        raise ParameterError("plan.expansion", f"{plan.window} integers >= 1 (one per layer)", plan.expansion)


def _check_source(source: CorrectionSource, vocab_size: int) -> None:
    token_ids, probs = source.token_ids, source.probs
    if token_ids is None:
        if probs.shape != (vocab_size,):
            raise ParameterError("correction.probs", f"shape ({vocab_size},), the vocabulary", probs.shape)
    elif token_ids.shape != probs.shape or token_ids.ndim != 1 or not token_ids.size:
        raise ParameterError("correction.token_ids", "one for each probability, at least one", token_ids.shape)
    elif token_ids.min() < 0 or token_ids.max() >= vocab_size:
        raise ParameterError("correction.token_ids", f"ids in 0..{vocab_size - 1}", _outside(token_ids, vocab_size))
    elif isinstance(source, TargetRow) and (np.diff(token_ids) <= 0).any():
        raise ParameterError("correction.token_ids", "strictly ascending ids", token_ids.tolist()[:8])
    if not (np.isfinite(probs) & (probs >= 0.0)).all() or not probs.any():
        raise ParameterError("correction.probs", "finite numbers >= 0, not all 0", probs.tolist()[:8])


def _outside(token_ids: IntRow, vocab_size: int) -> int:
    return int(token_ids[(token_ids < 0) | (token_ids >= vocab_size)][0])

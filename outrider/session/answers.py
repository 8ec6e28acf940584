"""Is a drafter's answer what was asked for? A device is not trusted to answer sensibly."""

from collections import Counter

import numpy as np

from outrider.contracts.drafting import Draft, DraftPlan, DraftRequest
from outrider.contracts.exchanged import CorrectionSource, DenseDraft, FloatRow, ScalarDraft, SparseDraft, TargetRow
from outrider.contracts.requests import ProtocolName
from outrider.contracts.tree import inner_rows, node_depths

_SHOWN_CHARS = 40
_MIN_BITS, _MAX_BITS = 8, 32
_NOTHING = type(None)
_TOLD: dict[ProtocolName, tuple[type, ...]] = {
    ProtocolName.TOKEN_IDS: (_NOTHING,),
    ProtocolName.DSD: (DenseDraft,),
    ProtocolName.TSLT: (SparseDraft,),
    ProtocolName.TSLT_TREE: (SparseDraft, _NOTHING),  # greedy trees are drawn from nothing
    ProtocolName.DSSD: (ScalarDraft,),
    ProtocolName.DSSD_CANDIDATES: (ScalarDraft,),
}


def draft_fault(draft: object, request: DraftRequest, vocab_size: int, *, greedy: bool) -> str | None:
    """What is wrong with an answer, or None. ``greedy`` is the request's: only then a tree needs no distributions.

    A smaller block than planned is allowed (stop rules, a nearly full context, nothing left to draw, a correction that
    ends the response); anything else is not.
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
    correction = getattr(draft, "correction", None)
    if request.correction is None and correction is not None:
        return f"needs no correction, found {_shown(correction)}"
    if request.correction is not None and not _is_token(correction, vocab_size):
        return f"needs a correction in 0..{vocab_size - 1}, found {_shown(correction)}"
    if request.correction is not None and not _possible(correction, request.correction):
        return f"needs a correction the target could have said, found {_shown(correction)}"
    return (
        _tokens_fault(getattr(draft, "token_ids", None), request.plan.nodes, vocab_size)
        or _parents_fault(getattr(draft, "parents", None), len(draft.token_ids), request.plan)
        or _distribution_fault(draft, request.plan.protocol, vocab_size, greedy=greedy)
    )


def drafted_layers(draft: Draft) -> int:
    """Tokens on the longest path of a block."""
    return len(draft.token_ids) if draft.parents is None else max(node_depths(draft.parents), default=0)


def _possible(correction: object, source: CorrectionSource) -> bool:
    """Whether what the device drew from has the token; its own distribution is not known here."""
    if isinstance(source, TargetRow) and source.token_ids is None:
        return bool(source.probs[correction] > 0.0)  # type: ignore[call-overload]  # checked to be a token
    return bool((source.probs[source.token_ids == correction] > 0.0).any())


def _tokens_fault(token_ids: object, most: int, vocab_size: int) -> str | None:
    if type(token_ids) is not tuple:
        return f"needs a tuple of token ids, found a {type(token_ids).__name__}"
    if len(token_ids) > most:
        return f"needs at most {most} tokens, found {len(token_ids)}"
    for token_id in token_ids:
        if not _is_token(token_id, vocab_size):
            return f"needs token ids in 0..{vocab_size - 1}, found {_shown(token_id)}"
    return None


def _parents_fault(parents: object, nodes: int, plan: DraftPlan) -> str | None:
    """Layer by layer, the children of one node side by side: parents never descend."""
    if not plan.expansion:
        return None if parents is None else f"needs a chain, found a tree of parents {_shown(parents)}"
    if type(parents) is not tuple or len(parents) != nodes:
        return f"needs {nodes} parents, found {_shown(parents)}"
    least = -1
    for node, parent in enumerate(parents):
        if type(parent) is not int or not least <= parent < node:
            return f"needs a parent in {least}..{node - 1} of node {node}, found {_shown(parent)}"
        least = parent
    depths = node_depths(parents)
    if depths and depths[-1] > len(plan.expansion):
        return f"needs at most {len(plan.expansion)} layers, found {depths[-1]}"
    for parent, children in Counter(parents).items():
        most = plan.expansion[0 if parent < 0 else depths[parent]]
        if children > most:
            return f"needs at most {most} children of node {parent}, found {children}"
    return None


def _distribution_fault(draft: Draft, protocol: ProtocolName, vocab_size: int, *, greedy: bool) -> str | None:
    told = getattr(draft, "distribution", None)
    left_out = told is None and protocol is not ProtocolName.TOKEN_IDS and not greedy
    if type(told) not in _TOLD[protocol] or left_out:
        return f"needs a {_TOLD[protocol][0].__name__}, found a {type(told).__name__}"
    if isinstance(told, ScalarDraft):
        return _scalar_fault(told, len(draft.token_ids))
    if isinstance(told, DenseDraft):
        return _dense_fault(told, draft.token_ids, vocab_size)
    if isinstance(told, SparseDraft):
        return _sparse_fault(told, draft, vocab_size)
    return None


def _scalar_fault(told: ScalarDraft, nodes: int) -> str | None:
    numerators, bits = getattr(told, "numerators", None), getattr(told, "bits", None)
    if type(bits) is not int or not _MIN_BITS <= bits <= _MAX_BITS:
        return f"needs {_MIN_BITS}..{_MAX_BITS} bits, found {_shown(bits)}"
    if not _is_array(numerators, np.int64, (nodes,)):
        return f"needs {nodes} numerators, found {_shown(numerators)}"
    if nodes and not (told.numerators.min() >= 1 and told.numerators.max() <= 2**bits):
        return f"needs numerators in 1..{2**bits}, found {_shown(told.numerators.tolist())}"
    return None


def _dense_fault(told: DenseDraft, token_ids: tuple[int, ...], vocab_size: int) -> str | None:
    logits = getattr(told, "logits", None)
    if not _is_array(logits, np.float32, (len(token_ids), vocab_size)):
        return f"needs logits of shape {(len(token_ids), vocab_size)}, found {_shown(getattr(logits, 'shape', logits))}"
    if not told.logits.max(initial=-np.inf) < np.inf:  # NaN included
        return "needs logits below infinity, found others"
    for row, token_id in zip(told.logits, token_ids, strict=True):
        if not _can_be_drawn(row, token_id):
            return f"needs tokens drawn from their rows, found {token_id} without probability"
    return None


def _sparse_fault(told: SparseDraft, draft: Draft, vocab_size: int) -> str | None:
    ids, logits = getattr(told, "token_ids", None), getattr(told, "logits", None)
    nodes = len(draft.token_ids)
    parents = range(-1, nodes - 1) if draft.parents is None else draft.parents
    row_of = {parent: row for row, parent in enumerate(inner_rows(parents))}
    if type(ids) is not tuple or type(logits) is not tuple or not len(ids) == len(logits) == len(row_of):
        return f"needs {len(row_of)} rows, found {_shown(ids)}"
    for row_ids, row_logits in zip(ids, logits, strict=True):
        if type(row_ids) is not np.ndarray or not row_ids.size or not _is_array(row_ids, np.int64, (row_ids.size,)):
            return f"needs a row of token ids, found {_shown(row_ids)}"
        if row_ids[0] < 0 or row_ids[-1] >= vocab_size or (np.diff(row_ids) <= 0).any():
            return f"needs ascending token ids in 0..{vocab_size - 1}, found {_shown(row_ids.tolist())}"
        if not _is_array(row_logits, np.float32, row_ids.shape) or not np.isfinite(row_logits).all():
            return f"needs {row_ids.size} finite logits, found {_shown(row_logits)}"
    for token_id, parent in zip(draft.token_ids, parents, strict=True):
        row = row_of[parent]
        place = int(np.searchsorted(told.token_ids[row], token_id))
        kept = place < told.token_ids[row].size and told.token_ids[row][place] == token_id
        if not kept or not _can_be_drawn(told.logits[row], place):
            return f"needs tokens drawn from their rows, found {token_id} without probability"
    return None


def _can_be_drawn(logits: FloatRow, index: int) -> bool:
    """Whether the softmax has a positive probability there."""
    return bool(np.exp(np.float64(logits[index]) - np.float64(logits.max())) / logits.size > 0.0)


def _is_token(value: object, vocab_size: int) -> bool:
    return type(value) is int and 0 <= value < vocab_size


def _is_array(value: object, dtype: type, shape: tuple[int, ...]) -> bool:
    return type(value) is np.ndarray and value.dtype == dtype and value.shape == shape


def _shown(value: object) -> str:
    """The beginning of a value, which may be anything."""
    try:
        return f"{value!r:.{_SHOWN_CHARS}}"
    except Exception:  # noqa: BLE001 (an integer of many digits cannot be shown; other values may do worse)
        return f"a {type(value).__name__}"

"""Adjust one row of logits and choose its token with numpy alone, for devices without torch.

Of the same logits the same token as ``choosing.choose_tokens`` draws: each step is the same operation of float32. Only
top-p sums exponentials, whose last bits are a library's own: within 1e-7 of the wanted mass the two may keep one token
more or less, which costs a device that draft token and no answer anything.
"""

import math

import numpy as np

from outrider.contracts.errors import ParameterError
from outrider.contracts.exchanged import FloatRow, IntRow
from outrider.sampling.noise import noisy_scores
from outrider.sampling.row_groups import RowGroup

_REMOVED = np.float32(-np.inf)
_TOP_P_CANDIDATES = 64
_TOP_P_GROWTH = 8


def whole_row(row: FloatRow, token_ids: IntRow | None, vocab_size: int) -> FloatRow:
    """Return ``[vocab]`` of ``[n]`` logits of some tokens, -inf for the others; ``token_ids`` None: it is whole."""
    if token_ids is None:
        return row
    spread = np.full(vocab_size, _REMOVED)
    spread[token_ids] = row
    return spread


def choose_token(row: FloatRow, group: RowGroup, token_ids: IntRow | None, vocab_size: int) -> int:
    """Choose the token of a group's only row: the argmax if greedy (lowest id on ties), else that of ``noisy_scores``.

    Args:
        row: float32, ``[vocab]``, or ``[n]`` of ``token_ids`` (ascending int64); never written to.
        group: parameters, position and counts; without a grammar's mask.
        token_ids: what the columns stand for; None: all tokens.
        vocab_size: number of tokens.

    Raises:
        ParameterError: a logit bias names a token outside the vocabulary.
    """
    if group.names_tokens:
        row, token_ids = whole_row(row, token_ids, vocab_size), None
    adjusted, params = adjust_row(row, group), group.params
    if not params.greedy:
        adjusted = noisy_scores(adjusted, params.seed, group.position, token_ids=token_ids)
    best = int(adjusted.argmax())
    return best if token_ids is None else int(token_ids[best])


def adjust_row(row: FloatRow, group: RowGroup) -> FloatRow:
    """Apply bias, penalties, withheld tokens, temperature and truncation as ``logits.adjust_logits``.

    ``row``: ``[vocab]``, or of some tokens if the group names none; never written to. Returns float32.
    """
    params = group.params
    adjusted = _edited(row.astype(np.float32), group) if group.names_tokens else row.astype(np.float32, copy=False)
    if params.greedy:
        return adjusted
    if params.temperature != 1.0:
        # The largest logit is shifted to 0 first, so that no temperature overflows.
        with np.errstate(invalid="ignore", over="ignore"):
            scale = max(np.float32(params.temperature), np.finfo(np.float32).tiny)
            adjusted = (adjusted - adjusted.max()) / scale
    if params.top_k:
        most = min(params.top_k, len(adjusted))
        adjusted = _best(adjusted, np.partition(adjusted, -most)[-most], most)
    if params.top_p != 1.0:
        adjusted = _best(adjusted, *_reaching(adjusted, params.top_p))
    if params.min_p:
        least = adjusted.max() + np.float32(math.log(params.min_p))
        adjusted = _best(adjusted, least, len(adjusted) if params.min_p < 1.0 else 1)
    return adjusted


def _edited(row: FloatRow, group: RowGroup) -> FloatRow:
    """Write a group's bias, penalties and withheld tokens into ``row``."""
    params = group.params
    if params.logit_bias:
        ids, biases = zip(*params.logit_bias, strict=True)
        if max(ids) >= len(row):
            raise ParameterError("logit_bias", f"token ids below the vocabulary's size {len(row)}", max(ids))
        total = np.zeros(len(row), np.float32)
        np.add.at(total, list(ids), np.asarray(biases, np.float32))
        row += total
    if params.penalised:
        assert group.counts is not None
        seen = np.flatnonzero(group.counts.seen)
        values, output = row[seen], group.counts.output[seen]
        repetition = np.float32(params.repetition_penalty)
        values = np.where(values > 0, values / repetition, values * repetition)
        penalty = params.frequency_penalty * output + params.presence_penalty * (output > 0)
        row[seen] = values - penalty.astype(np.float32)
    if group.withheld_rows:
        row[[token_id for token_id in params.withheld_ids if 0 <= token_id < len(row)]] = _REMOVED
    return row


def _reaching(row: FloatRow, top_p: float) -> tuple[np.float32, int]:
    """Return the last logit of the smallest set whose mass reaches ``top_p``, and the set's size (TSLT eq. 14)."""
    largest = row.max()
    with np.errstate(invalid="ignore"):
        confidence = np.float64(np.float32(1.0) / np.exp(row - largest).sum(dtype=np.float32))
    candidates = min(_TOP_P_CANDIDATES, len(row))
    while True:
        best = np.sort(np.partition(row, -candidates)[-candidates:])[::-1]
        with np.errstate(invalid="ignore"):
            mass = (np.exp(best - largest) * confidence).cumsum()
        before = int((mass < top_p).sum())  # tokens before the one that reaches it
        if before < candidates or candidates == len(row):
            return best[min(before, candidates - 1)], before + 1
        candidates = min(candidates * _TOP_P_GROWTH, len(row))


def _best(row: FloatRow, least: np.float32, most: int) -> FloatRow:
    """Remove logits below ``least``, and all but ``most`` of the others: of those equal to it the lowest ids stay."""
    kept: FloatRow = np.where(row >= least, row, _REMOVED)
    if (surplus := np.count_nonzero(row >= least) - most) > 0:
        kept[np.flatnonzero(row == least)[-surplus:]] = _REMOVED
    return kept

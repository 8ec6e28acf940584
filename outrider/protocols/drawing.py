"""What a row of draft logits becomes under each protocol: the tokens drawn from it, and what is told of it.

"Quantise, then sample": a row is first rounded to what the message can carry, and the tokens are drawn from the
distribution as decoded, so that both ends of the link compute with the same numbers. For greedy requests the
distribution is one-hot at the argmax, which any rounding keeps.

Noise: number i of ``DRAFT_TOKEN`` at a position is sibling i's; ``token_ids`` draws with the noise the target draws
with. Nodes of one depth share their noise: only one of them can be on the path that is accepted.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from outrider.contracts.exchanged import (
    DenseDraft,
    DraftDistribution,
    FloatRow,
    IntRow,
    ScalarDraft,
    SparseDraft,
    WireFormat,
)
from outrider.contracts.requests import SPLIT_PROTOCOLS, TREE_PROTOCOLS, ProtocolName, SamplingParams
from outrider.sampling.choosing import noisy_scores
from outrider.sampling.distributions import Probs, draw, fixed_point, softmax, without
from outrider.sampling.noise import Purpose, uniforms
from outrider.sampling.rounding import rounded_logits, truncated


@dataclass(frozen=True, slots=True, eq=False)
class DrawnRow:
    """Tokens drawn from one row; of the rest, what the protocol tells.

    Attributes:
        token_ids: the children, in the order of their noise; fewer than wanted if the support ran out.
        support: ``[n]`` int64, ids of a truncated row.
        logits: ``[n]`` of them, or ``[vocab]`` of a whole row, float32 as decoded.
        numerators: ``[vocab]`` int64, a whole row in fixed point. Only the drawn tokens' cross the link.
    """

    token_ids: tuple[int, ...]
    support: IntRow | None = None
    logits: FloatRow | None = None
    numerators: IntRow | None = None


@dataclass(frozen=True, slots=True)
class RowRule:
    """How the rows of one depth are drawn from.

    Attributes:
        protocol: what the tokens are drawn from.
        wire: how it is rounded.
        params: the request's; the logits are adjusted by them already.
        position: absolute position of the tokens drawn.
        children: tokens to draw from each row.
    """

    protocol: ProtocolName
    wire: WireFormat
    params: SamplingParams
    position: int
    children: int


def draw_rows(logits: npt.NDArray[np.float32], rule: RowRule) -> list[DrawnRow]:
    """Draw from adjusted logits, ``[n, vocab]`` float32, -inf where removed: the rows of one depth."""
    params, position = rule.params, rule.position
    if rule.protocol is ProtocolName.TOKEN_IDS and not params.greedy:
        return [DrawnRow(_best(row, rule.children)) for row in noisy_scores(logits, params.seed, position)]
    if params.greedy:
        return [_greedy(row, rule) for row in logits]
    numbers = uniforms(params.seed, position, Purpose.DRAFT_TOKEN, rule.children).tolist()
    return [_sampled(row, rule, numbers) for row in logits]


def fixed_point_row(logits: FloatRow, wire: WireFormat, params: SamplingParams) -> IntRow:
    """The row in fixed point that DSSD draws from: ``[vocab]`` int64 numerators of ``2**-wire.scalar_bits``."""
    if params.greedy:
        return _one_hot(logits.size, int(logits.argmax()), 2**wire.scalar_bits)
    return fixed_point(softmax(logits), wire.scalar_bits)


def fixed_point_probs(numerators: IntRow, wire: WireFormat) -> Probs:
    """Its probabilities, exactly: ``[vocab]`` float64."""
    probs: Probs = numerators.astype(np.float64) * 2.0**-wire.scalar_bits
    return probs


def told_distribution(
    protocol: ProtocolName, wire: WireFormat, params: SamplingParams, rows: Sequence[DrawnRow]
) -> DraftDistribution:
    """What the protocol's message tells of the rows of a block, in order."""
    if protocol is ProtocolName.DSD:
        whole = [row.logits for row in rows if row.logits is not None]
        return DenseDraft(np.stack(whole) if whole else np.zeros((0, wire.vocab_size), dtype=np.float32))
    if protocol in SPLIT_PROTOCOLS:
        drawn = [row.numerators[row.token_ids[0]] for row in rows if row.numerators is not None]
        return ScalarDraft(np.array(drawn, dtype=np.int64), wire.scalar_bits)
    if protocol is ProtocolName.TSLT or (protocol is ProtocolName.TSLT_TREE and not params.greedy):
        return SparseDraft(
            tuple(row.support for row in rows if row.support is not None),
            tuple(row.logits for row in rows if row.logits is not None),
        )
    return None


def _greedy(row: FloatRow, rule: RowRule) -> DrawnRow:
    vocab, protocol = row.size, rule.protocol
    if protocol in TREE_PROTOCOLS:
        return DrawnRow(_best(row, rule.children))
    best = int(row.argmax())
    if protocol is ProtocolName.DSD:
        logits = np.full(vocab, -np.inf, dtype=np.float32)
        logits[best] = 0.0
        return DrawnRow((best,), logits=logits)
    if protocol is ProtocolName.TSLT:
        return DrawnRow((best,), np.array([best], dtype=np.int64), np.zeros(1, dtype=np.float32))
    return DrawnRow((best,), numerators=_one_hot(vocab, best, 2**rule.wire.scalar_bits))


def _sampled(row: FloatRow, rule: RowRule, numbers: Sequence[float]) -> DrawnRow:
    if rule.protocol is ProtocolName.DSD:
        logits = rounded_logits(row, rule.wire.logit_field)
        return DrawnRow(_siblings(softmax(logits), numbers, distinct=False), logits=logits)
    if rule.protocol in SPLIT_PROTOCOLS:
        numerators = fixed_point_row(row, rule.wire, rule.params)
        probs = fixed_point_probs(numerators, rule.wire)
        return DrawnRow(_siblings(probs, numbers, distinct=False), numerators=numerators)
    support, logits = truncated(row, rule.wire)
    drawn = _siblings(softmax(logits), numbers, distinct=rule.wire.distinct_siblings)
    return DrawnRow(tuple(support[list(drawn)].tolist()), support, logits)


def _siblings(probs: Probs, numbers: Sequence[float], *, distinct: bool) -> tuple[int, ...]:
    """One index per number; without replacement as long as there is anything left to draw."""
    drawn: list[int] = []
    for number in numbers:
        if distinct and drawn:
            probs = without(probs, drawn[-1])
            if not probs.any():
                break
        drawn.append(draw(probs, number))
    return tuple(drawn)


def _best(scores: FloatRow, count: int) -> tuple[int, ...]:
    """The tokens with the largest scores, best first, lowest id first on ties; none that was removed."""
    if count == 1:
        return (int(scores.argmax()),)
    count = min(count, scores.size)
    least = np.partition(scores, scores.size - count)[scores.size - count]
    candidates = np.flatnonzero((scores >= least) & (scores > -np.inf))
    order = np.argsort(-scores[candidates], kind="stable")[:count]
    return tuple(candidates[order].tolist())


def _one_hot(size: int, index: int, value: int) -> IntRow:
    row = np.zeros(size, dtype=np.int64)
    row[index] = value
    return row

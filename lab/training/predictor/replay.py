"""Replay of verified tokens: the probabilities of a device that recalibrates after each round."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from lab.training.predictor.drafted import DraftedTokens, Floats
from lab.training.predictor.quality import calibration_error, log_loss
from outrider.contracts.verifying import AcceptanceRule
from outrider.drafting.acceptance import sigmoid
from outrider.drafting.recalibration import ChainVerdict, Recalibration, SentChain


@dataclass(frozen=True, slots=True)
class Replay:
    """One predictor on some tokens, fixed and recalibrated."""

    tokens: int  # number
    loss_before: float  # log loss of the fixed predictor
    loss: float  # of the recalibrated one
    error_before: float | None  # calibration error of the fixed predictor
    error: float | None  # of the recalibrated one


def replay(logits: Floats, tokens: DraftedTokens, rule: AcceptanceRule, window_tokens: int) -> dict[str, Replay]:
    """Replay responses one after the other, round by round, as a device sees them; by temperature, ``all`` first.

    ``logits``: ``[N]``, the predictor's, of ``tokens`` of rounds of at most ``window_tokens``, verified by ``rule``.
    """
    recalibration, reported = Recalibration({}), np.empty(len(tokens))
    for part in _rounds(tokens, window_tokens):
        temperature, own = float(tokens.temperature[part.start]), tuple(logits[part].tolist())
        known = recalibration.calibration(rule, temperature)
        reported[part] = [known.probability(logit) for logit in own]
        accepted = int(tokens.accepted[part].sum())
        recalibration.learn(ChainVerdict(SentChain(rule, temperature, own), accepted, accepted < len(own)))
    before = np.array([sigmoid(logit) for logit in logits.tolist()])
    parts = {"all": np.ones(len(tokens), np.bool_)}
    if len(found := np.unique(tokens.temperature)) > 1:
        parts |= {f"{temperature:g}": tokens.temperature == temperature for temperature in found.tolist()}
    return {name: _replay(before[part], reported[part], tokens.where(part)) for name, part in parts.items()}


def _rounds(tokens: DraftedTokens, window_tokens: int) -> Iterator[slice]:
    """A round ends behind a rejection, or where its window or response ends."""
    start = 0
    for at in range(1, len(tokens) + 1):
        ends = at == len(tokens) or not tokens.accepted[at - 1] or at - start == window_tokens
        ends = ends or tokens.prompt[at] != tokens.prompt[start] or tokens.temperature[at] != tokens.temperature[start]
        if ends:
            yield slice(start, at)
            start = at


def _replay(before: Floats, reported: Floats, tokens: DraftedTokens) -> Replay:
    losses = (log_loss(probs, tokens.accepted) for probs in (before, reported))
    errors = (calibration_error(probs, tokens.accepted) for probs in (before, reported))
    return Replay(len(tokens), *losses, *errors)

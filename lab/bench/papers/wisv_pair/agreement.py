"""Whether a head decides alike on rounded and unrounded hidden states, and each field's cost on the link."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lab.training.head.importance import Floats
from lab.training.head.links import EVALUATED
from lab.training.head.mismatches import HiddenPair, along, as_sent, find_mismatches, hidden_at
from lab.training.head.pair import EncodedTask, Pair
from lab.training.head.rules import StrictRule
from lab.training.head.semantic_decoding import decode
from lab.training.head.sweep import STRICT
from lab.training.head.train import rejection_probs
from outrider.contracts.exchanged import FloatField, WireFormat
from outrider.protocols.hidden_states import STATE_FIELDS, state_bits
from outrider.verification.decision_head import DecisionHead, csi_features


@dataclass(frozen=True, slots=True)
class FieldAgreement:
    """One field compared with fp32.

    Attributes:
        bits: of one state.
        decisions: number compared: mismatches of strict answers, on every evaluated link.
        alike: share of equal decisions.
        largest_shift: of a probability of rejection.
    """

    field: FloatField
    threshold: float
    bits: int
    decisions: int
    alike: float
    largest_shift: float


def agreements(
    pair: Pair,
    asked: Sequence[EncodedTask],
    head: DecisionHead,
    thresholds: Sequence[float],
    *,
    window: int,
    batch: int,
) -> list[FieldAgreement]:
    """Compare every field at each threshold; see ``frontier.frontier``."""
    probs = _rejection_probs(_mismatches(pair, asked, window, batch), head)
    exact = probs[FloatField.FP32]
    found = []
    for field in STATE_FIELDS:
        bits = state_bits(WireFormat(2, hidden_field=field, hidden_width=head.drafter_width))
        shift = float(np.abs(probs[field] - exact).max(initial=0.0))
        for threshold in thresholds:
            judge = DecisionHead(head.weights, threshold)
            alike = float(np.mean(judge.passes(probs[field]) == judge.passes(exact)))
            found.append(FieldAgreement(field, threshold, bits, len(exact), alike, shift))
    return found


def _mismatches(pair: Pair, asked: Sequence[EncodedTask], window: int, batch: int) -> HiddenPair:
    """States at all mismatches of the target's own answers."""
    strict = decode(pair, asked, {STRICT: StrictRule()}, window_tokens=window, batch=batch)[STRICT]
    states = []
    for one, decoded in zip(asked, strict, strict=True):
        (drafted,) = along(pair.drafter, one.prompt_ids, decoded.answer_ids, want_hidden=False).choices()
        found = find_mismatches(drafted, decoded.answer_ids)
        states.append(hidden_at(pair, one.prompt_ids, decoded.answer_ids, found))
    return HiddenPair(
        np.concatenate([each.drafter for each in states]), np.concatenate([each.target for each in states])
    )


def _rejection_probs(states: HiddenPair, head: DecisionHead) -> dict[FloatField, Floats]:
    """``[mismatches * links]`` by field."""
    probs = {}
    for field in STATE_FIELDS:
        sent = HiddenPair(as_sent(field)(states.drafter), states.target)
        own = [rejection_probs(head.weights, sent, csi_features(link)) for link in EVALUATED.values()]
        probs[field] = np.concatenate(own)
    return probs

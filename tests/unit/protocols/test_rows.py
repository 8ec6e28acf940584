"""What is known of a row before anything is drawn from it: the very distribution that the message tells afterwards."""

import numpy as np
import pytest

from outrider.contracts.exchanged import DenseDraft, FloatField, FloatRow, ScalarDraft, SparseDraft, WireFormat
from outrider.contracts.requests import ProtocolName, SamplingParams
from outrider.protocols.protocol import Layer
from outrider.protocols.registry import PROTOCOLS
from outrider.sampling.distributions import Probs

VOCAB = 40
WIRES = [
    WireFormat(VOCAB, FloatField.FP16, scalar_bits=8, top_k=5),
    WireFormat(VOCAB, FloatField.INT8, scalar_bits=32, top_rho=0.7),
    WireFormat(VOCAB, FloatField.FP32, top_k=0),
]
PARAMS = SamplingParams(seed=5)


def logits(seed: int) -> FloatRow:
    row = np.random.default_rng(seed).normal(scale=3.0, size=VOCAB).astype(np.float32)
    row[::7] = -np.inf
    return row


def softmax(row: FloatRow) -> Probs:
    weights = np.exp(row.astype(np.float64) - row.max())
    return np.asarray(weights / weights.sum())


@pytest.mark.parametrize("wire", WIRES, ids=["coarse", "narrow", "whole"])
@pytest.mark.parametrize("protocol", [name for name in PROTOCOLS if not PROTOCOLS[name].judged])
def test_it_is_what_the_message_tells(protocol: ProtocolName, wire: WireFormat) -> None:
    made, layer = PROTOCOLS[protocol], Layer(wire, PARAMS, position=9, children=1)
    given = np.stack([logits(1), logits(2)])
    rows = made.rows(given, layer)
    known = [row.probs for row in rows]
    drawn = made.draw(rows, layer)
    sent = made.distribution(drawn, wire, PARAMS)
    for number, (probs, row) in enumerate(zip(known, drawn, strict=True)):
        assert len(row.token_ids) == 1
        match sent:
            case DenseDraft(told):
                assert np.array_equal(probs, softmax(told[number]))
            case SparseDraft(_, told):
                assert np.array_equal(probs, softmax(told[number]))
            case ScalarDraft(numerators, bits):
                assert probs[row.token_ids[0]] == numerators[number] / 2.0**bits
                assert probs.sum() == 1.0
            case None:
                assert np.array_equal(probs, softmax(given[number])), "the target's own sampler draws from it"


@pytest.mark.parametrize("protocol", list(PROTOCOLS))
def test_of_a_greedy_request_it_is_what_the_model_says(protocol: ProtocolName) -> None:
    """What is sent is one-hot, and would tell nothing of how sure the model is."""
    layer = Layer(WIRES[0], SamplingParams(temperature=0.0), position=9, children=1)
    (row,) = PROTOCOLS[protocol].rows(logits(3)[None], layer)
    assert np.array_equal(row.probs, softmax(logits(3)))
    (drawn,) = PROTOCOLS[protocol].draw([row], layer)
    assert drawn.token_ids == (int(logits(3).argmax()),)

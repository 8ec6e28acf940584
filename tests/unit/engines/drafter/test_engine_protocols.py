"""Chains under each protocol: every token is drawn from exactly the distribution that is told, by its own noise."""

from dataclasses import replace

import numpy as np
import pytest

from outrider.contracts.drafting import Draft, DraftTerms
from outrider.contracts.exchanged import DenseDraft, FloatField, FloatRow, ScalarDraft, SparseDraft
from outrider.contracts.requests import ProtocolName, SamplingParams
from outrider.protocols.registry import PROTOCOLS
from outrider.sampling.distributions import draw, fixed_point, softmax
from outrider.sampling.noise import Purpose, uniforms
from outrider.sampling.rounding import rounded_logits, truncated
from tests.unit.engines.conftest import VOCAB, WHOLE_DRAFTERS, MakeDrafter
from tests.unit.engines.drafter_device import GREEDY, PENALISED, SAMPLED, TERMS, Device, answers_of, draft_of

pytestmark = WHOLE_DRAFTERS

TRUNCATED = SamplingParams(temperature=1.3, seed=8, top_k=40, top_p=0.95)
SAMPLING = {"sampled": SAMPLED, "penalised": PENALISED, "truncated": TRUNCATED}
RATIO = [p for p in PROTOCOLS if p != "token_ids" and not PROTOCOLS[p].judged]
WINDOW = 6
# What a pass over resident KV and one over everything may differ by, before rounding to the field.
STEP = {FloatField.FP32: 0.0, FloatField.FP16: 2**-7, FloatField.BF16: 2**-4, FloatField.INT8: 2**-3}


def number(device: Device, at: int) -> float:
    position = len(device.tokens) + at
    return float(uniforms(device.params.seed, position, Purpose.DRAFT_TOKEN, 1)[0])


def rounded_like(draft: Draft, device: Device, terms: DraftTerms) -> None:
    """Each told row is the model's own adjusted row, rounded."""
    sent_chain = draft.distribution
    for i, token_id in enumerate(draft.token_ids):
        own = device.logits(draft.token_ids[:i])
        if isinstance(sent_chain, ScalarDraft):
            numerators = fixed_point(softmax(own), terms.wire.scalar_bits)
            assert abs(int(numerators[token_id]) - int(sent_chain.numerators[i])) <= 1 + 2e-4 * int(
                numerators[token_id]
            )
            continue
        step = STEP[terms.wire.logit_field] + 2e-4
        if isinstance(sent_chain, SparseDraft):
            token_ids, logits = truncated(own, terms.wire)
            np.testing.assert_array_equal(sent_chain.token_ids[i], token_ids)
            np.testing.assert_allclose(sent_chain.logits[i], logits, atol=step)
        else:
            assert isinstance(sent_chain, DenseDraft)
            logits = rounded_logits(own, terms.wire.logit_field)
            np.testing.assert_array_equal(np.isneginf(sent_chain.logits[i]), np.isneginf(logits))
            kept = np.isfinite(logits)
            np.testing.assert_allclose(sent_chain.logits[i][kept], logits[kept], atol=step)


def drawn_like(draft: Draft, device: Device, terms: DraftTerms) -> None:
    """Each token follows from the told row (DSSD: from the rounded row) and the noise of its position."""
    sent_chain = draft.distribution
    for i, token_id in enumerate(draft.token_ids):
        if isinstance(sent_chain, SparseDraft):
            assert token_id == sent_chain.token_ids[i][draw(softmax(sent_chain.logits[i]), number(device, i))]
        elif isinstance(sent_chain, DenseDraft):
            assert token_id == draw(softmax(sent_chain.logits[i]), number(device, i))
        else:
            assert isinstance(sent_chain, ScalarDraft)
            own: FloatRow = device.logits(draft.token_ids[:i])
            probs = fixed_point(softmax(own), terms.wire.scalar_bits) / 2.0**terms.wire.scalar_bits
            assert token_id == draw(probs, number(device, i))


@pytest.mark.parametrize("params", SAMPLING.values(), ids=SAMPLING.keys())
@pytest.mark.parametrize("protocol", RATIO)
def test_tokens_are_drawn_from_the_rounded_rows(
    make_drafter: MakeDrafter, protocol: ProtocolName, params: SamplingParams
) -> None:
    engine, device = make_drafter(), Device("a", params, protocol=protocol)
    engine.open(device.opening(), TERMS)
    for _ in range(3):
        draft = draft_of(engine, device.request(WINDOW))
        assert len(draft.token_ids) == WINDOW
        rounded_like(draft, device, TERMS)
        drawn_like(draft, device, TERMS)
        device.tokens += [*draft.token_ids[:3], 11]


@pytest.mark.parametrize("logit_field", FloatField)
@pytest.mark.parametrize("protocol", ["dsd", "tslt"])
def test_every_field_is_rounded_to_before_drawing(
    make_drafter: MakeDrafter, protocol: ProtocolName, logit_field: FloatField
) -> None:
    terms = DraftTerms(replace(TERMS.wire, logit_field=logit_field, top_k=0))
    engine, device = make_drafter(), Device("a", SAMPLED, protocol=protocol)
    engine.open(device.opening(), terms)
    draft = draft_of(engine, device.request(WINDOW))
    drawn_like(draft, device, terms)
    sent_chain = draft.distribution
    assert isinstance(sent_chain, DenseDraft | SparseDraft)
    for row in sent_chain.logits:
        np.testing.assert_array_equal(row, rounded_logits(row, logit_field))


@pytest.mark.parametrize("bits", [8, 16, 32])
def test_scalars_of_any_width_add_up(make_drafter: MakeDrafter, bits: int) -> None:
    terms = DraftTerms(replace(TERMS.wire, scalar_bits=bits))
    engine, device = make_drafter(), Device("a", SAMPLED, protocol="dssd")
    engine.open(device.opening(), terms)
    draft = draft_of(engine, device.request(WINDOW))
    rounded_like(draft, device, terms)
    drawn_like(draft, device, terms)
    assert isinstance(draft.distribution, ScalarDraft)
    assert draft.distribution.bits == bits
    assert (draft.distribution.numerators > 0).all()


@pytest.mark.parametrize("protocol", RATIO)
def test_greedy_distributions_are_one_hot(make_drafter: MakeDrafter, protocol: ProtocolName) -> None:
    engine, device = make_drafter(), Device("a", GREEDY, protocol=protocol)
    engine.open(device.opening(), TERMS)
    draft = draft_of(engine, device.request(4))
    assert draft.token_ids == device.truth(4)
    one_hot = {
        "dsd": DenseDraft(
            np.where(np.arange(VOCAB) == np.array(draft.token_ids)[:, None], 0.0, -np.inf).astype(np.float32)
        ),
        "tslt": SparseDraft(
            tuple(np.array([token]) for token in draft.token_ids), (np.zeros(1, dtype=np.float32),) * 4
        ),
        "tslt_tree": None,
        "dssd": ScalarDraft(np.full(4, 2**24), 24),
        "dssd_candidates": ScalarDraft(np.full(4, 2**24), 24),
    }
    assert draft.distribution == one_hot[protocol]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_window_of_0_only_brings_the_kv_up_to_date(make_drafter: MakeDrafter, protocol: ProtocolName) -> None:
    engine, device = make_drafter(), Device("a", SAMPLED, protocol=protocol)
    engine.open(device.opening(), TERMS)
    draft = draft_of(engine, device.request(0))
    assert (draft.token_ids, draft.hidden) == ((), None)
    assert engine.usage().used_blocks > 0


def test_protocols_share_a_pass_and_change_from_round_to_round(make_drafter: MakeDrafter) -> None:
    alone = []
    devices = [Device(f"d{i}", [SAMPLED, GREEDY, PENALISED][i % 3], protocol=p) for i, p in enumerate(tuple(PROTOCOLS))]
    for device in devices:
        engine = make_drafter()
        engine.open(device.opening(), TERMS)
        alone.append(draft_of(engine, device.request(3)))
    together = make_drafter()
    again = [Device(device.name, device.params, protocol=device.protocol) for device in devices]
    for device in again:
        together.open(device.opening(), TERMS)
        together.submit(device.request(3))
    answers = answers_of(together)
    for device, draft in zip(again, alone, strict=True):
        answer = answers[device.name]
        assert isinstance(answer, Draft)
        assert answer.token_ids == draft.token_ids
        device.tokens += [*answer.token_ids[:1], 5]
        for protocol in PROTOCOLS:
            device.protocol = protocol
            change = draft_of(together, device.request(2))
            if not device.params.greedy and protocol in RATIO:
                drawn_like(change, device, TERMS)

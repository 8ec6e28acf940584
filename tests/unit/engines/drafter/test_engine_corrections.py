"""Corrections drawn by the device (DSSD): from the row the rejected token was drawn from, once and for all."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from transformers import PreTrainedModel

from outrider.contracts.drafting import DrafterEngine, DraftTerms, NeedsRow
from outrider.contracts.exchanged import Candidates, CorrectionSource, TargetRow
from outrider.contracts.requests import SamplingParams
from outrider.protocols.registry import PROTOCOLS
from outrider.sampling.distributions import fixed_point, softmax
from outrider.verification.correction import draw_correction
from tests.unit.engines.conftest import VOCAB, WHOLE_DRAFTERS, MakeDrafter, tiny_llama
from tests.unit.engines.drafter_device import (
    GREEDY,
    PENALISED,
    SAMPLED,
    TERMS,
    Device,
    Passes,
    answer_to,
    draft_of,
)

pytestmark = WHOLE_DRAFTERS

DSSD = "dssd"
KEPT_OR_NOT = pytest.mark.parametrize("restarted", [False, True], ids=["kept", "recomputed"])


def dense_row(seed: int) -> TargetRow:
    probs = np.random.default_rng(seed).dirichlet(np.full(VOCAB, 0.1))
    return TargetRow(None, probs.astype(np.float32))


def sparse_row(seed: int) -> TargetRow:
    rng = np.random.default_rng(seed)
    token_ids = np.sort(rng.choice(VOCAB, 9, replace=False))
    return TargetRow(token_ids, rng.dirichlet(np.ones(9)).astype(np.float32))


def passing_candidates(seed: int) -> Candidates:
    """Of probability 1: a test fails only with the draft's probability of the token."""
    token_ids = np.random.default_rng(seed).integers(0, VOCAB, 16)
    return Candidates(token_ids, np.ones(16, dtype=np.float32))


def failing_candidates() -> Candidates:
    """The target's probability of each is smaller than the draft's of any token."""
    return Candidates(np.arange(8), np.full(8, 1e-30, dtype=np.float32))


SOURCES: dict[str, Callable[[int], CorrectionSource]] = {
    "dense": dense_row,
    "sparse": sparse_row,
    "candidates": passing_candidates,
}


def expected_token(device: Device, source: CorrectionSource) -> int | None:
    bits = TERMS.wire.scalar_bits
    probs = fixed_point(softmax(device.logits()), bits) / 2.0**bits
    return draw_correction(source, probs, device.params.seed, len(device.tokens))


@pytest.mark.parametrize("make", SOURCES.values(), ids=SOURCES.keys())
@pytest.mark.parametrize("params", [SAMPLED, PENALISED], ids=["sampled", "penalised"])
def test_kept_and_recomputed_rows_draw_the_same(
    make_drafter: MakeDrafter, make: Callable[[int], CorrectionSource], params: SamplingParams
) -> None:
    model = tiny_llama()
    engine, device, passes = make_drafter(model), Device("a", params, protocol=DSSD), Passes(model)
    engine.open(device.opening(), TERMS)
    accepted = [0, 2, 3, 1]
    draft = draft_of(engine, device.request(4))
    for i, length in enumerate(accepted):
        device.tokens += draft.token_ids[:length]
        source = make(i)
        token_id = expected_token(device, source)
        assert token_id is not None
        restarted = make_drafter()
        restarted.open(device.opening(), TERMS)
        twin = Device("a", device.params, protocol=DSSD)
        twin.tokens, twin.known = list(device.tokens), len(device.tokens)
        again = draft_of(restarted, twin.request(4, correction=source))
        passes.taken()
        draft = draft_of(engine, device.request(4, correction=source))
        assert passes.taken() == 4, "the correction and three of the four tokens: its row was kept"
        assert (draft.correction, draft.position) == (token_id, len(device.tokens))
        assert (again.correction, again.token_ids) == (token_id, draft.token_ids)
        device.tokens.append(token_id)
        assert draft.token_ids == tuple(chain_after(make_drafter, device, 4)), (
            "the block is drafted behind the correction"
        )


def chain_after(make_drafter: MakeDrafter, device: Device, window: int) -> list[int]:
    engine = make_drafter()
    engine.open(device.opening(), TERMS)
    twin = Device(device.name, device.params, protocol=DSSD)
    twin.tokens, twin.known = list(device.tokens), len(device.tokens)
    return list(draft_of(engine, twin.request(window)).token_ids)


@pytest.mark.parametrize("known", [0, 1], ids=["before the correction", "behind the correction"])
def test_the_correction_joins_the_drafters_sequence(make_drafter: MakeDrafter, known: int) -> None:
    model = tiny_llama()
    engine, device, passes = make_drafter(model), Device("a", SAMPLED, protocol=DSSD), Passes(model)
    engine.open(device.opening(), TERMS)
    device.tokens += draft_of(engine, device.request(3)).token_ids[:1]
    draft = draft_of(engine, device.request(3, correction=dense_row(1)))
    assert draft.correction is not None
    device.known += known
    device.tokens += [draft.correction, *draft.token_ids[:2], 13]
    passes.taken()
    following = draft_of(engine, device.request(3))
    assert passes.taken() == 3, "correction and accepted tokens are resident"
    assert list(following.token_ids) == chain_after(make_drafter, device, 3)


def rejected_block(
    make_drafter: MakeDrafter,
    terms: DraftTerms = TERMS,
    *,
    restarted: bool = False,
    model: PreTrainedModel | None = None,
) -> tuple[Device, DrafterEngine]:
    """A device whose first block was rejected at its second token, and its drafter."""
    engine, device = make_drafter(model), Device("a", SAMPLED, protocol=DSSD)
    engine.open(device.opening(), terms)
    device.tokens += draft_of(engine, device.request(3)).token_ids[:1]
    if restarted:
        engine = make_drafter(model)
        engine.open(device.opening(), terms)
        device.known = len(device.tokens)
    return device, engine


@KEPT_OR_NOT
def test_when_all_candidates_fail_the_row_is_asked_for(make_drafter: MakeDrafter, restarted: bool) -> None:
    model = tiny_llama()
    passes = Passes(model)
    device, engine = rejected_block(make_drafter, restarted=restarted, model=model)
    request = device.request(3, correction=failing_candidates())
    for _ in range(2):
        assert answer_to(engine, request) == NeedsRow("a", request.round)
    source = dense_row(5)
    passes.taken()
    draft = draft_of(engine, replace(request, correction=source))
    assert passes.taken() == 3, "the correction and two of the three tokens: its row was kept, or is now"
    assert draft.correction == expected_token(device, source)
    assert draft.round == request.round
    assert draft_of(engine, replace(request, correction=source)) == draft
    assert draft_of(engine, replace(request, correction=source, want_hidden=True)).token_ids == draft.token_ids


@KEPT_OR_NOT
def test_a_window_of_0_sends_the_correction_alone(make_drafter: MakeDrafter, restarted: bool) -> None:
    device, engine = rejected_block(make_drafter, restarted=restarted)
    source = sparse_row(2)
    draft = draft_of(engine, device.request(0, correction=source))
    assert (draft.correction, draft.token_ids) == (expected_token(device, source), ())
    assert draft.correction is not None
    device.tokens.append(draft.correction)
    assert list(draft_of(engine, device.request(2)).token_ids) == chain_after(make_drafter, device, 2)


@KEPT_OR_NOT
def test_nothing_is_drafted_behind_the_last_token(make_drafter: MakeDrafter, restarted: bool) -> None:
    device, _ = rejected_block(make_drafter)
    source = dense_row(3)
    token_id = expected_token(device, source)
    assert token_id is not None
    at = len(device.tokens)
    others = tuple({0, 1, 2} - {token_id})
    for terms, ends in (
        (replace(TERMS, end_ids=(token_id,)), True),
        (replace(TERMS, last_position=at), True),
        (replace(TERMS, last_position=at - 1), True),
        (replace(TERMS, end_ids=others, last_position=at + 1), False),
    ):
        device, engine = rejected_block(make_drafter, terms, restarted=restarted)
        draft = draft_of(engine, device.request(3, correction=source))
        assert draft.correction == token_id
        assert len(draft.token_ids) == (0 if ends else 3)


def test_another_protocol_may_follow_a_correction(make_drafter: MakeDrafter) -> None:
    for protocol in PROTOCOLS:
        device, engine = rejected_block(make_drafter)
        device.protocol = protocol
        source = dense_row(4)
        draft = draft_of(engine, device.request(2, correction=source))
        assert draft.correction == expected_token(device, source)
        assert len(draft.token_ids) == 2


def test_a_tree_may_follow_a_correction(make_drafter: MakeDrafter) -> None:
    device, engine = rejected_block(make_drafter)
    device.protocol = "tslt_tree"
    source = dense_row(4)
    draft = draft_of(engine, device.request(expansion=(2, 2), correction=source))
    assert draft.correction == expected_token(device, source)
    assert draft.parents == (-1, -1, 0, 0, 1, 1)


def test_corrections_of_a_greedy_request_avoid_its_argmax(make_drafter: MakeDrafter) -> None:
    engine, device = make_drafter(), Device("a", GREEDY, protocol=DSSD)
    engine.open(device.opening(), TERMS)
    (best, *_) = draft_of(engine, device.request(2)).token_ids
    row = np.zeros(VOCAB, dtype=np.float32)
    row[[best, 3]] = 0.9, 0.1
    assert draft_of(engine, device.request(2, correction=TargetRow(None, row))).correction == 3


def test_the_context_may_end_behind_a_correction(make_drafter: MakeDrafter) -> None:
    engine, device = make_drafter(), Device("a", SAMPLED, (1,) * 254, DSSD)
    engine.open(device.opening(), TERMS)
    draft = draft_of(engine, device.request(4))
    assert len(draft.token_ids) == 2
    device.tokens += draft.token_ids[:1]
    last = draft_of(engine, device.request(4, correction=dense_row(6)))
    assert last.correction is not None
    assert last.token_ids == ()

"""The gate: every lossless protocol emits exactly the target's law, through real messages. Computed, not sampled.

The bound is 1e-6: what is left (a few 1e-8) is the float32 of the target's rows. The published rules that are lossy
must not pass. ``token_ids`` has no law of its own: what is emitted is the target's choice, whatever the draft
(``test_matching``).
"""

import math
from collections.abc import Callable
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from outrider.contracts.exchanged import Deferral, FloatField, ScalarDraft, SparseDraft, TargetRow, WireFormat
from outrider.contracts.requests import ProtocolName, SamplingParams
from outrider.protocols.registry import PROTOCOLS
from outrider.sampling.choosing import choose_tokens
from outrider.sampling.distributions import Probs, draw, residual, softmax, total_variation
from outrider.sampling.logits import RowGroup
from outrider.sampling.noise import Purpose, uniforms
from outrider.sampling.rounding import rounded_logits
from outrider.verification.correction import draw_correction
from outrider.verification.speculative import RatioBlock, verify_ratio
from tests.unit.verification.laws import SCALARS, Case, distance
from tests.unit.verification.models import KINDS, pair, pairs

BOUND = 1e-6

fields = st.sampled_from(list(FloatField))


def case(
    protocol: ProtocolName, wire: WireFormat, expansion: tuple[int, ...], of: tuple[str, int, int], candidates: int = 0
) -> Case:
    """``wire`` for the vocabulary of the pair."""
    kind, vocab, seed = of
    return Case(protocol, replace(wire, vocab_size=vocab), expansion, *pair(kind, vocab, seed), candidates)


def assert_exact(one: Case) -> None:
    assert PROTOCOLS[one.protocol].lossless(one.wire)
    assert distance(one) <= BOUND


@settings(max_examples=150)
@given(of=pairs, field=fields)
def test_dsd(of: tuple[str, int, int], field: FloatField) -> None:
    assert_exact(case("dsd", WireFormat(3, logit_field=field), (1,), of))


@settings(max_examples=300)
@given(of=pairs, field=fields, top_k=st.integers(0, 8), top_rho=st.sampled_from([0.3, 0.9, 1.0]))
def test_tslt(of: tuple[str, int, int], field: FloatField, top_k: int, top_rho: float) -> None:
    assert_exact(case("tslt", WireFormat(3, logit_field=field, top_k=top_k, top_rho=top_rho), (1,), of))


@settings(max_examples=80)
@given(of=pairs, field=fields, top_k=st.integers(0, 8), children=st.integers(1, 3), distinct=st.booleans())
def test_tslt_tree_of_one_layer(
    of: tuple[str, int, int], field: FloatField, top_k: int, children: int, *, distinct: bool
) -> None:
    """Without replacement more children than tokens are kept: the support runs out."""
    wire = WireFormat(3, logit_field=field, top_k=top_k, distinct_siblings=distinct)
    assert_exact(case("tslt_tree", wire, (children,), of))


@settings(max_examples=150)
@given(of=pairs, bits=st.sampled_from([8, 16, 24, 32]))
def test_dssd(of: tuple[str, int, int], bits: int) -> None:
    assert_exact(case("dssd", WireFormat(3, scalar_bits=bits), (1,), of))


@settings(max_examples=150)
@given(of=pairs, bits=st.sampled_from([8, 16, 24, 32]), candidates=st.sampled_from([1, 2, 16, 256]))
def test_dssd_candidates_and_the_row_when_all_fail(of: tuple[str, int, int], bits: int, candidates: int) -> None:
    assert_exact(case("dssd_candidates", WireFormat(3, scalar_bits=bits), (1,), of, candidates))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("protocol", "expansion"),
    [
        ("dsd", (1, 1)),
        ("tslt", (1, 1)),
        ("tslt_tree", (2, 2)),
        ("tslt_tree", (3, 1)),
        ("tslt_tree", (1, 3)),
        ("dssd", (1, 1)),
        ("dssd_candidates", (1, 1)),
    ],
)
@pytest.mark.parametrize("distinct", [True, False])
def test_joint_law_of_blocks_of_two(
    protocol: ProtocolName, expansion: tuple[int, ...], kind: str, *, distinct: bool
) -> None:
    wire = WireFormat(3, top_k=3, scalar_bits=8, distinct_siblings=distinct)
    assert_exact(case(protocol, wire, expansion, (kind, 3, 5), candidates=2))


@pytest.mark.parametrize("protocol", sorted(SCALARS))
@pytest.mark.parametrize(("field", "least"), [(FloatField.FP16, 1e-5), (FloatField.BF16, 1e-4)])
def test_rounded_target_rows_are_lossy_and_say_so(protocol: ProtocolName, field: FloatField, least: float) -> None:
    wire = WireFormat(3, row_field=field)
    assert not PROTOCOLS[protocol].lossless(wire)
    found = [distance(case(protocol, wire, (1,), (kind, 5, 1), candidates=2)) for kind in KINDS]
    assert max(found) > least
    assert max(found) < 100 * least  # but close


def test_drawing_before_rounding_is_lossy() -> None:
    """The first trap: drawn from the exact logits, verified with those of the message."""
    target, exact = softmax(np.array([1.0, -1.0, 0.3, 0.1])), np.array([0.21, 0.13, -3.3, -7.7], dtype=np.float32)
    told, drawn = softmax(rounded_logits(exact, FloatField.INT8)), softmax(exact)
    accept = np.minimum(target, told) / told
    assert total_variation(emitted(drawn, accept, residual(target, told)), target) > 1e-3
    assert total_variation(emitted(told, accept, residual(target, told)), target) < 1e-12


def emitted(draft: Probs, accept: Probs, correction: Probs) -> Probs:
    law: Probs = draft * accept + (1 - (draft * accept).sum()) * correction
    return law


LOGITS = np.array([2.0, 1.5, 1.0, 0.5, 0.0, -0.5, -1.0, -1.5])
DRAFT = softmax(LOGITS)
TARGET = softmax(np.array([0.5, 2.0, -1.0, 1.0, 1.5, -2.0, 0.0, -0.5]))


def normalised(rest: Probs) -> Probs:
    probs: Probs = np.maximum(rest, 0.0) / np.maximum(rest, 0.0).sum()
    return probs


@pytest.mark.parametrize(
    "published",
    [
        pytest.param(
            lambda p, q: emitted(q, np.minimum(1, q / p), normalised(p - q)), id="TSLT algorithm 3, DSSD algorithm 2"
        ),
        pytest.param(lambda p, q: emitted(q, np.minimum(1, q / p), normalised(p - LOGITS)), id="the DSSD code"),
        pytest.param(lambda p, q: emitted(q, np.minimum(1, p / q), p), id="WISP eq. 3"),
    ],
)
def test_published_rules_that_are_lossy_fail_the_gate(published: Callable[[Probs, Probs], Probs]) -> None:
    assert published(TARGET, DRAFT).sum() == pytest.approx(1.0)
    assert total_variation(published(TARGET, DRAFT), TARGET) > 0.05


def test_the_right_rule_passes_where_they_fail() -> None:
    rule = emitted(DRAFT, np.minimum(1, TARGET / DRAFT), normalised(TARGET - DRAFT))
    assert total_variation(rule, TARGET) < 1e-12
    one = Case("dssd", WireFormat(8), (1,), lambda _: LOGITS.astype(np.float32), lambda _: TARGET.astype(np.float32))
    assert_exact(one)


# First-order chains over 3 tokens; the row index is the token before.
TARGET_CHAIN = np.array([[0.6, 0.3, 0.1], [0.2, 0.2, 0.6], [0.35, 0.4, 0.25]])
DRAFT_CHAIN = np.array([[0.5, 0.25, 0.25], [0.5, 0.125, 0.375], [0.125, 0.375, 0.5]])  # exact in 8 bits
LENGTH, SEEDS, START = 3, 4000, 10


def test_rounds_of_mixed_protocols_with_the_real_noise_give_the_targets_joint_law() -> None:
    """Draft, verify, commit until three tokens stand; tslt, dssd, the target alone and a tree take turns.

    This is what the law of one block does not show: rounds may redraw a position with the same noise. Chi-square of the
    27 outcomes with false-alarm rate 1e-6 (Laurent and Massart 2000, lemma 1).
    """
    observed = np.zeros((3,) * LENGTH)
    for seed in range(SEEDS):
        tokens: tuple[int, ...] = ()
        while len(tokens) < LENGTH:
            tokens += one_round(seed, tokens, ("tslt", "dssd", "alone", "tree")[(seed + len(tokens)) % 4])
        observed[tokens[:LENGTH]] += 1
    expected = np.zeros_like(observed)
    for a, b, c in product(range(3), repeat=LENGTH):
        expected[a, b, c] = SEEDS * TARGET_CHAIN[0, a] * TARGET_CHAIN[a, b] * TARGET_CHAIN[b, c]
    statistic, freedom, x = float(((observed - expected) ** 2 / expected).sum()), 26, math.log(1e6)
    assert expected.min() > 10
    assert statistic < freedom + 2 * math.sqrt(freedom * x) + 2 * x


def one_round(seed: int, tokens: tuple[int, ...], how: str) -> tuple[int, ...]:
    """What one round commits behind ``tokens``; a prompt that ends with token 0 stands before them."""
    last, position = (0, *tokens)[-1], START + len(tokens)
    tree, drawn, above = how == "tree", list[int](), list[int]()
    for node in range(0 if how == "alone" else 2):
        above.append(last if tree or not drawn else drawn[-1])
        at, sibling = (position, node) if tree else (position + node, 0)
        drawn.append(draw(DRAFT_CHAIN[above[-1]], uniforms(seed, at, Purpose.DRAFT_TOKEN, 2)[sibling]))
    rows = [np.log(DRAFT_CHAIN[token]).astype(np.float32) for token in (above[:1] if tree else above)]
    numerators = np.array([round(DRAFT_CHAIN[pair] * 256) for pair in zip(above, drawn, strict=True)], dtype=np.int64)
    block = RatioBlock(
        draft=tuple(drawn),
        parents=(-1, -1) if tree else None,
        distribution=ScalarDraft(numerators, 8)
        if how == "dssd"
        else SparseDraft((np.arange(3),) * len(rows), tuple(rows)),
        distinct=False,
        bonus=True,
        deferral=Deferral(candidates=seed % 3) if how == "dssd" else None,
        seed=seed,
        position=position,
    )
    target = torch.from_numpy(TARGET_CHAIN[[last, *drawn]]).float()
    positions = [position, *(position + (1 if tree else node + 1) for node in range(len(drawn)))]
    groups = [RowGroup(SamplingParams(seed=seed), at, None, (), 1) for at in positions]
    (decision,) = verify_ratio(target, [block], choose_tokens(target.log(), groups))
    accepted = tuple(drawn[node] for node in decision.path)
    after = decision.token_after
    if decision.deferred is not None:
        draft_probs, at = DRAFT_CHAIN[above[len(accepted)]], position + len(accepted)
        after = draw_correction(decision.deferred, draft_probs, seed, at)
        if after is None:
            row = TargetRow(None, target[len(accepted)].numpy())
            after = draw_correction(row, draft_probs, seed, at)
    assert after is not None
    return (*accepted, after)

from dataclasses import replace
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outrider.contracts.drafting import Draft, DraftPlan, DraftRequest
from outrider.contracts.errors import MessageError
from outrider.contracts.exchanged import DenseDraft, FloatField, ScalarDraft, SparseDraft, WireFormat
from outrider.contracts.requests import ProtocolName
from outrider.protocols.registry import PROTOCOLS, judged_protocols, message_bits
from outrider.sampling.floats import CODE_BITS
from outrider.wire.bits import BitReader, BitWriter
from outrider.wire.envelope import envelope_bits
from tests.unit.session.random_rounds import SCALARS, random_draft, random_plan, random_wire

VOCABULARIES = (3, 5, 257, 49152)
CHAIN = DraftPlan("tslt", 2)
SEEDS = st.integers(0, 2**32)


def asked(plan: DraftPlan) -> DraftRequest:
    return DraftRequest("g", 3, 10, (1,), 0, plan)


def body(draft: Draft, plan: DraftPlan, wire: WireFormat) -> tuple[bytes, int]:
    writer = BitWriter()
    PROTOCOLS[plan.protocol].encode(writer, draft, plan, wire)
    return writer.to_bytes(), writer.bits


def test_codes_on_the_wire_never_change() -> None:
    codes = {name: PROTOCOLS[name].code for name in PROTOCOLS}
    assert codes == {
        "token_ids": 0,
        "dsd": 1,
        "tslt": 2,
        "tslt_tree": 3,
        "dssd": 4,
        "dssd_candidates": 5,
        "wisv_full": 6,
        "wisv_selective": 7,
    }


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("vocab_size", VOCABULARIES)
@given(seed=SEEDS)
@settings(max_examples=25)
def test_blocks_come_back(protocol: ProtocolName, vocab_size: int, seed: int) -> None:
    rng = Random(seed)
    wire = random_wire(rng, vocab_size)
    plan = random_plan(rng, protocol)
    draft = random_draft(rng, asked(plan), wire)
    data, _ = body(draft, plan, wire)
    reader = BitReader(data)
    assert PROTOCOLS[protocol].decode(reader, asked(plan), wire) == draft
    reader.finish()


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("field", list(FloatField))
@given(seed=SEEDS, vocab_size=st.sampled_from(VOCABULARIES[:3]))
@settings(max_examples=25)
def test_a_full_block_takes_the_papers_bits_and_the_known_overhead(
    protocol: ProtocolName, field: FloatField, seed: int, vocab_size: int
) -> None:
    rng = Random(seed)
    top_k = rng.choice([0, 1, 2, vocab_size])
    wire = WireFormat(vocab_size, field, rng.randint(8, 32), top_k=top_k, hidden_field=field, hidden_width=40)
    plan = random_plan(rng, protocol)
    draft = random_draft(rng, asked(plan), wire)
    full = len(draft.token_ids) == plan.nodes
    kept = min(wire.top_k or vocab_size, vocab_size)
    rows_full = not isinstance(draft.distribution, SparseDraft) or all(
        len(row) == kept for row in draft.distribution.token_ids
    )
    told = protocol != "tslt_tree" or draft.distribution is not None
    data, bits = body(draft, plan, wire)
    formula = PROTOCOLS[protocol].expected_bits(wire, plan) + PROTOCOLS[protocol].overhead_bits(wire, plan)
    if full and rows_full and told:
        assert bits == formula
        assert message_bits(wire, plan) == envelope_bits(bits) == envelope_bits(len(data) * 8)
    elif not plan.expansion and kept < vocab_size:  # nearly whole rows need ids, which whole ones do without
        assert bits <= formula


def test_the_papers_formulas_at_their_own_sizes() -> None:
    """TSLT: 32,000 tokens at half precision are 512 kbit a position (erratum 4)."""
    wire = WireFormat(32000, FloatField.FP16, scalar_bits=16, top_k=0)

    def bits(protocol: ProtocolName, window: int, expansion: tuple[int, ...] = (), top_k: int = 0) -> int:
        plan = DraftPlan(protocol, window, expansion)
        return PROTOCOLS[protocol].expected_bits(replace(wire, top_k=top_k), plan)

    assert bits("token_ids", 4) == 4 * 15
    assert bits("token_ids", 2, (2, 2)) == 6 * 15
    assert bits("tslt", 4) == 4 * 512_000
    assert bits("dsd", 4) == 4 * (512_000 + 15)
    assert bits("tslt", 4, top_k=32) == 4 * 32 * (16 + 15)
    assert bits("tslt_tree", 3, (2, 2, 2), top_k=32) == (1 + 2 + 4) * 32 * (16 + 15)
    assert bits("tslt_tree", 1, (4,), top_k=32) == 32 * (16 + 15)
    assert bits("dssd", 4) == bits("dssd_candidates", 4) == 4 * (15 + 16)


def test_wisv_s_formulas_at_its_own_size() -> None:
    """Equations 3, 5, 7: 2,048 numbers at half precision are 32 kbit a token."""
    wire = WireFormat(128_256, hidden_width=2048)
    for window in (10, 64):
        assert PROTOCOLS["wisv_full"].expected_bits(wire, DraftPlan("wisv_full", window)) == window * (17 + 2048 * 16)
        assert PROTOCOLS["wisv_selective"].expected_bits(wire, DraftPlan("wisv_selective", window)) == window * 17
    int8 = replace(wire, hidden_field=FloatField.INT8)
    assert PROTOCOLS["wisv_full"].expected_bits(int8, DraftPlan("wisv_full", 1)) == 17 + 2048 * 9, "a scale for each 32"


def test_what_is_judged_is_not_lossless() -> None:
    assert judged_protocols() == ("wisv_full", "wisv_selective")
    assert not any(PROTOCOLS[name].lossless(WireFormat(5)) for name in judged_protocols())


@pytest.mark.parametrize("protocol", [name for name in PROTOCOLS if name not in judged_protocols()])
def test_only_rounding_the_target_is_lossy(protocol: ProtocolName) -> None:
    for field in FloatField:
        assert PROTOCOLS[protocol].lossless(WireFormat(5, logit_field=field))
        rounded = WireFormat(5, row_field=field)
        assert PROTOCOLS[protocol].lossless(rounded) == (protocol not in SCALARS or field is FloatField.FP32)


@pytest.mark.parametrize("field", list(FloatField))
def test_one_hot_rows_cross_every_field(field: FloatField) -> None:
    """What a greedy request drafts from."""
    wire = WireFormat(5, field)
    logits = np.full((2, 5), -np.inf, dtype=np.float32)
    logits[0, 3] = logits[1, 0] = 0.0
    for protocol, distribution in (
        ("dsd", DenseDraft(logits)),
        ("tslt", SparseDraft((np.array([3]), np.array([0])), (np.zeros(1, np.float32),) * 2)),
        ("dssd", ScalarDraft(np.array([2**24, 2**24]), 24)),
    ):
        plan = DraftPlan(protocol, 4)
        draft = Draft("g", 3, 11, (3, 0), distribution=distribution)
        assert PROTOCOLS[protocol].decode(BitReader(body(draft, plan, wire)[0]), asked(plan), wire) == draft


def sparse(token_ids: list[int], logits: list[float]) -> SparseDraft:
    return SparseDraft((np.array(token_ids),), (np.array(logits, dtype=np.float32),))


@pytest.mark.parametrize(
    ("draft", "plan", "reason"),
    [
        (Draft("g", 3, 11, (1, 2, 3)), DraftPlan("token_ids", 2), "chain of at most 2"),
        (Draft("g", 3, 11, (1,), parents=(-1,)), DraftPlan("token_ids", 2), "chain of at most 2"),
        (Draft("g", 3, 11, (1, 5)), DraftPlan("token_ids", 2), r"ids in 0\.\.4"),
        (Draft("g", 3, 11, (1,)), DraftPlan("token_ids", 2, (1, 2)), "breadth first"),
        (Draft("g", 3, 11, (1, 1), parents=(-1, -1)), DraftPlan("token_ids", 2, (1, 2)), "at most 1"),
        (Draft("g", 3, 11, (1, 1), parents=(-1, 7)), DraftPlan("token_ids", 2, (1, 2)), "breadth first"),
        (
            Draft("g", 3, 11, (1,) * 4, parents=(-1, -1, 1, 0)),
            DraftPlan("token_ids", 2, (2, 2)),
            "breadth first",
        ),
        (Draft("g", 3, 11, (1,), distribution=ScalarDraft(np.array([1]), 24)), CHAIN, "SparseDraft"),
        (
            Draft("g", 3, 11, (1,), distribution=sparse([1], [0.0])),
            DraftPlan("token_ids", 2),
            "without distributions",
        ),
        (Draft("g", 3, 11, (1,)), CHAIN, "SparseDraft"),
        (Draft("g", 3, 11, (1,), distribution=sparse([2, 3], [0.0, 0.0])), CHAIN, "drawn from their rows, found 1"),
        (Draft("g", 3, 11, (4,), distribution=sparse([2, 3], [0.0, 0.0])), CHAIN, "drawn from their rows, found 4"),
        (Draft("g", 3, 11, (1,), distribution=sparse([1, 1], [0.0, 0.0])), CHAIN, "ascending"),
        (Draft("g", 3, 11, (1,), distribution=sparse([1, 2], [0.0, -np.inf])), CHAIN, "finite logits"),
        (Draft("g", 3, 11, (1,), distribution=sparse([1, 2], [0.0])), CHAIN, "1 logits"),
        (Draft("g", 3, 11, (1,), distribution=sparse([0, 1, 2, 3], [0.0] * 4)), CHAIN, r"1\.\.3 ids"),
        (Draft("g", 3, 11, (1, 1), distribution=sparse([1], [0.0])), CHAIN, "2 rows"),
        (Draft("g", 3, 11, (1,), distribution=sparse([1], [0.1])), CHAIN, "fp16 holds exactly"),
        (
            Draft("g", 3, 11, (1,), distribution=DenseDraft(np.zeros((1, 4), np.float32))),
            DraftPlan("dsd", 2),
            r"\(1, 5\), found \(1, 4\)",
        ),
        (
            Draft("g", 3, 11, (1,), distribution=DenseDraft(np.array([[0, -np.inf, 0, 0, 0]], np.float32))),
            DraftPlan("dsd", 2),
            "was removed",
        ),
        (
            Draft("g", 3, 11, (1,), distribution=ScalarDraft(np.array([0]), 24)),
            DraftPlan("dssd", 2),
            "24 bits, found -1",
        ),
        (
            Draft("g", 3, 11, (1,), distribution=ScalarDraft(np.array([1]), 16)),
            DraftPlan("dssd", 2),
            "1 of 16",
        ),
    ],
)
def test_a_block_that_cannot_be_told_is_refused(draft: Draft, plan: DraftPlan, reason: str) -> None:
    with pytest.raises(MessageError, match=reason):
        body(draft, plan, WireFormat(5, top_k=3))


@pytest.mark.parametrize(
    ("fields", "plan", "reason"),
    [
        ([(3, 2)], CHAIN, "at most 2"),
        ([(0, 1), (3, 2)], DraftPlan("token_ids", 1, (2,)), "at most 2 children"),
        ([(0, 1), (2, 2)], DraftPlan("token_ids", 1, (2,)), "full tree"),
        ([(1, 2), (3, 2)], CHAIN, r"1\.\.3 ids, found 4"),
        ([(1, 2), (1, 2), (2, 3), (2, 3)], CHAIN, "ascending"),
        ([(1, 2), (1, 2), (2, 3), (1, 3)], CHAIN, "ascending"),
        ([(1, 2), (1, 2), (2, 3), (5, 3)], CHAIN, r"0\.\.4"),
        ([(1, 2), (0, 2), (2, 3), (0x7E00, 16)], CHAIN, "NaN"),
        ([(1, 2), (0, 2), (2, 3), (0xFC00, 16)], CHAIN, "finite logits"),
        ([(1, 2), (2, 2), (0, 3), (1, 3), (2, 3), (0, 48), (3, 2)], CHAIN, "rank below 3"),
        ([(1, 2), (0, 3), (0xFC00, 16), (0, 64)], DraftPlan("dsd", 2), "was removed"),
        ([(1, 2), (7, 3), (0, 64)], DraftPlan("dsd", 2), r"0\.\.4"),
    ],
)
def test_bits_that_are_no_block_are_refused(fields: list[tuple[int, int]], plan: DraftPlan, reason: str) -> None:
    writer = BitWriter()
    for value, width in fields:
        writer.uint(value, width)
    reader = BitReader(writer.to_bytes() + bytes(20))
    with pytest.raises(MessageError, match=reason):
        PROTOCOLS[plan.protocol].decode(reader, asked(plan), WireFormat(5, top_k=3))


def test_a_scale_that_is_no_power_of_two_is_refused() -> None:
    writer = BitWriter()
    for value, width in ((1, 2), (0, 2), (2, 3), (0x3FC00000, 32), (1, CODE_BITS[FloatField.INT8])):
        writer.uint(value, width)
    with pytest.raises(MessageError, match="power of two"):
        PROTOCOLS["tslt"].decode(BitReader(writer.to_bytes()), asked(CHAIN), WireFormat(5, FloatField.INT8, top_k=3))

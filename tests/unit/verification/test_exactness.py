"""The gate: whatever drafts, the response has exactly the target's law, through real engines and messages.

Computed, not sampled (``tape``), against definitions in float64 (``oracle``). Two tables of logits stand in for the
models (``played``); what becomes of them is the service's own: rounding, drawing, messages, decisions, corrections.

The bound is what float32 promises: each target row is a softmax of float32 logits, whose entries are off by a few times
2**-24 of themselves, and a response is a few rows. Found are 2e-8 to 1e-7.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest

from outrider.contracts.drafting import DraftPlan
from outrider.contracts.exchanged import FloatField, WireFormat
from outrider.contracts.requests import ProtocolName, SamplingParams
from outrider.engines.drafter import batch as blocks
from outrider.engines.drafter import engine as drafter_engine
from outrider.protocols.protocol import DrawnRow
from outrider.protocols.registry import PROTOCOLS
from outrider.sampling.device_tensors import Readback
from outrider.sampling.distributions import softmax
from tests.unit.verification import oracle
from tests.unit.verification.played import Case, Played, distance, pair, target_law

BOUND = 3e-7
WRONG = 0.02
SURE = 0.7  # of some rows
CHAINS = ["dsd", "tslt", "dssd", "dssd_candidates", "token_ids"]
KINDS = ["random", "flat", "peaked", "apart", "equal"]
PARAMS = {
    "plain": SamplingParams(),
    "cool": SamplingParams(temperature=0.6),
    "top-k": SamplingParams(temperature=1.7, top_k=2),
    "top-p": SamplingParams(top_p=0.8),
    "min-p": SamplingParams(temperature=1.3, min_p=0.3),
    "repeated": SamplingParams(repetition_penalty=1.6, logit_bias=((2, 1.5),)),
    "counted": SamplingParams(presence_penalty=-0.5, frequency_penalty=1.1, temperature=0.8),
}
TWO_TOKENS = replace(PARAMS["counted"], top_k=2)  # are left of each row: fewer branches
WIRES = [
    WireFormat(3, FloatField.FP16, scalar_bits=8),
    WireFormat(3, FloatField.INT8, scalar_bits=32, top_k=2),
    WireFormat(3, FloatField.BF16, scalar_bits=8, top_rho=0.7),
    WireFormat(3, FloatField.FP32, scalar_bits=16),
]


def chain(protocol: ProtocolName, window: int) -> DraftPlan:
    return DraftPlan(protocol, window)


def tree(*expansion: int, protocol: ProtocolName = "tslt_tree") -> DraftPlan:
    return DraftPlan(protocol, len(expansion), expansion)


def grown(window: int, rows: int) -> DraftPlan:
    return DraftPlan("token_ids", window, rows=rows)


def assert_exact(case: Case) -> None:
    for plan in case.plans:
        assert plan is None or PROTOCOLS[plan.protocol].lossless(case.wire)
    assert distance(case) <= BOUND


@pytest.mark.parametrize(("number", "params"), list(enumerate(PARAMS.values())), ids=list(PARAMS))
@pytest.mark.parametrize("protocol", CHAINS)
def test_chains(protocol: ProtocolName, number: int, params: SamplingParams) -> None:
    models, wire = pair(KINDS[number % len(KINDS)], number), WIRES[number % len(WIRES)]
    assert_exact(Case(models, [chain(protocol, 1)], params, wire, candidates=int(protocol == "dssd_candidates")))


@pytest.mark.parametrize("protocol", ["dsd", "tslt", "dssd", "token_ids"])
def test_chains_of_two(protocol: ProtocolName) -> None:
    assert_exact(Case(pair("random", 3), [chain(protocol, 2)], PARAMS["counted"], WIRES[0], length=3))


@pytest.mark.parametrize("kind", ["random", "apart"])
def test_candidates_and_the_row_when_all_fail(kind: str) -> None:
    assert_exact(Case(pair(kind, 2), [chain("dssd_candidates", 1)], wire=WIRES[0], length=1, candidates=2))


@pytest.mark.parametrize("distinct", [True, False])
@pytest.mark.parametrize(
    ("expansion", "kind", "wire"), [((2,), "random", WIRES[0]), ((3,), "peaked", WIRES[1]), ((1, 2), "flat", WIRES[2])]
)
def test_trees(expansion: tuple[int, ...], kind: str, wire: WireFormat, *, distinct: bool) -> None:
    """The second keeps fewer tokens than it wants children: without replacement the support runs out."""
    told = replace(wire, distinct_siblings=distinct)
    assert_exact(Case(pair(kind, 4), [tree(*expansion)], PARAMS["counted"], told, length=len(expansion) + 1))


@pytest.mark.parametrize(("masks", "distinct"), [(True, True), (False, False)])
def test_trees_of_several_paths(*, masks: bool, distinct: bool) -> None:
    wire = WireFormat(3, distinct_siblings=distinct)
    assert_exact(Case(pair("random", 5), [tree(2, 1)], TWO_TOKENS, wire, length=3, masks=masks))


def test_trees_drawn_with_the_targets_noise() -> None:
    assert_exact(Case(pair("random", 5), [tree(2, protocol="token_ids")], PARAMS["counted"], WIRES[0]))


@pytest.mark.parametrize("masks", [True, False])
def test_trees_grown_with_the_targets_noise(*, masks: bool) -> None:
    plans = [grown(2, 3), grown(1, 2)] if masks else [grown(2, 3)]
    assert_exact(Case(pair("random", 5), plans, TWO_TOKENS, WIRES[0], length=3, masks=masks))


Drawing = Callable[[Sequence[blocks.Drawing], blocks.HeadRows, Readback], Callable[[], list[blocks.Drawn]]]


def left_out(which: Callable[[DrawnRow], int | None]) -> Drawing:
    """Draws trees, and leaves a sibling out."""

    def ask(
        drawing: Sequence[blocks.Drawing], rows: blocks.HeadRows, readback: Readback
    ) -> Callable[[], list[blocks.Drawn]]:
        drawn = blocks.launch_batch(drawing, rows, readback)
        return lambda: [replace(layer, rows=[_without(row, which) for row in layer.rows]) for layer in drawn()]

    return ask


def _without(row: DrawnRow, which: Callable[[DrawnRow], int | None]) -> DrawnRow:
    left_out = which(row) if len(row.token_ids) > 1 else None
    return replace(row, token_ids=tuple(token for i, token in enumerate(row.token_ids) if i != left_out))


def least_likely(row: DrawnRow) -> int:
    """The drawn node that a ranking by the draft's own probability drops, as EAGLE-2's last step does."""
    assert row.support is not None
    assert row.logits is not None
    probs = dict(zip(row.support.tolist(), row.logits.tolist(), strict=True))
    return min(range(len(row.token_ids)), key=lambda i: probs[row.token_ids[i]])


def second_of_a_sure_row(row: DrawnRow) -> int | None:
    """Decided from the row: as if it had not been drawn."""
    assert row.logits is not None
    return 1 if softmax(row.logits).max() > SURE else None


@pytest.mark.parametrize("distinct", [True, False])
def test_a_drawn_node_that_is_left_out_for_what_it_is_is_found_out(
    monkeypatch: pytest.MonkeyPatch, *, distinct: bool
) -> None:
    case = Case(pair("random", 5), [tree(2, 1)], PARAMS["plain"], WireFormat(3, distinct_siblings=distinct), length=3)
    monkeypatch.setattr(drafter_engine, "launch_batch", left_out(least_likely))
    assert distance(case) > WRONG
    monkeypatch.setattr(drafter_engine, "launch_batch", left_out(second_of_a_sure_row))
    assert distance(case) <= BOUND


ROUNDS: dict[str, Sequence[DraftPlan | None]] = {
    "dsd": [chain("dsd", 1)] * 2,
    "dsd, shortened": [chain("dsd", 2), chain("dsd", 1)],
    "tslt and the target alone": [chain("tslt", 1), None, chain("tslt", 1)],
    "dssd": [chain("dssd", 1)] * 2,
    "dssd, then tslt": [chain("dssd", 1), chain("tslt", 1)],
    "token ids, then dsd": [chain("token_ids", 1), chain("dsd", 1)],
    "a tree, then token ids": [tree(2), chain("token_ids", 1)],
}


@pytest.mark.parametrize("bonus", [True, False])
@pytest.mark.parametrize("plans", list(ROUNDS.values()), ids=list(ROUNDS))
def test_rounds_after_one_another(plans: Sequence[DraftPlan | None], *, bonus: bool) -> None:
    """A position may be drawn again with the numbers of the round that gave it up."""
    assert_exact(Case(pair("random", 6), plans, TWO_TOKENS, WIRES[0], length=3, bonus=bonus))


@pytest.mark.parametrize("cuts", [(0, 1), (1, 1)], ids=str)
@pytest.mark.parametrize("protocol", ["dsd", "tslt", "dssd", "token_ids"])
def test_drafts_that_are_cut_whatever_they_hold(protocol: ProtocolName, cuts: Sequence[int]) -> None:
    plans = [chain(protocol, 2), chain(protocol, 1)]
    assert_exact(Case(pair("random", 9), plans, TWO_TOKENS, WIRES[0], length=3, cuts=cuts))


@pytest.mark.parametrize("protocol", ["dsd", "dssd", "token_ids", None])
@pytest.mark.parametrize("min_tokens", [1, 2])
def test_ends_are_withheld_up_to_their_position(protocol: ProtocolName | None, min_tokens: int) -> None:
    plan = None if protocol is None else chain(protocol, 2)
    case = Case(pair("random", 7), [plan, None, None], wire=WIRES[0], length=3, min_tokens=min_tokens, end=1)
    assert_exact(case)


@pytest.mark.parametrize(
    "plan",
    [
        *(chain(p, 2) for p in PROTOCOLS if not PROTOCOLS[p].judged),
        tree(2, 2),
        tree(3, 1, protocol="token_ids"),
        grown(3, 5),
    ],
    ids=str,
)
@pytest.mark.parametrize("params", [PARAMS["plain"], PARAMS["repeated"], PARAMS["counted"]])
def test_greedy_output_is_the_targets_own(plan: DraftPlan, params: SamplingParams) -> None:
    """The first of the largest logits, of which rows of few different logits have many."""
    greedy = replace(params, temperature=0.0, top_k=1, top_p=0.1)
    for seed in range(8):
        models = pair("ties", seed, 5)
        case = Case(models, [plan] * 5, greedy, WireFormat(5), length=5)
        assert Played(case).output() == next(iter(target_law(case)))


@pytest.mark.parametrize("protocol", ["dssd", "dssd_candidates"])
@pytest.mark.parametrize(("field", "least"), [(FloatField.FP16, 1e-5), (FloatField.BF16, 1e-4)])
def test_rounded_target_rows_are_lossy_and_say_so(protocol: ProtocolName, field: FloatField, least: float) -> None:
    wire = WireFormat(3, row_field=field)
    assert not PROTOCOLS[protocol].lossless(wire)
    found = distance(
        Case(
            pair("random", 8), [chain(protocol, 1)], wire=wire, candidates=int(protocol == "dssd_candidates"), length=1
        )
    )
    assert least / 100 < found < 100 * least


TARGET, DRAFT = oracle.softmax(np.array([0.5, 2.0, -1.0, 1.0])), oracle.softmax(np.array([2.0, 1.5, 1.0, 0.5]))


@pytest.mark.parametrize(
    ("accept", "correction", "lossy"),
    [
        pytest.param(np.minimum(1, TARGET / DRAFT), TARGET - DRAFT, False, id="Leviathan et al., algorithm 1"),
        pytest.param(np.minimum(1, DRAFT / TARGET), TARGET - DRAFT, True, id="TSLT algorithm 3, DSSD algorithm 2"),
        pytest.param(np.minimum(1, TARGET / DRAFT), TARGET, True, id="WISP eq. 3"),
    ],
)
def test_rules_as_published(accept: oracle.Row, correction: oracle.Row, *, lossy: bool) -> None:
    rest = np.maximum(correction, 0) / np.maximum(correction, 0).sum()
    emitted = DRAFT * accept + (1 - (DRAFT * accept).sum()) * rest
    assert (np.abs(emitted - TARGET).sum() / 2 > 0.05) == lossy

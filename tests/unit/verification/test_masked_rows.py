"""The gate for requests with a grammar: the response has the law of the target alone under the same masks.

Computed as in ``test_exactness``, over all ways the noise can fall. Devices know nothing of the grammar, so drafts have
mass on tokens that it forbids; what it allows is counted out (``languages``), never asked of the code under test.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest

from outrider.contracts.drafting import DraftPlan
from outrider.contracts.exchanged import FloatField, WireFormat
from outrider.contracts.requests import Grammar, ProtocolName, SamplingParams
from outrider.grammar.state import GrammarState, Mask
from outrider.protocols.registry import PROTOCOLS
from tests.unit.engines.languages import Language, counted, grammars_over
from tests.unit.verification.played import Case, Played, distance, pair, target_law

BOUND = 3e-7  # as in ``test_exactness``
WRONG = 0.02
END = 1
TEXTS = ("a", None, "b")
FORKED = counted(Language('start: "b"? "a" "b"?', frozenset({"a", "ab", "ba", "bab"}), TEXTS, END)).grammar
SHORT = counted(Language('start: "a"? "b"?', frozenset({"", "a", "b", "ab"}), TEXTS, END)).grammar
ONLY = counted(Language('start: "ba"', frozenset({"ba"}), TEXTS, END)).grammar
GRAMMARS = {
    "rows of one and of two tokens": FORKED,
    "it may end at once": SHORT,
    "one token in every row": ONLY,
    "behind a prefix": replace(SHORT, begins_after=2),
}
each_grammar = pytest.mark.parametrize("grammar", GRAMMARS.values(), ids=GRAMMARS.keys())
WIRES: dict[ProtocolName, WireFormat] = {
    "dsd": WireFormat(3, FloatField.BF16),
    "tslt": WireFormat(3, FloatField.INT8, top_k=2),
    "dssd": WireFormat(3, scalar_bits=8),
    "dssd_candidates": WireFormat(3, scalar_bits=16),
    "token_ids": WireFormat(3),
    "tslt_tree": WireFormat(3, FloatField.FP16),
}
COUNTED = SamplingParams(presence_penalty=-0.5, frequency_penalty=1.1, temperature=0.8)


def case_of(kind: str, plans: Sequence[DraftPlan | None], grammar: Grammar, length: int = 3) -> Case:
    protocol = next(plan.protocol for plan in plans if plan is not None)
    params = replace(COUNTED, grammar=grammar)
    grammars = grammars_over(TEXTS, END)
    grammars.begin(grammar)  # its tokens are there then, and no thread imports anything while the tape looks at modules
    candidates = 2 if protocol == "dssd_candidates" else 0
    wire = WIRES[protocol]
    return Case(pair(kind, 3), plans, params, wire, length=length, end=END, candidates=candidates, grammars=grammars)


def assert_exact(case: Case) -> None:
    for plan in case.plans:
        assert plan is None or PROTOCOLS[plan.protocol].lossless(case.wire)
    assert distance(case) <= BOUND


@each_grammar
@pytest.mark.parametrize("kind", ["random", "apart", "peaked"])
@pytest.mark.parametrize("protocol", ["dsd", "tslt", "dssd", "token_ids"])
def test_chains(protocol: ProtocolName, kind: str, grammar: Grammar) -> None:
    """Apart: the draft has next to no mass where the target has most; of what is forbidden it has much."""
    assert_exact(case_of(kind, [DraftPlan(protocol, 2)], grammar))


@each_grammar
def test_candidates_and_the_row_when_all_fail(grammar: Grammar) -> None:
    """Candidates are drawn from the masked row, and so is the row that is sent when all fail."""
    assert_exact(case_of("apart", [DraftPlan("dssd_candidates", 1)], grammar, length=2))


@each_grammar
@pytest.mark.parametrize(("masks", "distinct"), [(True, True), (False, False)])
def test_trees(grammar: Grammar, *, masks: bool, distinct: bool) -> None:
    """Paths of one tree stand at different places of the grammar; siblings may be forbidden."""
    case = case_of("random", [DraftPlan("tslt_tree", 2, (2, 1))], grammar)
    assert_exact(replace(case, masks=masks, wire=replace(case.wire, distinct_siblings=distinct)))


@each_grammar
def test_trees_with_the_targets_noise(grammar: Grammar) -> None:
    assert_exact(case_of("random", [DraftPlan("token_ids", 1, (2,))], grammar))
    assert_exact(case_of("random", [DraftPlan("token_ids", 2, rows=3)], grammar))


@each_grammar
@pytest.mark.parametrize("bonus", [True, False])
@pytest.mark.parametrize(
    "plans",
    [
        [DraftPlan("dsd", 1), None, DraftPlan("tslt", 1)],
        [DraftPlan("dssd", 1), DraftPlan("dssd", 1)],
        [DraftPlan("token_ids", 1), DraftPlan("dsd", 1)],
    ],
    ids=str,
)
def test_rounds_after_one_another(plans: Sequence[DraftPlan | None], grammar: Grammar, *, bonus: bool) -> None:
    assert_exact(replace(case_of("random", plans, grammar), bonus=bonus))


@pytest.mark.parametrize("protocol", ["dsd", "tslt", "dssd", "token_ids"])
def test_nothing_but_ends_follows_an_end(protocol: ProtocolName) -> None:
    """Nobody was told which token ends a response: drafts go on behind it."""
    assert_exact(replace(case_of("random", [DraftPlan(protocol, 2)], SHORT), end=None))


@each_grammar
@pytest.mark.parametrize(
    "plan",
    [
        *(DraftPlan(name, 2) for name in PROTOCOLS if not PROTOCOLS[name].judged),
        DraftPlan("tslt_tree", 2, (2, 2)),
        DraftPlan("token_ids", 2, rows=4),
    ],
    ids=str,
)
def test_greedy_output_is_the_targets_own(plan: DraftPlan, grammar: Grammar) -> None:
    for seed in range(4):
        greedy = SamplingParams(temperature=0.0, grammar=grammar)
        case = Case(
            pair("ties", seed), [plan] * 4, greedy, WireFormat(3), length=4, end=END, grammars=grammars_over(TEXTS, END)
        )
        assert Played(case).output() == next(iter(target_law(case)))


Masks = Callable[[GrammarState, Sequence[int], int, int], Mask]
_masks, _feed = GrammarState.masks, GrammarState.feed


def _fed_whatever_it_is(state: GrammarState, token_ids: Sequence[int]) -> int:
    """Nobody notices what was committed against the masks that would have been right."""
    _feed(state, token_ids)
    return len(token_ids)


def nothing_removed(state: GrammarState, path: Sequence[int], first: int, rows: int) -> Mask:
    """As if there were no grammar: what it forbids is accepted."""
    return np.full_like(_masks(state, path, first, rows), 0xFFFFFFFF)


def those_of_the_first_row(state: GrammarState, path: Sequence[int], first: int, rows: int) -> Mask:
    """The grammar does not go on along the draft."""
    return np.repeat(_masks(state, path, first, 1), rows, axis=0)


def end_forgotten(state: GrammarState, path: Sequence[int], first: int, rows: int) -> Mask:
    """It cannot end within a block: an end is taken for forbidden where anything else may follow."""
    masks = _masks(state, path, first, rows).copy()
    for mask in masks:
        if mask[0] & ~np.uint32(1 << END):
            mask[0] &= ~np.uint32(1 << END)
    return masks


@pytest.mark.parametrize("protocol", ["dsd", "dssd", "token_ids"])
@pytest.mark.parametrize("wrong", [nothing_removed, those_of_the_first_row, end_forgotten])
def test_masks_that_are_wrong_are_found_out(
    monkeypatch: pytest.MonkeyPatch, wrong: Masks, protocol: ProtocolName
) -> None:
    monkeypatch.setattr(GrammarState, "masks", wrong)
    monkeypatch.setattr(GrammarState, "feed", _fed_whatever_it_is)
    monkeypatch.setattr(GrammarState, "lawful", lambda _, path: len(path))
    assert distance(case_of("flat", [DraftPlan(protocol, 2)], SHORT, length=2)) > WRONG

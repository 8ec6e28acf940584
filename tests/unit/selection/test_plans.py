"""Which plans are compared, and by which rule they are verified."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.contracts.drafting import DraftPlan
from outrider.contracts.requests import ProtocolName, SamplingParams
from outrider.contracts.verifying import AcceptanceRule
from outrider.protocols.registry import PROTOCOLS, judged_protocols, tree_protocols
from outrider.selection.acceptance import AcceptanceBook
from outrider.selection.fixed import Fixed
from outrider.selection.plans import candidate_plans, fixed_plan
from outrider.wire.envelope import MAX_NODES
from tests.unit.selection.simulated_rounds import WIRE, World, link

GREEDY, SAMPLED = SamplingParams(temperature=0.0), SamplingParams()


@given(
    st.lists(st.sampled_from(tuple(PROTOCOLS)), min_size=1, unique=True),
    st.integers(1, 64),
    st.booleans(),
    st.sampled_from([(), (2,), (3, 2), (16, 16, 16)]),
)
def test_plans_are_possible_distinct_and_of_the_protocols_allowed(
    protocols: list[ProtocolName], longest: int, fixed: bool, expansion: tuple[int, ...]
) -> None:
    found = candidate_plans(tuple(protocols), longest, fixed, expansion)
    assert [found.index[plan] for plan in found.plans] == list(range(len(found.plans)))
    assert (None in found.plans) is not fixed
    plans = [plan for plan in found.plans if plan is not None]
    assert {plan.protocol for plan in plans} == set(protocols)
    for plan in plans:
        assert 1 <= plan.window <= longest
        assert plan.window == longest or not fixed
        assert plan.nodes <= MAX_NODES
        assert not plan.expansion or (plan.protocol in tree_protocols() and len(plan.expansion) == plan.window)
        assert plan.expansion or plan.protocol != "tslt_tree"


def test_every_window_of_a_chain_and_a_fixed_tree_alone() -> None:
    dssd = candidate_plans(("dssd",), 4, False, ()).plans
    assert dssd == (None, *(DraftPlan("dssd", window) for window in range(1, 5)))
    tree = candidate_plans(("token_ids",), 2, True, (3, 2)).plans
    assert tree == (DraftPlan("token_ids", 2, (3, 2)),)


@pytest.mark.parametrize(
    ("protocol", "window", "expansion", "plan"),
    [
        ("dsd", 3, (2, 2), DraftPlan("dsd", 3)),
        ("tslt_tree", 3, (2, 2), DraftPlan("tslt_tree", 3, (2, 2, 1))),
        ("tslt_tree", 1, (2, 2), DraftPlan("tslt_tree", 1, (2,))),
        ("tslt_tree", 2, (), DraftPlan("tslt_tree", 2, (1, 1))),
        ("token_ids", 2, (), DraftPlan("token_ids", 2)),
    ],
)
def test_a_fixed_plan(protocol: ProtocolName, window: int, expansion: tuple[int, ...], plan: DraftPlan) -> None:
    assert fixed_plan(protocol, window, expansion).plans == (plan,)


def test_a_tree_that_grows_takes_the_place_of_a_protocols_other_plans() -> None:
    grown = DraftPlan("token_ids", 3, rows=8)
    assert fixed_plan("token_ids", 3, (), 8).plans == (grown,)
    assert fixed_plan("token_ids", 9, (), 8).plans == (DraftPlan("token_ids", 8, rows=8),)
    assert fixed_plan("dsd", 3, (), 8).plans == (DraftPlan("dsd", 3),)
    assert candidate_plans(("token_ids", "dsd"), 3, True, (), 8).plans == (grown, DraftPlan("dsd", 3))


def test_none_grows_where_a_ratio_rule_may_have_a_part_in_the_response() -> None:
    mixed, alone = ("token_ids", "dsd"), ("token_ids",)
    for params, protocols, rows in ((GREEDY, mixed, 8), (SAMPLED, mixed, 0), (SAMPLED, alone, 8)):
        world = World(link(100, 5), 0.8, params=params)
        told = world.situation(AcceptanceBook().generation(), protocols=protocols, window=3, rows=8)
        assert told.grown_rows == rows
        plan = Fixed().choose(told, None).chosen.plan
        assert plan == DraftPlan("token_ids", 3, rows=rows)


def test_rules() -> None:
    lossless = [name for name in PROTOCOLS if name not in judged_protocols()]
    assert {PROTOCOLS[protocol].rule(GREEDY, WIRE) for protocol in lossless} == {AcceptanceRule.GREEDY}
    assert {PROTOCOLS[protocol].rule(GREEDY, WIRE) for protocol in judged_protocols()} == {AcceptanceRule.SEMANTIC}
    assert {PROTOCOLS[protocol].rule(SAMPLED, WIRE) for protocol in judged_protocols()} == {AcceptanceRule.SHARED_NOISE}
    assert PROTOCOLS["token_ids"].rule(SAMPLED, WIRE) is AcceptanceRule.SHARED_NOISE
    assert PROTOCOLS["dssd"].rule(SAMPLED, WIRE) is AcceptanceRule.RATIO
    assert PROTOCOLS["tslt_tree"].rule(SAMPLED, WIRE) is AcceptanceRule.RATIO_DISTINCT


@pytest.mark.parametrize("fixed", [False, True])
@pytest.mark.parametrize("expansion", [(), (2, 2, 1)])
def test_a_drafter_of_chains_is_offered_no_trees(fixed: bool, expansion: tuple[int, ...]) -> None:
    whole = candidate_plans(("token_ids",), 3, fixed, expansion, most_grown=16).plans
    chains = candidate_plans(("token_ids",), 3, fixed, expansion, chains_only=True).plans
    assert any(plan is not None and plan.is_tree for plan in whole)
    assert [plan.window for plan in chains if plan is not None] == ([3] if fixed else [1, 2, 3])
    assert not any(plan is not None and plan.is_tree for plan in chains)

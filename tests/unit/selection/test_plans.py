"""Which plans are compared, and by which rule they are verified."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.contracts.drafting import DraftPlan
from outrider.contracts.requests import TREE_PROTOCOLS, ProtocolName, SamplingParams
from outrider.contracts.verifying import AcceptanceRule
from outrider.selection.plans import candidate_plans, fixed_plan, rule_for
from outrider.wire.envelope import MAX_NODES
from tests.unit.selection.simulated_rounds import WIRE

GREEDY, SAMPLED = SamplingParams(temperature=0.0), SamplingParams()


@given(
    st.lists(st.sampled_from(ProtocolName), min_size=1, unique=True),
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
        assert not plan.expansion or (plan.protocol in TREE_PROTOCOLS and len(plan.expansion) == plan.window)
        assert plan.expansion or plan.protocol is not ProtocolName.TSLT_TREE


def test_every_window_of_a_chain_and_a_fixed_tree_alone() -> None:
    dssd = candidate_plans((ProtocolName.DSSD,), 4, False, ()).plans
    assert dssd == (None, *(DraftPlan(ProtocolName.DSSD, window) for window in range(1, 5)))
    tree = candidate_plans((ProtocolName.TOKEN_IDS,), 2, True, (3, 2)).plans
    assert tree == (DraftPlan(ProtocolName.TOKEN_IDS, 2, (3, 2)),)


@pytest.mark.parametrize(
    ("protocol", "window", "expansion", "plan"),
    [
        (ProtocolName.DSD, 3, (2, 2), DraftPlan(ProtocolName.DSD, 3)),
        (ProtocolName.TSLT_TREE, 3, (2, 2), DraftPlan(ProtocolName.TSLT_TREE, 3, (2, 2, 1))),
        (ProtocolName.TSLT_TREE, 1, (2, 2), DraftPlan(ProtocolName.TSLT_TREE, 1, (2,))),
        (ProtocolName.TSLT_TREE, 2, (), DraftPlan(ProtocolName.TSLT_TREE, 2, (1, 1))),
        (ProtocolName.TOKEN_IDS, 2, (), DraftPlan(ProtocolName.TOKEN_IDS, 2)),
    ],
)
def test_a_fixed_plan(protocol: ProtocolName, window: int, expansion: tuple[int, ...], plan: DraftPlan) -> None:
    assert fixed_plan(protocol, window, expansion).plans == (plan,)


def test_rules() -> None:
    assert {rule_for(protocol, GREEDY, WIRE) for protocol in ProtocolName} == {AcceptanceRule.GREEDY}
    assert rule_for(ProtocolName.TOKEN_IDS, SAMPLED, WIRE) is AcceptanceRule.SHARED_NOISE
    assert rule_for(ProtocolName.DSSD, SAMPLED, WIRE) is AcceptanceRule.RATIO
    assert rule_for(ProtocolName.TSLT_TREE, SAMPLED, WIRE) is AcceptanceRule.RATIO_DISTINCT

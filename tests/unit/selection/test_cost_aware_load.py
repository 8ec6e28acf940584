"""All generations under one policy on one verifier: drafting that minds the verifier costs nobody their speed."""

from dataclasses import dataclass

import pytest

from outrider.contracts.cost import LinearCostModel
from outrider.selection.cheapest import Cheapest
from outrider.selection.cost_aware import CostAware
from outrider.selection.estimates import estimate
from outrider.selection.plans import NO_DRAFT
from outrider.selection.situation import ChoiceReason, RoundChoice, RoundSituation
from tests.unit.selection.closed_loop import run
from tests.unit.selection.simulated_rounds import World, link

MODELS = {
    "constant": (LinearCostModel(1e-3, 0.0, 0.0, 30e-3), 300),
    "computing": (LinearCostModel(4.5e-3, 2e-7, 8e-6, 45e-3), 300),
    "reading": (LinearCostModel(0.05e-3, 0.0, 40e-6, 5e-3), 1000),
}


@dataclass(frozen=True, slots=True)
class NeverDraft:
    """The target alone."""

    def choose(self, situation: RoundSituation, previous: RoundChoice | None) -> RoundChoice:  # noqa: ARG002
        return RoundChoice(estimate(situation, NO_DRAFT).at(0), None, ChoiceReason.FIXED)


@pytest.mark.parametrize("ratio", [0.3, 0.8])
@pytest.mark.parametrize(("devices", "max_blocks"), [(1, 64), (4, 64), (24, 64), (24, 4)])
@pytest.mark.parametrize("kind", MODELS)
def test_never_slower_than_no_speculation_nor_than_cheapest(
    kind: str, devices: int, max_blocks: int, ratio: float
) -> None:
    model, position = MODELS[kind]
    world = World(link(100, 50), ratio, step_s=20e-3, model=model, position=position)
    none, cheapest, aware = (
        run(policy, world, devices, max_blocks=max_blocks).mean_tokens_per_s
        for policy in (NeverDraft(), Cheapest(), CostAware())
    )
    assert aware >= 0.97 * none
    assert aware >= 0.95 * cheapest


def test_where_reading_dominates_the_slack_of_a_slow_drafter_is_used() -> None:
    """The verifier is short of time, drafters are not: what they do meanwhile is free."""
    model, position = MODELS["reading"]
    world = World(link(100, 50), 0.3, step_s=20e-3, model=model, position=position)
    cheapest, aware = (run(policy, world, 4) for policy in (Cheapest(), CostAware()))
    assert cheapest.window == 0.0
    assert aware.window > 1.0
    assert aware.mean_tokens_per_s > 1.2 * cheapest.mean_tokens_per_s


def test_promises_hold_where_there_is_room_for_them() -> None:
    model, position = MODELS["reading"]
    world = World(link(100, 50), 0.8, step_s=20e-3, model=model, position=position)
    found = run(CostAware(), world, 8, promised=(2.0, 6.0))
    assert min(found.tokens_per_s[0::2]) >= 2.0
    assert min(found.tokens_per_s[1::2]) >= 6.0

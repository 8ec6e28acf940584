"""Whether the policy finds out where trees that grow are worth their rows, in worlds where that is known."""

import random
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from outrider.contracts.cost import LinearCostModel
from outrider.contracts.requests import SamplingParams
from outrider.contracts.verifying import AcceptanceRule
from outrider.selection.acceptance import AcceptanceBook
from outrider.selection.acceptance_view import DEPTHS, RULES, guessed_grown
from outrider.selection.cost_aware import CostAware
from outrider.selection.plans import GROWN_SHAPES
from outrider.selection.situation import RoundChoice, RoundSituation
from tests.unit.selection.simulated_rounds import SERVER, World, link

GREEDY = SamplingParams(temperature=0.0)
ACCEPTED = 0.6
DEAR = LinearCostModel(30e-3, 0.0, 1e-6, 30e-3)  # a row costs as much as a pass


def played(missed_again: float, model: LinearCostModel, rounds: int = 300) -> list[RoundChoice]:
    """Rounds of one pair. Where a chain's token is rejected, one of a grown tree's is, so often."""
    rng, book = random.Random(1), AcceptanceBook()
    world = World(link(100, 5), ACCEPTED, model=model, params=GREEDY)
    choices: list[RoundChoice] = []
    for _ in range(rounds // 50):  # a response each
        generation = book.generation()
        for _ in range(50):
            told = world.situation(generation, protocols=("token_ids",), may_grow=True)
            choices.append(CostAware().choose(told, choices[-1] if choices else None))
            plan = choices[-1].chosen.plan
            if plan is None:
                generation.observe(AcceptanceRule.GREEDY, 0, 0)
                continue
            misses = [rng.random() >= ACCEPTED for _ in range(plan.window)]
            if plan.rows:
                went = [not (miss and rng.random() < missed_again) for miss in misses]
                accepted = went.index(False) if False in went else plan.window
                shape = plan.rows, plan.window
                generation.observe_grown(AcceptanceRule.GREEDY, shape, accepted, first=not misses[0])
            elif plan.expansion:  # siblings bring nothing here
                accepted = misses.index(True) if True in misses else plan.window
                offered = list(plan.expansion[: accepted + 1])
                generation.observe_tree(AcceptanceRule.GREEDY, offered, [0] * accepted)
            else:
                accepted = misses.index(True) if True in misses else plan.window
                generation.observe(AcceptanceRule.GREEDY, accepted, plan.window)
    return choices


def kinds(choices: list[RoundChoice]) -> Counter[str]:
    plans = [choice.chosen.plan for choice in choices]
    return Counter("none" if plan is None else "grown" if plan.rows else "other" for plan in plans)


def test_trees_that_grow_are_chosen_where_they_go_further() -> None:
    assert kinds(played(0.5, SERVER)[-100:])["grown"] > 90


def test_chains_are_where_trees_bring_nothing() -> None:
    found = played(1.0, replace(SERVER, seconds_per_token=3e-3))
    assert kinds(found[:50])["grown"] > 0, "it is tried"
    assert kinds(found[-100:])["grown"] < 10


def test_rows_that_cost_are_not_filled() -> None:
    assert kinds(played(0.5, DEAR)[-100:])["grown"] == 0


def told(**changes: object) -> RoundSituation:
    generation = AcceptanceBook().generation()
    usual: dict[str, object] = {"protocols": ("token_ids", "dsd")}
    return World(link(100, 5), 0.8, params=GREEDY).situation(generation, **usual | changes)


@pytest.mark.parametrize(
    ("changes", "most"),
    [
        ({"may_grow": True}, 16),
        ({}, 0),
        ({"may_grow": True, "window": 3}, 0),
        ({"may_grow": True, "expansion": (2, 1)}, 0),
        ({"may_grow": True, "params": SamplingParams()}, 0),
        ({"may_grow": True, "params": SamplingParams(), "protocols": ("token_ids",)}, 16),
    ],
)
def test_they_are_offered_where_nothing_is_fixed_and_no_ratio_rule_minds(changes: dict[str, object], most: int) -> None:
    assert told(**changes).most_grown == most


def test_what_is_guessed_is_a_chain_where_there_are_no_further_rows() -> None:
    means = np.random.default_rng(0).uniform(0.1, 0.9, (len(RULES), DEPTHS))
    assert np.allclose(guessed_grown(means, (4, 4)), means)
    narrow, wide = guessed_grown(means, (8, 4)), guessed_grown(means, (16, 4))
    assert (means < narrow).all()
    assert (narrow < wide).all()
    assert (wide < 1.0).all()


def test_a_book_learns_how_far_each_shape_goes_and_what_a_chain_begins_with() -> None:
    book = AcceptanceBook()
    before = book.view()
    for _ in range(400):
        book.observe_grown(AcceptanceRule.GREEDY, (8, 4), 3, first=False)
    after, other = book.view(), (16, 6)
    assert after.as_grown((8, 4))[0, :4] == pytest.approx([1.0, 1.0, 1.0, 0.0], abs=0.06)
    assert after.token_acceptance(AcceptanceRule.GREEDY, 0) < 0.1 < before.token_acceptance(AcceptanceRule.GREEDY, 0)
    assert after.grown.get(other) is None
    assert np.array_equal(after.as_grown(other), guessed_grown(after.means, other))


def test_near_its_end_a_response_has_shallow_trees() -> None:
    short = replace(told(may_grow=True, protocols=("token_ids",)), remaining_tokens=3)
    plan = CostAware().choose(short, None).chosen.plan
    assert plan is not None
    assert plan.window <= 2 < min(depth for _, depth in GROWN_SHAPES)

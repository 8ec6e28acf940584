"""The policy in worlds whose best fixed choice is known: how near it comes once it knows the pair.

Where two plans differ by less than what a generation can learn of its acceptance, it may sit on the wrong one.
"""

import pytest

from outrider.protocols.registry import PROTOCOLS
from outrider.selection.acceptance import AcceptanceBook
from outrider.selection.cheapest import Cheapest
from outrider.selection.plans import candidate_plans
from tests.unit.selection.simulated_rounds import World, link, play, true_candidates, true_seconds_per_token

RTTS_MS = (0, 5, 20, 50)


@pytest.mark.parametrize("ratio", [0.3, 0.6, 0.9])
@pytest.mark.parametrize("mbps", [1, 20, 500, *(pytest.param(mbps, marks=pytest.mark.long) for mbps in (10, 100))])
def test_near_the_best_fixed_choice_and_never_worse_than_no_draft(mbps: float, ratio: float) -> None:
    plans = candidate_plans(tuple(PROTOCOLS), 16, False, ()).plans
    excess = []
    for rtt_ms in RTTS_MS:
        world, book = World(link(mbps, rtt_ms), ratio), AcceptanceBook()
        for seed in (1, 2, 3):
            play(world, Cheapest(), book, rounds=300, seed=seed)
        reached = true_seconds_per_token(world, play(world, Cheapest(), book, rounds=200, seed=4))
        candidates = true_candidates(world)
        fixed = {plan: world.round_s(plan, candidates) / world.tokens(plan)[0] for plan in plans}
        assert reached <= 1.03 * fixed[None], rtt_ms
        excess.append(reached / min(fixed.values()) - 1.0)
    assert max(excess) <= 0.05, excess
    assert sum(excess) / len(excess) <= 0.03, excess

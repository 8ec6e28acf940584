from dataclasses import replace
from itertools import accumulate
from operator import mul

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.simulation.published import TABLE_12
from outrider.contracts.cost import CostModel, LinearCostModel, VerifyCost
from outrider.contracts.drafting import DraftPlan
from outrider.contracts.price import DraftPrice
from outrider.contracts.verifying import AcceptanceRule
from outrider.selection.acceptance import AcceptanceBook
from outrider.selection.estimates import estimate
from outrider.selection.plans import PlanSet
from outrider.selection.situation import DrafterView, Estimate, RoundSituation
from outrider.selection.stop_prices import MarginalDraftCost, RoundsLately, draft_price, order_price
from outrider.selection.verifier_load import VerifierLoad
from tests.unit.selection.simulated_rounds import World, link

ROWS = LinearCostModel(0.01, 0.0, 0.0, 0.1)  # 10 ms a row
IDLE = VerifierLoad(queue_s=0.0, batch_blocks=1.0, batch_s=0.0, fixed_s=0.0)
LATELY = RoundsLately(exchange_s=0.3, sent_tokens=4.0, committed_tokens=3.0, acceptance=0.8)
FAST = MarginalDraftCost(step_s=0.0)


def price(
    load: VerifierLoad = IDLE,
    lately: RoundsLately = LATELY,
    further: MarginalDraftCost = FAST,
    model: CostModel = ROWS,
    cached: int = 0,
) -> DraftPrice:
    return draft_price(model, load, lately, cached, further)


def test_on_an_idle_verifier_a_token_costs_its_own_generations_seconds() -> None:
    """3 tokens in 0.3 + 0.15 s; a row is 10 ms and a step 50 ms of it."""
    found = price(further=MarginalDraftCost(0.05, 0.005))
    assert found.send_above == pytest.approx(3.0 / 0.45 * 0.015)
    assert found.go_on_above == pytest.approx(3.0 / 0.45 * (0.015 + 0.05) / 0.8)


def test_on_a_saturated_verifier_only_rows_cost() -> None:
    load = replace(IDLE, queue_s=1000.0, batch_blocks=20.0)
    found = price(load, further=MarginalDraftCost(0.05, 0.005))
    assert found.send_above == pytest.approx(3.0 * 0.2 / (0.1 + 20 * 5 * 0.01), rel=0.01), (
        "20 rows of 10 ms, of a batch"
    )
    assert found.go_on_above == pytest.approx(found.send_above / 0.8, rel=0.01)


def test_rows_beside_a_long_prefix_are_nearly_free() -> None:
    """WISP Table 12: reading 600 positions takes what 50 rows do."""
    load = VerifierLoad(queue_s=0.3, batch_blocks=80.0, batch_s=0.0, fixed_s=0.002)
    lately = RoundsLately(exchange_s=0.23, sent_tokens=10.0, committed_tokens=6.2, acceptance=0.875)
    assert price(load, lately, model=TABLE_12, cached=600).send_above < 0.15
    assert price(load, lately, model=TABLE_12, cached=0).send_above > 0.25


@given(
    st.floats(0.0, 10.0),
    st.floats(1.0, 200.0),
    st.floats(0.0, 5.0),
    st.floats(0.0, 16.0),
    st.floats(0.0, 1.0),
    st.floats(0.0, 1.0),
)
def test_any_load_has_a_price(
    queue_s: float, blocks: float, exchange_s: float, sent: float, share: float, step_s: float
) -> None:
    lately = RoundsLately(exchange_s, sent, 1.0 + share * sent, share)
    found = price(VerifierLoad(queue_s, blocks, 0.0, 0.0), lately, MarginalDraftCost(step_s), TABLE_12, 500)
    assert 0.0 <= found.send_above <= found.go_on_above <= 1.0


@pytest.mark.parametrize("step_s", [0.0, 0.02, 0.2])
@pytest.mark.parametrize(("blocks", "queue_s"), [(1.0, 0.0), (40.0, 100.0)], ids=["idle", "saturated"])
def test_the_best_draft_is_where_its_own_price_ends_it(step_s: float, blocks: float, queue_s: float) -> None:
    """Against all lengths of a chain of known acceptance, by the cost that the price is made of."""
    each = 0.8
    survivals: list[float] = list(accumulate([each] * 12, mul))
    load = VerifierLoad(queue_s, blocks, 0.0, 0.0)

    def ended(tokens: int) -> int:
        """How long a draft is that goes by the price of drafts of that length."""
        lately = RoundsLately(0.1 + tokens * step_s, tokens, 1.0 + sum(survivals[:tokens]), each)
        above = price(load, lately, MarginalDraftCost(step_s)).go_on_above * each
        return int(np.count_nonzero(np.array(survivals) > above))

    def brings(tokens: int) -> float:
        batch_s = ROWS.predict_alike_s(VerifyCost(tokens + 1, 0), blocks)
        own_s = 0.1 + tokens * step_s + batch_s
        return (1.0 + sum(survivals[:tokens])) / (batch_s if queue_s else own_s)

    best = max(range(13), key=brings)
    assert abs(ended(best) - best) <= 1


PRICED = DrafterView(None, 0.05, 0.0, stops=True, by_price=True)


def chosen(drafter: DrafterView) -> tuple[RoundSituation, Estimate]:
    """A round with that drafter, for which four tokens are ordered."""
    world = World(link(10.0, 20.0), 0.8)
    situation = replace(world.situation(AcceptanceBook().generation()), drafter=replace(drafter, csi=world.csi))
    return situation, estimate(situation, PlanSet((DraftPlan("token_ids", 4),))).at(0)


def test_an_order_tells_the_price_to_a_device_that_goes_by_it() -> None:
    found = order_price(*chosen(PRICED))
    assert found is not None
    assert found == DraftPrice.at_levels(*found.levels)
    assert 0.0 < found.send_above < found.go_on_above < 1.0
    dearer = order_price(*chosen(replace(PRICED, step_s=0.2)))
    assert dearer is not None
    assert dearer.go_on_above > found.go_on_above


def test_others_are_told_none() -> None:
    situation, estimated = chosen(PRICED)
    tree = estimate(situation, PlanSet((DraftPlan("token_ids", 2, (2, 1)),))).at(0)
    assert order_price(situation, tree) is None
    assert order_price(situation, replace(estimated, plan=None)) is None
    assert order_price(*chosen(replace(PRICED, by_price=False))) is None


def test_a_device_that_always_goes_on_at_its_price_is_ordered_as_much_as_pays() -> None:
    """A price of drafts of another length than pays moves them there."""
    situation, _ = chosen(PRICED)
    each, _ = situation.acceptance.chain(AcceptanceRule.SHARED_NOISE, 12)
    best = min(range(1, 13), key=lambda window: seconds_per_token(situation, window))
    for window in (1, best, 12):
        price = order_price(situation, estimate(situation, PlanSet((DraftPlan("token_ids", window),))).at(0))
        assert price is not None
        ended = 1 + int((each.cumprod()[:-1] > price.go_on_above).argmin())
        assert abs(ended - best) <= (1 if window == best else abs(window - best))


def seconds_per_token(situation: RoundSituation, window: int) -> float:
    return estimate(situation, PlanSet((DraftPlan("token_ids", window),))).at(0).seconds_per_token

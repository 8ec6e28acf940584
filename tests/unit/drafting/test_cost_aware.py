from dataclasses import dataclass
from itertools import accumulate
from operator import mul

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.contracts.price import PRICE_BITS, PRICE_LEVELS, DraftPrice
from outrider.drafting.cost_aware import CostAwareStop
from outrider.drafting.features import DraftFeatures
from outrider.drafting.stops import StopDecision, StopRule
from tests.unit.drafting.test_stops import row

PROBABILITIES = st.lists(st.floats(0.0, 1.0), min_size=1, max_size=12)
PRICES = st.floats(0.0, 1.0)


@dataclass
class Saying:
    """A predictor that says one thing after another, the same to whoever asks of the same row."""

    says: dict[int, float]

    def probability(self, features: DraftFeatures) -> float:
        return self.says[id(features)]


def drafted(probabilities: list[float], price: DraftPrice) -> tuple[int, int]:
    """Tokens sent, and rows computed."""
    rows = [row(0.5) for _ in probabilities]
    rule: StopRule = CostAwareStop(Saying(dict(zip(map(id, rows), probabilities, strict=True))), price)
    for sent, features in enumerate(rows):
        step = rule.step(features)
        if step is not StopDecision.DRAW:
            return sent + (step is StopDecision.DRAW_LAST), sent + 1
        rule = rule.after(features)
    return len(rows), len(rows)


@pytest.mark.parametrize(
    ("price", "sent", "computed"),
    [
        (DraftPrice(), 4, 4),
        (DraftPrice(0.3, 0.3), 2, 3),
        (DraftPrice(0.1, 0.5), 3, 3),
        (DraftPrice(0.5, 0.7), 2, 2),
        (DraftPrice(0.9, 0.9), 0, 1),
        (DraftPrice(1.0, 1.0), 0, 1),
    ],
)
def test_a_token_is_sent_for_its_row_and_drafted_behind_for_a_step_too(
    price: DraftPrice, sent: int, computed: int
) -> None:
    """Survivals 0.9, 0.54, 0.27, 0.05."""
    assert drafted([0.9, 0.6, 0.5, 0.2], price) == (sent, computed)


def test_a_token_that_is_likelier_rejected_is_sent_where_rows_are_nearly_free() -> None:
    assert drafted([0.4, 0.4, 0.4], DraftPrice(0.01, 0.05)) == (3, 3)


@given(PROBABILITIES, PRICES, PRICES)
def test_what_is_sent_pays_and_what_is_not_does_not(probabilities: list[float], one: float, other: float) -> None:
    price = DraftPrice(*sorted((one, other)))
    sent, _ = drafted(probabilities, price)
    survivals = list(accumulate(probabilities, mul))
    assert all(survival > price.send_above for survival in survivals[:sent])
    assert all(survival <= price.go_on_above for survival in survivals[sent:])


@given(PROBABILITIES, PRICES, PRICES)
def test_a_dearer_row_never_makes_a_draft_longer(probabilities: list[float], cheap: float, dear: float) -> None:
    cheap, dear = sorted((cheap, dear))
    assert drafted(probabilities, DraftPrice(dear, 1.0)) <= drafted(probabilities, DraftPrice(cheap, 1.0))
    assert drafted(probabilities, DraftPrice(dear, dear)) <= drafted(probabilities, DraftPrice(cheap, cheap))


@pytest.mark.parametrize("draft_s", [0.0, 0.02, 0.1])
def test_at_its_own_price_a_draft_of_known_acceptance_brings_most_per_second(draft_s: float) -> None:
    """The theorem of the rule: the best ratio's own rate, as price, draws the very draft that has it."""
    rows_s, fixed_s, each = 0.01, 0.2, [0.9, 0.85, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3]
    survivals = [0.0, *accumulate(each, mul)]
    rates = [
        (1.0 + sum(survivals[: tokens + 1])) / (fixed_s + tokens * (rows_s + draft_s)) for tokens in range(len(each))
    ]
    best = max(range(len(rates)), key=rates.__getitem__)
    together = max(rates) * (rows_s + draft_s)
    sent, _ = drafted(each, DraftPrice(together, together))
    assert sent == best


def test_prices_are_told_in_few_bits() -> None:
    assert PRICE_LEVELS**2 == 2**PRICE_BITS
    assert DraftPrice().levels == (PRICE_LEVELS - 1, PRICE_LEVELS - 1)
    assert DraftPrice(1.0, 1.0).levels == (0, 0)
    for level in range(PRICE_LEVELS):
        assert DraftPrice.at_levels(level, 0).levels == (level, 0)
        assert DraftPrice.at_levels(0, level).levels == (0, level)


@given(st.floats(0.006, 1.0))
def test_a_price_is_told_to_within_a_tenth(price: float) -> None:
    sent_chain = DraftPrice.at_levels(*DraftPrice(price, price).levels)
    assert sent_chain.send_above == sent_chain.go_on_above == pytest.approx(price, rel=0.1)

"""Drafts that devices stop, in a world that is known: what is accepted goes with what they are stopped for."""

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise, product

import numpy as np
import pytest

from outrider.contracts.drafting import DraftPlan
from outrider.contracts.errors import ParameterError
from outrider.contracts.requests import SamplingParams
from outrider.contracts.verifying import AcceptanceRule
from outrider.selection.acceptance import AcceptanceBook, GenerationAcceptance
from outrider.selection.drafted_shares import DraftedShares
from outrider.selection.estimates import estimate
from outrider.selection.plans import PlanSet
from outrider.selection.situation import RoundSituation
from tests.unit.selection.simulated_rounds import World, link

GREEDY = AcceptanceRule.GREEDY
GREEDY_REQUEST = SamplingParams(temperature=0.0)
WINDOW = 4
EASY, HARD = 0.9, 0.3  # acceptance at two kinds of positions
_STAYS = 0.7  # the next position is of the same kind


@dataclass(frozen=True)
class Device:
    """Sees the kind of a position, not whether its token will be accepted."""

    flags_hard: float  # share of hard positions that it takes for hard
    flags_easy: float
    sends_flagged: bool = False


DEVICES = {
    "whole": Device(0.0, 0.0),
    "stops before": Device(0.8, 0.1),
    "sends and stops": Device(0.8, 0.1, sends_flagged=True),
    "knows": Device(1.0, 0.0),
}


def chances(device: Device) -> Iterator[tuple[float, int, int]]:
    """Every way a draft can go: probability, tokens drafted, tokens of these accepted. By enumeration."""
    for kinds in product((EASY, HARD), repeat=WINDOW):
        seen = 0.5 * np.prod([_STAYS if one == two else 1 - _STAYS for one, two in pairwise(kinds)])
        for flags in product((False, True), repeat=WINDOW):
            flagging = [device.flags_hard if kind == HARD else device.flags_easy for kind in kinds]
            told = np.prod([share if flag else 1 - share for flag, share in zip(flags, flagging, strict=True)])
            at = flags.index(True) if True in flags else WINDOW
            drafted = min(WINDOW, at + 1) if device.sends_flagged else at
            for accepted in range(drafted + 1):
                right = np.prod(kinds[:accepted]) * (1 - kinds[accepted] if accepted < drafted else 1.0)
                yield float(seen * told * right), drafted, accepted


def truth(device: Device) -> tuple[list[float], list[float], float]:
    """Acceptance of a drafted token, share that is drafted, by position; and what a round commits."""
    ways = list(chances(device))
    assert sum(prob for prob, _, _ in ways) == pytest.approx(1.0)
    acceptance, shares = [], []
    for depth in range(WINDOW):
        reached = sum(prob for prob, _, accepted in ways if accepted >= depth)
        drafted = sum(prob for prob, drafted, accepted in ways if accepted >= depth and drafted > depth)
        passed = sum(prob for prob, _, accepted in ways if accepted > depth)
        acceptance.append(passed / drafted)
        shares.append(drafted / reached)
    return acceptance, shares, 1.0 + sum(prob * accepted for prob, _, accepted in ways)


def told(device: Device, rule: AcceptanceRule = GREEDY) -> AcceptanceBook:
    """A book that has seen many of its rounds, as often as they come."""
    book, ways = AcceptanceBook(), list(chances(device))
    for _, drafted, accepted in random.Random(1).choices(ways, [prob for prob, _, _ in ways], k=20_000):
        book.observe(rule, accepted, drafted)
        book.observe_drafted(rule, accepted, drafted, WINDOW)
    return book


def asked(params: SamplingParams) -> RoundSituation:
    """A round on a known link."""
    return World(link(10.0, 20.0), 0.8, params=params).situation(AcceptanceBook().generation())


@pytest.mark.parametrize("device", DEVICES.values(), ids=DEVICES.keys())
def test_acceptance_is_that_of_drafted_tokens_and_their_share_is_told(device: Device) -> None:
    """The book remembers some 4000 tokens: 3 standard deviations at the positions seen least are 0.06."""
    view = told(device).view()
    acceptance, shares, _ = truth(device)
    found = [view.token_acceptance(GREEDY, depth) for depth in range(WINDOW)]
    assert found == pytest.approx(acceptance, abs=0.06)
    if device == DEVICES["whole"]:
        assert view.drafted is None
    else:
        assert view.drafted is not None
        assert view.drafted[list(AcceptanceRule).index(GREEDY)][:WINDOW].tolist() == pytest.approx(shares, abs=0.06)


@pytest.mark.parametrize("device", DEVICES.values(), ids=DEVICES.keys())
def test_a_plan_is_expected_to_bring_what_it_brings(device: Device) -> None:
    """From acceptance alone a device that stops would be expected to bring nearly twice as much."""
    known, situation = told(device).view(), asked(GREEDY_REQUEST)
    situation = replace(situation, acceptance=known)
    plans = PlanSet((DraftPlan("token_ids", WINDOW),))
    found = float(estimate(situation, plans).expected_tokens[0])
    assert found == pytest.approx(truth(device)[2], rel=0.04)
    if device == DEVICES["stops before"]:
        blind = estimate(replace(situation, acceptance=replace(known, drafted=None)), plans)
        assert float(blind.expected_tokens[0]) > 1.7 * found


@pytest.mark.parametrize("device", DEVICES.values(), ids=DEVICES.keys())
def test_a_draft_that_stops_is_not_one_that_is_rejected(device: Device) -> None:
    """Each rejection costs a row; the seconds tell how many are expected."""
    known, situation = told(device, AcceptanceRule.RATIO).view(), asked(SamplingParams())
    plans = PlanSet((DraftPlan("dssd", WINDOW),))
    views = [known, *(replace(known, means=np.full_like(known.means, mean)) for mean in (1.0, 0.0))]
    found, least, most = (float(estimate(replace(situation, acceptance=view), plans).exchange_s[0]) for view in views)
    rejected = sum(prob for prob, drafted, accepted in chances(device) if accepted < drafted)
    begun = known.chain(AcceptanceRule.RATIO, 1)[1][0]  # drafts, each of them rejected if any token is
    assert begun * (found - least) / (most - least) == pytest.approx(rejected, abs=0.04)


@pytest.mark.parametrize("device", DEVICES.values(), ids=DEVICES.keys())
def test_a_plan_is_charged_for_what_is_drafted_of_it(device: Device) -> None:
    """Of drafts that are accepted as far as they go; what is drafted behind a rejection may not be known."""
    situation = replace(asked(GREEDY_REQUEST), acceptance=told(device).view())
    plan = DraftPlan("token_ids", WINDOW)
    found = estimate(situation, PlanSet((plan,))).at(0)
    alike = truth(device)[1]
    assert found.sent_tokens == pytest.approx(float(np.cumprod(alike).sum()), rel=0.04)
    shorter, longer = (
        estimate(replace(situation, acceptance=AcceptanceBook().view()), PlanSet((replace(plan, window=window),))).at(0)
        for window in (int(found.sent_tokens), int(found.sent_tokens) + 1)
    )
    assert shorter.exchange_s <= found.exchange_s <= longer.exchange_s
    assert shorter.verifier_s_per_token * shorter.expected_tokens <= found.verifier_s_per_token * found.expected_tokens


def test_what_stands_behind_a_rejection_is_not_counted() -> None:
    """It was drawn with noise that is used again: no choice may depend on it."""
    one, other = DraftedShares(1, 8, 1e9), DraftedShares(1, 8, 1e9)
    for shares, lengths in ((one, (2, 3, 4)), (other, (4, 4, 4))):
        for drafted in lengths:
            shares.observe(0, 1, drafted, 4)
    assert one.shares() is None
    assert other.shares() is None


def test_a_stop_is_one_where_all_before_it_was_accepted() -> None:
    shares = DraftedShares(1, 4, 1e9)
    for _ in range(90):
        shares.observe(0, 2, 2, 6)
    found = shares.shares()
    assert found is not None
    assert found[0].tolist() == pytest.approx([1.0, 1.0, 0.1, 1.0])
    for _ in range(1000):
        shares.observe(0, 6, 6, 6)
    found = shares.shares()
    assert found is not None
    assert found[0, 2] > 0.9


def test_an_order_of_nothing_tells_nothing() -> None:
    shares = DraftedShares(1, 4, 1e9)
    shares.observe(0, 0, 0, 0)
    assert shares.shares() is None


def test_what_cannot_be_is_refused() -> None:
    shares = DraftedShares(1, 4, 1e9)
    with pytest.raises(ParameterError, match=r"accepted_len needs a number in 0\.\.1"):
        shares.observe(0, 2, 1, 4)


def test_one_that_teaches_nothing_is_not_counted() -> None:
    book = AcceptanceBook()
    taught: list[GenerationAcceptance] = [book.generation(teaches=False), book.generation()]
    for generation in taught:
        generation.observe(GREEDY, 0, 0)
        generation.observe_drafted(GREEDY, 0, 0, 4)
        assert (book.view().drafted is None) == (generation is taught[0])

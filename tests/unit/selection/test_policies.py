"""The policies: what they choose in situations whose answer is plain, and why they say so."""

from dataclasses import replace

import pytest

from outrider.contracts.cost import LinearCostModel
from outrider.contracts.drafting import DraftPlan
from outrider.contracts.requests import SamplingParams
from outrider.contracts.verifying import AcceptanceRule
from outrider.selection.acceptance import AcceptanceBook, GenerationAcceptance
from outrider.selection.cheapest import Cheapest
from outrider.selection.cost_aware import CostAware
from outrider.selection.estimates import estimate
from outrider.selection.fixed import Fixed
from outrider.selection.modes import NONE
from outrider.selection.plans import PlanSet
from outrider.selection.situation import (
    ChoiceReason,
    DrafterView,
    Estimate,
    RoundChoice,
    RoundSituation,
    SelectionPolicy,
    VerifierView,
)
from outrider.selection.wisv_rule import WisvRule
from tests.unit.selection.simulated_rounds import SERVER, World, link, play
from tests.unit.selection.test_estimates import constant, knowing

# Verifying is computing: a block's rows cost in proportion.
COMPUTE_BOUND = LinearCostModel(10e-3, 0.0, 0.0, 5e-3)
# Verifying is reading the prefix: rows come for nothing.
READ_BOUND = LinearCostModel(0.05e-3, 0.0, 40e-6, 5e-3)


def situation(acceptance: float = 0.8, mbps: float = 100, rtt_ms: float = 5, **changes: object) -> RoundSituation:
    """An idle verifier, a fast drafter, and a known acceptance."""
    known = knowing(World(link(mbps, rtt_ms), acceptance))
    known = replace(known, acceptance=constant(known.acceptance, acceptance))
    return replace(known, **changes)  # type: ignore[arg-type]  # fields by name


def window(choice: RoundChoice) -> int:
    return 0 if choice.chosen.plan is None else choice.chosen.plan.window


def loaded(model: LinearCostModel, queue_s: float) -> VerifierView:
    return VerifierView(model, queue_s, batch_blocks=16.0, fixed_s=1e-3)


@pytest.mark.parametrize("policy", [Fixed(), Cheapest(), CostAware()])
@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"drafter": None}, ChoiceReason.NO_DRAFTER),
        ({"mode": NONE}, ChoiceReason.TUNED),
        ({"mode": NONE, "drafter": None}, ChoiceReason.TUNED),
        ({"remaining_tokens": 1}, ChoiceReason.LAST_TOKEN),
        ({"window": 0}, ChoiceReason.FIXED),
        ({"protocols": ()}, ChoiceReason.FIXED),
    ],
)
def test_no_draft_where_there_can_be_none(
    policy: SelectionPolicy, changes: dict[str, object], reason: ChoiceReason
) -> None:
    choice = policy.choose(situation(**changes), None)  # type: ignore[arg-type]  # fields by name
    assert (choice.chosen.plan, choice.runner_up, choice.reason) == (None, None, reason)
    assert choice.chosen.expected_tokens == 1.0
    assert choice.chosen.round_s > 0.0


@pytest.mark.parametrize("policy", [Fixed(), Cheapest(), CostAware()])
def test_a_window_that_is_named_is_drafted_under_any_mode(policy: SelectionPolicy) -> None:
    assert window(policy.choose(situation(window=3, mode=NONE), None)) == 3


@pytest.mark.parametrize(
    ("asked", "remaining", "expected"), [(4, 100, 4), (4, 3, 2), (40, 100, 16), (None, 100, 16), (None, 8, 7)]
)
def test_fixed_is_clamped_to_k_max_and_what_remains(asked: int | None, remaining: int, expected: int) -> None:
    choice = Fixed().choose(situation(window=asked, remaining_tokens=remaining, protocols=("dsd",)), None)
    assert choice.chosen.plan == DraftPlan("dsd", expected)
    assert choice.reason is ChoiceReason.FIXED


def test_fixed_takes_the_first_protocol_and_the_configured_tree() -> None:
    protocols = ("tslt_tree", "token_ids")
    choice = Fixed().choose(situation(window=2, expansion=(3, 2), protocols=protocols), None)
    assert choice.chosen.plan == DraftPlan("tslt_tree", 2, (3, 2))


def test_an_idle_verifier_and_a_fast_drafter_get_long_windows() -> None:
    assert window(Cheapest().choose(situation(0.95), None)) >= 8
    assert window(Cheapest().choose(situation(1.0), None)) == 16
    assert window(Cheapest().choose(situation(1.0, k_max=5), None)) == 5


def test_nothing_is_drafted_that_is_never_accepted() -> None:
    assert window(Cheapest().choose(situation(0.0), None)) == 0


def test_a_long_round_trip_asks_for_longer_windows() -> None:
    windows = [window(Cheapest().choose(situation(0.9, rtt_ms=rtt_ms), None)) for rtt_ms in (0, 20, 50)]
    assert windows[0] < windows[-1]
    assert windows == sorted(windows)


def test_a_slow_drafter_gets_short_windows() -> None:
    windows = [
        window(Cheapest().choose(situation(0.8, drafter=DrafterView(link(100, 5), step_s, 1e-3)), None))
        for step_s in (1e-3, 4e-3, 12e-3, 0.2)
    ]
    assert windows == sorted(windows, reverse=True)
    assert windows[-1] == 0 < windows[-2]


@pytest.mark.parametrize("mbps", [1, 10, 100])
def test_dsd_never_on_a_slow_link(mbps: int) -> None:
    choice = Cheapest().choose(situation(0.9, mbps=mbps), None)
    assert choice.chosen.plan is not None
    assert choice.chosen.plan.protocol != "dsd"
    alone = Cheapest().choose(situation(0.9, mbps=mbps, protocols=("dsd",)), None)
    assert (window(alone) == 0) is (mbps < 100), "a row of 0.8 Mbit a token"


def test_a_saturated_verifier_drafts_nothing_where_computing_dominates() -> None:
    assert window(Cheapest().choose(situation(0.8, verifier=loaded(COMPUTE_BOUND, 20.0)), None)) == 0
    assert window(Cheapest().choose(situation(0.8, verifier=loaded(READ_BOUND, 20.0), position=2000), None)) > 2
    assert window(Cheapest().choose(situation(1.0, verifier=loaded(COMPUTE_BOUND, 20.0)), None)) == 16
    assert window(Cheapest().choose(situation(0.8, verifier=loaded(SERVER, 0.0)), None)) > 0


def test_windows_shrink_as_batches_fill() -> None:
    model = LinearCostModel(1e-3, 0.0, 0.0, 30e-3)
    windows = [
        window(Cheapest().choose(situation(0.8, verifier=VerifierView(model, 0.0, blocks, 1e-3)), None))
        for blocks in (1.0, 4.0, 16.0, 64.0, 256.0)
    ]
    assert windows == sorted(windows, reverse=True)
    assert windows[-1] == 0 < windows[0]


@pytest.mark.parametrize("policy", [Cheapest(), CostAware()])
def test_a_request_s_own_window_leaves_the_protocol(policy: SelectionPolicy) -> None:
    for asked, mbps in ((3, 0.5), (3, 500)):
        choice = policy.choose(situation(0.2, mbps=mbps, rtt_ms=50, window=asked), None)
        assert window(choice) == asked
        assert choice.chosen.plan is not None
        assert choice.chosen.plan.protocol != "dsd"
        assert choice.runner_up is not None
    one = policy.choose(situation(window=3, protocols=("dssd",)), None)
    assert (one.runner_up, one.reason) == (None, ChoiceReason.FIXED)


def test_a_greedy_request_sends_ids_only() -> None:
    choice = Cheapest().choose(situation(0.8, mbps=1, params=SamplingParams(temperature=0.0)), None)
    assert choice.chosen.plan is not None
    assert choice.chosen.plan.protocol == "token_ids"


def test_a_plan_stays_until_another_is_clearly_better() -> None:
    first = Cheapest().choose(situation(0.8), None)
    assert first.reason is ChoiceReason.CHEAPEST
    assert first.runner_up is not None
    second = RoundChoice(first.runner_up, first.chosen, ChoiceReason.CHEAPEST)
    kept = Cheapest().choose(situation(0.8), second)
    assert (kept.chosen.plan, kept.reason) == (first.runner_up.plan, ChoiceReason.KEPT)
    assert kept.runner_up is not None
    assert kept.runner_up.plan == first.chosen.plan
    bad = Estimate(DraftPlan("dsd", 1), 1.0, 1.0, 1.0)
    assert Cheapest().choose(situation(0.8), RoundChoice(bad, None, ChoiceReason.CHEAPEST)) == first
    for reason in (ChoiceReason.EXPLORING, ChoiceReason.NO_DRAFTER):
        after = Cheapest().choose(situation(0.8), RoundChoice(first.runner_up, None, reason))
        assert after == first, "was not chosen for its cost"


def idle(rounds: int, acceptance: float) -> GenerationAcceptance:
    """A generation that has come to know its drafts are bad, and has not drafted since."""
    generation = AcceptanceBook().generation()
    for number in range(400):
        generation.observe(AcceptanceRule.SHARED_NOISE, int(number % 100 < 100 * acceptance), 1)
    for _ in range(rounds):
        generation.observe(AcceptanceRule.SHARED_NOISE, 0, 0)
    return generation


def test_a_pessimist_tries_again_when_the_rounds_have_paid_for_it() -> None:
    world = World(link(20, 20), 0.2)
    reasons = [Cheapest().choose(world.situation(idle(rounds, 0.1)), None).reason for rounds in range(0, 400, 20)]
    tries = reasons.index(ChoiceReason.EXPLORING)
    assert tries > 1
    assert set(reasons[:tries]) == {ChoiceReason.CHEAPEST}
    assert set(reasons[tries:]) == {ChoiceReason.EXPLORING}


def test_a_draft_accepted_to_its_end_is_followed_by_another() -> None:
    world, generation = World(link(20, 20), 0.2), idle(5, 0.1)
    assert Cheapest().choose(world.situation(generation), None).chosen.plan is None
    generation.observe(AcceptanceRule.SHARED_NOISE, 2, 2)
    assert Cheapest().choose(world.situation(generation), None).reason is ChoiceReason.EXPLORING
    generation.observe(AcceptanceRule.SHARED_NOISE, 1, 2)
    assert Cheapest().choose(world.situation(generation), None).chosen.plan is None


def test_a_saturated_verifier_is_never_tried() -> None:
    told = World(link(20, 20), 0.2).situation(idle(100_000, 0.1))
    # Every row costs as much as a whole round without a draft: acceptance cannot help.
    told = replace(told, verifier=loaded(LinearCostModel(10e-3, 0.0, 0.0, 0.0), 20.0))
    assert Cheapest().choose(told, None).reason is ChoiceReason.CHEAPEST


def test_a_text_that_has_become_easy_is_noticed() -> None:
    book = AcceptanceBook()
    hard = play(World(link(20, 20), 0.1), Cheapest(), book, rounds=400, seed=1)
    assert sum(choice.chosen.plan is None for choice in hard[100:]) > 280
    easy = play(World(link(20, 20), 0.9), Cheapest(), book, rounds=400, seed=2)
    assert sum(choice.chosen.plan is None for choice in easy[200:]) < 10


def test_choices_are_a_function_of_what_is_told() -> None:
    one = play(World(link(20, 20), 0.5), Cheapest(), AcceptanceBook(), rounds=120, seed=4)
    assert one == play(World(link(20, 20), 0.5), Cheapest(), AcceptanceBook(), rounds=120, seed=4)


def test_a_pair_of_which_next_to_nothing_is_known_is_not_given_up_for_a_few_rejections() -> None:
    world = World(link(500, 0), 0.8, step_s=18.9e-3, model=LinearCostModel(1.5e-3, 0.0, 0.0, 44.5e-3))
    generation = AcceptanceBook().generation()

    def choice() -> RoundChoice:
        return Cheapest().choose(world.situation(generation, protocols=("token_ids",)), None)

    for _ in range(3):
        generation.observe(AcceptanceRule.SHARED_NOISE, 0, 1)
    assert choice().reason is ChoiceReason.EXPLORING
    for _ in range(30):
        generation.observe(AcceptanceRule.SHARED_NOISE, 0, 1)
    assert (choice().reason, choice().chosen.plan) == (ChoiceReason.CHEAPEST, None)


GREEDY = SamplingParams(temperature=0.0)
UPLOADS = ("wisv_full", "wisv_selective")


def judged(mbps: float, rtt_ms: float, rejection: float = 0.3, **changes: object) -> RoundSituation:
    """Greedy, with a judge; the drafter's states are WISV's, 2,048 numbers."""
    book, rejected = AcceptanceBook(), round(1000 * rejection)
    book.observe_judged([True] * 3000 + [False] * 1000, rejected, 1000)
    known = situation(mbps=mbps, rtt_ms=rtt_ms, params=GREEDY, protocols=UPLOADS, acceptance=0.0)
    wire = replace(known.wire, hidden_width=2048)
    return replace(known, acceptance=book.view(), wire=wire, window=10, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(("rtt_ms", "upload"), [(5, "wisv_selective"), (9, "wisv_selective"), (11, "wisv_full")])
def test_wisv_s_rule_goes_by_the_round_trip_alone(rtt_ms: float, upload: str) -> None:
    for mbps in (20, 500):
        chosen = WisvRule().choose(judged(mbps, rtt_ms), None).chosen
        assert chosen.plan is not None
        assert chosen.plan.protocol == upload


@pytest.mark.parametrize("mbps", [5, 20, 100, 500])
@pytest.mark.parametrize("rtt_ms", [1, 5, 20, 50, 100])
def test_cheapest_is_at_least_as_good_as_wisv_s_rule(mbps: float, rtt_ms: float) -> None:
    told = judged(mbps, rtt_ms)
    ours, theirs = (policy.choose(told, None).chosen for policy in (Cheapest(), WisvRule()))
    assert ours.seconds_per_token <= theirs.seconds_per_token * (1 + 1e-9)


def test_a_second_step_is_paid_for_as_often_as_there_is_a_mismatch() -> None:
    plans = PlanSet(tuple(DraftPlan(upload, 10) for upload in UPLOADS))
    slow = estimate(judged(20, 50), plans)
    assert slow.expected_tokens[0] == pytest.approx(slow.expected_tokens[1]), "both decide alike"
    bits_s = 10 * 2048 * 16 / 20e6
    assert slow.exchange_s[0] - slow.exchange_s[1] < bits_s, "a round trip more costs what ten states do not"
    sure = replace(judged(20, 50), acceptance=constant(judged(20, 50).acceptance, 1.0))
    never = estimate(sure, plans)
    assert never.exchange_s[0] - never.exchange_s[1] == pytest.approx(bits_s, rel=1e-3)


def test_without_both_uploads_wisv_s_rule_is_the_cheapest() -> None:
    told = situation(protocols=("token_ids", "wisv_full"))
    assert WisvRule().choose(told, None).chosen == Cheapest().choose(told, None).chosen

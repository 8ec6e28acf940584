"""Who is asked and what is learned of whom, as a generation's drafter changes."""

from dataclasses import replace
from typing import Any

import pytest

from outrider.contracts.cost import DEFAULT_COST_MODEL
from outrider.contracts.drafting import DraftPlan
from outrider.contracts.requests import GenerationRequest, ProtocolName, SamplingParams
from outrider.contracts.verifying import AcceptanceRule, Block, Verified
from outrider.protocols.registry import judged_protocols
from outrider.rounds.choice import RoundChooser, Speculation, prefix_plan
from outrider.rounds.events import LeasedDrafter, RoundInput
from outrider.rounds.generation import Generation
from outrider.rounds.present_load import PresentLoad
from outrider.selection.acceptance import AcceptanceBook
from outrider.selection.cheapest import Cheapest
from outrider.selection.drift import RejectionDrift
from outrider.selection.fixed import Fixed
from outrider.selection.situation import ChoiceReason, DrafterView, RoundChoice, RoundSituation
from tests.unit.serve_app.coordination.in_memory import PROMPT, WIRE

VIEW = PresentLoad().view(DEFAULT_COST_MODEL)
JUDGED = DrafterView(None, 0.02, 0.0, hidden_width=8)
FULL = judged_protocols()[0]


def chooser(params: SamplingParams | None = None) -> RoundChooser:
    request = GenerationRequest(
        "g", PROMPT, params or SamplingParams(temperature=0.0), 64, protocol=FULL, semantic=True
    )
    generation = Generation(request, eos_token_ids=(), max_context_tokens=128)
    speculation = Speculation((FULL,), k_max=4, window=3, wire=WIRE, has_drafters=True)
    return RoundChooser(generation, speculation, Fixed())


def test_of_a_tree_that_grew_it_is_learned_how_far_it_went_and_what_a_chain_begins_with() -> None:
    request = GenerationRequest(
        "g", PROMPT, SamplingParams(temperature=0.0), 64, protocol="token_ids", window=3, rows=6
    )
    generation = Generation(request, eos_token_ids=(), max_context_tokens=128)
    speculation = Speculation(("token_ids",), k_max=6, window=None, wire=WIRE, has_drafters=True)
    choosing, book = RoundChooser(generation, speculation, Fixed()), AcceptanceBook()
    drafter = RoundInput(LeasedDrafter("small", book, DrafterView(None, 0.02, 0.0), trusted=True), VIEW)
    first = choosing.choose(drafter, None).chosen
    assert first.plan == DraftPlan("token_ids", 3, rows=6)
    assert (choosing.survivals(first.plan), choosing.goes_on_beside(first)) == ((), False)
    before = book.view()
    for number in range(60):
        block = Block("g", 1, 7, 0, draft=(1, 2, 3, 4), parents=(-1, -1, 0, 2))
        choosing.learn(first.plan, block, Verified("g", 1, (0, 2) if number % 2 else (1,), 9))
    after, last = book.view(), choosing.choose(drafter, None).chosen
    assert before.token_acceptance(AcceptanceRule.GREEDY, 0) == pytest.approx(0.8)
    assert after.token_acceptance(AcceptanceRule.GREEDY, 0) == pytest.approx(0.5, abs=0.1)
    assert (after.sibling_factors == before.sibling_factors).all()
    guessed = 1.0 - 0.2 * 0.5**0.4
    assert first.expected_tokens == pytest.approx(1 + guessed + guessed**2 + guessed**3)
    assert last.expected_tokens == pytest.approx(2.5, abs=0.25), "one more than the two or the one of a round"


def learn(choosing: RoundChooser) -> None:
    """Of a draft of three, of which one passed that the target would not have said, and the last was rejected."""
    block = Block("g", 1, 7, 0, draft=(1, 2, 3), rule=AcceptanceRule.SEMANTIC)
    choosing.learn(None, block, Verified("g", 1, (0, 1), 9, overrides=(0,)))


def test_what_is_judged_is_of_the_drafter_that_drafted() -> None:
    books = {name: AcceptanceBook(RejectionDrift(0.2, 0.4)) for name in ("small", "other")}
    choosing = chooser()
    for name, judged in (("small", 2), ("small", 4), ("other", 2)):
        choosing.choose(RoundInput(LeasedDrafter(name, books[name], JUDGED, trusted=True), VIEW), None)
        assert choosing.judging.judge == name
        learn(choosing)
        drift = books[name].drift
        assert drift is not None
        assert (drift.judged, drift.rejected) == (judged, judged // 2)


def test_of_a_request_with_edits_of_its_own_no_drift_is_learned() -> None:
    book = AcceptanceBook(RejectionDrift(0.2, 0.4))
    choosing = chooser(SamplingParams(temperature=0.0, logit_bias=((3, 5.0),)))
    choosing.choose(RoundInput(LeasedDrafter("small", book, JUDGED, trusted=True), VIEW), None)
    learn(choosing)
    assert book.drift is not None
    assert book.drift.judged == 0


def test_one_response_shows_drift_only_its_first_mismatches() -> None:
    book = AcceptanceBook(RejectionDrift(0.2, 0.4))
    choosing = chooser()
    choosing.choose(RoundInput(LeasedDrafter("small", book, JUDGED, trusted=True), VIEW), None)
    for _ in range(1000):
        learn(choosing)
    assert book.drift is not None
    assert 0 < book.drift.judged < 200, "or one response could raise the alarm"
    assert not book.drift.alarmed


def test_where_nobody_judges_drafts_go_on_verified_strictly() -> None:
    choosing, book = chooser(), AcceptanceBook()
    judged, unjudged = (
        choosing.choose(RoundInput(LeasedDrafter("small", book, view, trusted=True), VIEW), None).chosen.plan
        for view in (JUDGED, replace(JUDGED, hidden_width=0))
    )
    assert judged is not None
    assert unjudged is not None
    assert (judged.protocol, unjudged.protocol) == (FULL, "token_ids")


class Seeing(Fixed):
    """Notes what it is told."""

    def choose(self, situation: RoundSituation, previous: RoundChoice | None) -> RoundChoice:
        """Keep the situation; three tokens."""
        self.told = situation
        return super().choose(replace(situation, window=3), previous)


@pytest.mark.parametrize(("protocols", "grows"), [(("token_ids", "dsd"), False), (("token_ids",), True)])
def test_a_sampled_response_that_may_have_a_trusted_drafter_later_has_no_tree_that_grows(
    protocols: tuple[ProtocolName, ...], grows: bool
) -> None:
    """An untrusted one is asked for shared noise alone, but which nodes a tree has a later ratio rule would mind."""
    for rows in (0, 8):
        request = GenerationRequest("g", PROMPT, SamplingParams(temperature=1.0), 64, reproducible=False)
        request = replace(request, window=3, rows=rows) if rows else request
        generation = Generation(request, eos_token_ids=(), max_context_tokens=128)
        speculation = Speculation(protocols, 16, None, WIRE, has_drafters=True)
        policy = Seeing()
        choosing = RoundChooser(generation, speculation, policy)
        untrusted = LeasedDrafter("small", AcceptanceBook(), DrafterView(None, 0.02, 0.0))
        plan = choosing.choose(RoundInput(untrusted, VIEW), None).chosen.plan
        assert policy.told.protocols == ("token_ids",)
        assert bool(policy.told.grown_rows if rows else policy.told.most_grown) is grows
        assert plan == DraftPlan("token_ids", 3, rows=rows if grows else 0)


def test_a_drafter_of_chains_is_asked_for_nothing_else() -> None:
    """Neither for trees that are named nor for those that grow, and not at all where another protocol is."""
    device = LeasedDrafter("small", AcceptanceBook(), DrafterView(None, 0.02, 0.0, chains_only=True), trusted=True)
    for named, plan in ((None, DraftPlan("token_ids", 3)), ("tslt", None), ("tslt_tree", None)):
        request = GenerationRequest("g", PROMPT, SamplingParams(temperature=1.0), 64, window=3, rows=8, protocol=named)
        generation = Generation(replace(request, reproducible=False), eos_token_ids=(), max_context_tokens=128)
        speculation = Speculation(("dsd", "token_ids", "tslt_tree"), 16, None, WIRE, has_drafters=True)
        policy = Seeing()
        assert RoundChooser(generation, speculation, policy).choose(RoundInput(device, VIEW), None).chosen.plan == plan
        assert (policy.told.grown_rows, policy.told.most_grown) == (0, 0)


@pytest.mark.parametrize("chains_first", [True, False])
@pytest.mark.parametrize("window", [3, None])
def test_a_choice_has_a_runner_up_unless_one_plan_is_all_there_is(window: int | None, chains_first: bool) -> None:
    device = LeasedDrafter(
        "small", AcceptanceBook(), DrafterView(None, 0.001, 0.0, chains_first=chains_first), trusted=True
    )
    request = GenerationRequest("g", PROMPT, SamplingParams(temperature=0.0), 64, window=window)
    generation = Generation(request, eos_token_ids=(), max_context_tokens=128)
    speculation = Speculation(("token_ids", "tslt_tree"), 16, None, WIRE, has_drafters=True)
    choice = RoundChooser(generation, speculation, Cheapest()).choose(RoundInput(device, VIEW), None)
    alone = chains_first and window is not None
    assert (choice.runner_up is None) == (choice.reason == ChoiceReason.FIXED) == alone


@pytest.mark.parametrize(
    ("configured", "asked", "plan"),
    [
        (("dsd", "token_ids", "tslt_tree"), {}, DraftPlan("token_ids", 3)),
        (("dsd", "token_ids"), {"protocol": "token_ids"}, DraftPlan("token_ids", 3)),
        (("dsd",), {"protocol": "dsd"}, DraftPlan("dsd", 3)),
        (("dsd", "token_ids"), {"protocol": "tslt"}, DraftPlan("tslt", 3)),
        (("token_ids",), {"expansion": (2, 2, 1)}, DraftPlan("token_ids", 3, (2, 2, 1))),
        (("token_ids",), {"rows": 8}, DraftPlan("token_ids", 3, rows=8)),
    ],
)
def test_a_drafter_of_chains_first_is_asked_for_more_only_where_somebody_wants_it(
    configured: tuple[ProtocolName, ...], asked: dict[str, Any], plan: DraftPlan
) -> None:
    view = DrafterView(None, 0.001, 0.0, hidden_width=8, chains_first=True)
    device = LeasedDrafter("small", AcceptanceBook(), view, trusted=True)
    request = GenerationRequest("g", PROMPT, SamplingParams(temperature=0.0), 64, window=3, **asked)
    generation = Generation(request, eos_token_ids=(), max_context_tokens=128)
    policy = Seeing()
    choosing = RoundChooser(generation, Speculation(configured, 16, None, WIRE, has_drafters=True), policy)
    assert choosing.choose(RoundInput(device, VIEW), None).chosen.plan == plan
    assert (prefix_plan(request, judged=True).protocol == "token_ids") == (plan == DraftPlan("token_ids", 3))
    assert prefix_plan(replace(request, semantic=True, protocol=None), judged=True) == DraftPlan(FULL, 0)
    judged = RoundChooser(
        Generation(replace(request, semantic=True), eos_token_ids=(), max_context_tokens=128),
        Speculation((*configured, FULL), 16, None, WIRE, has_drafters=True),
        policy,
    )
    judged.choose(RoundInput(device, VIEW), None)
    assert (FULL in policy.told.protocols) == ("protocol" not in asked)


@pytest.mark.parametrize("window", [None, 3])
@pytest.mark.parametrize("expansion", [(), (2, 2, 1)])
def test_no_policy_weighs_a_tree_for_a_drafter_of_chains(window: int | None, expansion: tuple[int, ...]) -> None:
    shaped = {}
    for chains_only in (False, True):
        view = DrafterView(None, 0.001, 0.0, node_share=0.0, chains_only=chains_only)
        device = LeasedDrafter("small", AcceptanceBook(), view, trusted=True)
        request = GenerationRequest("g", PROMPT, SamplingParams(temperature=0.0), 64, protocol="token_ids")
        request = replace(request, window=window, expansion=expansion)
        generation = Generation(request, eos_token_ids=(), max_context_tokens=128)
        speculation = Speculation(("token_ids",), 16, None, WIRE, has_drafters=True)
        choosing = RoundChooser(generation, speculation, Cheapest())
        plan = choosing.choose(RoundInput(device, VIEW), None).chosen.plan
        shaped[chains_only] = plan is not None and plan.is_tree
    assert shaped[False] or not expansion, "or the test says nothing"
    assert not shaped[True]

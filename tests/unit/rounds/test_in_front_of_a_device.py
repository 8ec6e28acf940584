"""What is looked up before a device is asked, and while it drafts: on a clock that is driven by hand."""

from dataclasses import replace

import pytest

from outrider.contracts.cost import LinearCostModel
from outrider.contracts.drafting import Draft
from outrider.contracts.requests import GenerationRequest, ProtocolName, SamplingParams
from outrider.contracts.verifying import AcceptanceRule, OwnDraft, Verified
from outrider.rounds.events import (
    AskDrafter,
    AwaitDraft,
    AwaitVerifier,
    DrafterAnswered,
    Effect,
    Exchange,
    Extend,
    Follow,
    Join,
    LeasedDrafter,
    Measured,
    OrderAhead,
    RoundInput,
    VerifierAnswered,
    Verify,
    VerifyResult,
)
from outrider.rounds.generation import Generation
from outrider.rounds.machine import RoundMachine
from outrider.rounds.states import GenerationEvent, RoundEvent
from outrider.selection.acceptance import AcceptanceBook
from outrider.selection.modes import DRAFT, LOOKUP, LOOKUP_DRAFT, NONE, SpeculationMode
from outrider.selection.situation import DrafterView, VerifierView
from outrider.text.shown import IncrementalText
from tests.unit.rounds.test_machine import rules_of
from tests.unit.serve_app.api.in_memory_service import TOKENIZER

STEP_S = 0.01
SAID = tuple(range(20, 40))
GREEDY = SamplingParams(temperature=0.0)
NEAR, FAR = DrafterView(None, 0.002, 0.0), DrafterView(None, 0.05, 0.0)  # faster than a step, or five of them a token


def made(
    prompt: tuple[int, ...], protocol: ProtocolName = "token_ids", params: SamplingParams = GREEDY
) -> tuple[Generation, RoundMachine]:
    request = GenerationRequest("g", prompt, params, 64, reproducible=False)
    generation = Generation(request, eos_token_ids=(), max_context_tokens=256)
    generation.happened(GenerationEvent.STARTED)
    rules = rules_of(protocol)
    rules = replace(rules, speculation=replace(rules.speculation, lookup_window=8))
    return generation, RoundMachine(generation, IncrementalText(TOKENIZER, (), (), 0), rules, 0.0)


def turn(view: DrafterView | None, mode: SpeculationMode = LOOKUP_DRAFT, fixed_s: float = 0.02) -> RoundInput:
    verifier = VerifierView(LinearCostModel(0.0, 0.0, 0.0, STEP_S), 0.0, 1.0, fixed_s)
    return RoundInput(
        None if view is None else LeasedDrafter("small", AcceptanceBook(), view, trusted=True), verifier, mode
    )


def said(number: int, token_id: int, accepted: int = 0, at: RoundInput | None = None) -> VerifierAnswered:
    return VerifierAnswered(
        number, VerifyResult(Verified("g", number, tuple(range(accepted)), token_id), 0.0, STEP_S), at
    )


def drew(ordered: AskDrafter, generation: Generation, *token_ids: int) -> DrafterAnswered:
    draft = Draft("g", ordered.round, generation.position, token_ids)
    return DrafterAnswered(ordered.round, Exchange(draft, 0.05, 0.01, 0, 0, "small"))


def one(effects: list[Effect], kind: type) -> Effect:
    (found,) = [effect for effect in effects if isinstance(effect, kind)]
    return found


@pytest.mark.parametrize(("mode", "looks"), [(LOOKUP_DRAFT, True), (LOOKUP, True), (DRAFT, False)])
def test_a_match_that_should_bring_more_goes_before_a_device(mode: SpeculationMode, looks: bool) -> None:
    _, rounds = made((*SAID, *SAID[:16]))
    (effect,) = rounds.step(turn(NEAR, mode), 0.0)
    assert isinstance(effect, Verify if looks else AskDrafter)
    if isinstance(effect, Verify):
        assert effect.block.draft == (36, 37, 38, 39, 20, 21, 22, 23)
        assert effect.terms.survivals == tuple(sorted(effect.terms.survivals, reverse=True))


def test_behind_it_the_choice_is_made_anew() -> None:
    """No autonomous run: a device that is near would have to wait for its end."""
    generation, rounds = made((*SAID, *SAID[:16]))
    verify = one(rounds.step(turn(NEAR), 0.0), Verify)
    assert isinstance(verify, Verify)
    assert verify.block.autonomous_run is not None
    assert verify.block.autonomous_run.until_round == verify.block.round
    rounds.moved(0, RoundEvent.DISPATCHED)
    rounds.step(said(0, 99, accepted=2), STEP_S)
    assert generation.output_ids == [36, 37, 99]
    assert isinstance(rounds.step(turn(NEAR), STEP_S)[-1], AskDrafter), "there is no match any more"


@pytest.mark.parametrize("protocol", ["dsd", "tslt", "dssd"])
def test_beside_ratio_rules_it_is_decided_by_the_targets_own(protocol: ProtocolName) -> None:
    _, rounds = made((*SAID, *SAID[:16]), protocol, SamplingParams(seed=3))
    (verify,) = rounds.step(turn(NEAR), 0.0)
    assert isinstance(verify, Verify), "and no draft is ordered that would have to be used"
    assert verify.block.rule is AcceptanceRule.SHARED_NOISE
    assert verify.block.distribution is None
    assert verify.block.deferral is None


def drafting_beside() -> tuple[Generation, RoundMachine, AskDrafter]:
    """A far device drafts beside an autonomous run, whose rounds so far end in nothing that was said before."""
    generation, rounds = made(SAID)
    rounds.step(turn(None), 0.0)
    rounds.moved(0, RoundEvent.DISPATCHED)
    rounds.step(said(0, 90), 0.01)
    effects = rounds.step(said(1, 25, at=turn(FAR)), 0.02)
    ordered = one(effects, OrderAhead)
    assert isinstance(ordered, OrderAhead)
    return generation, rounds, ordered.asked


def came(ordered: AskDrafter, position: int, *token_ids: int) -> DrafterAnswered:
    drafted = Draft("g", ordered.round, position, token_ids)
    return DrafterAnswered(ordered.round, Exchange(drafted, 0.05, 0.01, 0, 0, "small"))


def found_itself(number: int, token_id: int, drafted: tuple[int, ...], accepted: int) -> VerifierAnswered:
    """A round that the verifier has made by itself, with a draft of its own."""
    outcome = Verified("g", number, tuple(range(accepted)), token_id, own_draft=OwnDraft(drafted, 1.5))
    return VerifierAnswered(number, VerifyResult(outcome, 0.0, STEP_S), turn(FAR))


def test_a_verifier_that_goes_on_by_itself_looks_up_by_itself() -> None:
    for mode, looks in ((LOOKUP, True), (LOOKUP_DRAFT, True), (NONE, False)):
        generation, rounds = made(SAID)
        (verify,) = rounds.step(turn(None, mode), 0.0)
        assert isinstance(verify, Verify)
        assert verify.block.autonomous_run is not None
        grant = verify.block.autonomous_run.lookup
        assert (grant is not None) is looks
        if grant is not None:
            assert (grant.tokens, grant.until_position) == (8, len(SAID) + 64)
        rounds.moved(0, RoundEvent.DISPATCHED)
        extended = None
        for number in range(8):
            effects = rounds.step(said(number, 50 + number, at=turn(None, LOOKUP)), 0.01 * number)
            extended = next((one for one in effects if isinstance(one, Extend)), extended)
        assert extended is not None
        assert extended.lookup is not None, "whatever it was told before"
        assert generation.output_ids == [50, 51, 52, 53, 54, 55, 56, 57]


def test_what_the_verifier_has_drafted_itself_counts_like_what_is_looked_up_here() -> None:
    generation, rounds = made(SAID)
    rounds.step(turn(None), 0.0)
    rounds.moved(0, RoundEvent.DISPATCHED)
    rounds.step(said(0, 25), 0.01)
    effects = rounds.step(found_itself(1, 90, (26, 27, 28, 29), 2), 0.02)
    assert generation.output_ids == [25, 26, 27, 90]
    stats = generation.stats
    assert (stats.drafted_tokens, stats.accepted_tokens, dict(stats.protocols)) == (4, 2, {"lookup": 1})
    measured = one(effects, Measured)
    assert isinstance(measured, Measured)
    assert (measured.timing.protocol, measured.timing.drafted_tokens, measured.timing.follows) == ("lookup", 4, True)
    assert isinstance(effects[-1], Follow)
    rounds.step(said(2, 91), 0.03)
    assert generation.output_ids[-1] == 91
    assert generation.stats.drafted_tokens == 4


def test_a_draft_of_a_device_counts_for_what_the_verifier_has_left_of_it() -> None:
    generation, rounds, ordered = drafting_beside()
    rounds.step(found_itself(2, 28, (26, 27, 99), 2), 0.03)
    effects = rounds.step(came(ordered, len(SAID) + 2, 26, 27, 28, 29, 30), 0.035)
    join = one(effects, Join)
    assert isinstance(join, Join)
    assert (join.block.draft, join.block.position) == ((29, 30), generation.position)
    rounds.step(found_itself(3, 30, (29, 98), 1), 0.04)
    assert generation.output_ids == [90, 25, 26, 27, 28, 29, 30]
    rounds.moved(ordered.round, RoundEvent.DISPATCHED)
    rounds.step(said(ordered.round, 31, at=turn(FAR)), 0.05)
    stats = generation.stats
    assert dict(stats.protocols) == {"lookup": 2}, "nothing was left of the device's to be verified"
    assert (stats.drafted_tokens, stats.trimmed_tokens, stats.accepted_tokens) == (3 + 2 + 5, 5, 3)


def verified_behind_a_loss() -> tuple[Generation, RoundMachine, AskDrafter, Verify]:
    """The verifier is lost while a device drafts; what is found here is verified first once it is back."""
    generation, rounds, ordered = drafting_beside()
    for number, token_id in ((2, 26), (3, 27)):
        rounds.step(said(number, token_id), 0.01 * (number + 1))
    assert rounds.step(VerifierAnswered(4, None), 0.05)[-1] == AwaitVerifier()
    (verify,) = rounds.step(turn(FAR), 0.06)
    assert isinstance(verify, Verify)
    assert verify.opening is not None
    assert verify.block.draft[:3] == (28, 29, 30)
    assert verify.block.round < ordered.round
    return generation, rounds, ordered, verify


def test_a_draft_that_comes_meanwhile_is_held() -> None:
    generation, rounds, ordered, verify = verified_behind_a_loss()
    rounds.moved(verify.block.round, RoundEvent.DISPATCHED)
    assert rounds.step(came(ordered, len(SAID) + 2, 26, 27, 28, 29, 30, 31), 0.065) == []
    effects = rounds.step(said(verify.block.round, 30, accepted=2, at=turn(FAR)), 0.07)
    assert generation.output_ids == [90, 25, 26, 27, 28, 29, 30]
    behind = one(effects, Join)
    assert isinstance(behind, Join)
    assert (behind.block.round, behind.block.draft) == (ordered.round, (31,))
    rounds.moved(ordered.round, RoundEvent.DISPATCHED)
    rounds.step(said(ordered.round, 32, accepted=1, at=turn(FAR)), 0.08)
    assert generation.output_ids[-3:] == [30, 31, 32]
    stats = generation.stats
    assert dict(stats.protocols) == {"lookup": 1, "token_ids": 1}
    assert (stats.trimmed_tokens, stats.accepted_tokens) == (5, 3)


def test_a_device_that_is_lost_meanwhile_takes_nothing_with_it() -> None:
    generation, rounds, ordered, verify = verified_behind_a_loss()
    rounds.moved(verify.block.round, RoundEvent.DISPATCHED)
    assert rounds.step(DrafterAnswered(ordered.round, None), 0.065) == []
    effects = rounds.step(said(verify.block.round, 90, accepted=2, at=turn(None)), 0.07)
    assert generation.output_ids[-3:] == [28, 29, 90]
    assert isinstance(effects[-1], Follow)


def test_where_nothing_follows_by_itself_and_nothing_is_found_the_draft_is_waited_for() -> None:
    _, rounds, ordered = drafting_beside()
    assert rounds.step(VerifierAnswered(2, None), 0.03)[-1] == AwaitVerifier()
    assert rounds.step(turn(FAR), 0.04) == [AwaitDraft(ordered.round)]

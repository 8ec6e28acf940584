"""Decisions on a clock that is driven by hand: what is a device's to draw, and the leave of a verifier."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from outrider.contracts.cost import DEFAULT_COST_MODEL, LinearCostModel
from outrider.contracts.drafting import Draft
from outrider.contracts.errors import (
    ContextTooLongError,
    GrammarError,
    NonFiniteError,
    OutriderError,
    RequestFailedError,
)
from outrider.contracts.exchanged import TargetRow
from outrider.contracts.requests import GenerationRequest, ProtocolName, SamplingParams
from outrider.contracts.verifying import BlockRefused, Failed, Verified
from outrider.protocols.registry import PROTOCOLS, judged_protocols
from outrider.rounds.choice import Speculation
from outrider.rounds.events import (
    AskDrafter,
    AwaitDraft,
    AwaitDrafter,
    AwaitVerifier,
    DrafterAnswered,
    Effect,
    Exchange,
    Extend,
    Fail,
    Follow,
    Incident,
    Join,
    LeasedDrafter,
    Measured,
    OrderAhead,
    Report,
    RoundInput,
    VerifierAnswered,
    Verify,
    VerifyResult,
)
from outrider.rounds.generation import Generation
from outrider.rounds.machine import RoundMachine
from outrider.rounds.present_load import PresentLoad
from outrider.rounds.rules import RoundRules
from outrider.rounds.states import CorrectionState, GenerationEvent, RoundEvent
from outrider.scheduling.attribution import SpikeDetector
from outrider.scheduling.ledger import DeadlineRule
from outrider.selection.acceptance import AcceptanceBook
from outrider.selection.cheapest import Cheapest
from outrider.selection.fixed import Fixed
from outrider.selection.modes import DRAFT, NONE, SpeculationMode
from outrider.selection.situation import DrafterView
from outrider.text.shown import IncrementalText
from tests.unit.serve_app.api.in_memory_service import TOKENIZER
from tests.unit.serve_app.coordination.in_memory import PROMPT, WIRE

VIEW = PresentLoad().view(DEFAULT_COST_MODEL)
READY = DrafterView(None, 0.02, 0.0)
GIVEN_UP = [Report(Incident.CORRECTION_GIVEN_UP, {"model": "small"})]


def owing() -> tuple[Generation, RoundMachine]:
    """A response resumed where a device of the model "small" was to draw the next token, within five seconds."""
    request = GenerationRequest("g", PROMPT, SamplingParams(), 64, output_ids=(4,), correction_by="small")
    generation = Generation(request, eos_token_ids=(), max_context_tokens=128)
    generation.happened(GenerationEvent.STARTED)
    return generation, RoundMachine(generation, IncrementalText(TOKENIZER, (), (4,), 0), rules_of("dssd"), 100.0)


def rules_of(protocol: ProtocolName) -> RoundRules:
    speculation = Speculation((protocol,), k_max=4, window=3, wire=WIRE, has_drafters=True)
    return RoundRules(speculation, Fixed(), DeadlineRule.LEDGER, SpikeDetector(), correction_deadline_s=5.0)


def drafter(model: str, view: DrafterView | None = READY, book: AcceptanceBook | None = None) -> LeasedDrafter:
    return LeasedDrafter(model, book or AcceptanceBook(), view, trusted=True)


def test_a_drafter_is_waited_for_until_the_deadline_of_the_first_wait_and_no_longer() -> None:
    generation, rounds = owing()
    assert rounds.step(RoundInput(None, VIEW), 100.0) == [AwaitDrafter(105.0)]
    assert rounds.step(RoundInput(drafter("small", None), VIEW), 104.9) == [AwaitDrafter(105.0)], "its KV is not ready"
    assert rounds.step(RoundInput(drafter("small"), VIEW), 105.0) == [
        Report(Incident.CORRECTION_GIVEN_UP, {"model": "small"})
    ]
    assert (generation.correction.state, generation.stats.inexact_rounds) == (CorrectionState.SETTLED, 1)


def test_a_drafter_of_another_model_cannot_draw_it() -> None:
    _, rounds = owing()
    assert rounds.step(RoundInput(drafter("large"), VIEW), 100.0) == GIVEN_UP


def test_a_row_that_is_not_known_is_asked_for_first() -> None:
    generation, rounds = owing()
    (effect,) = rounds.step(RoundInput(drafter("small"), VIEW), 100.0)
    assert isinstance(effect, Verify)
    assert (effect.block.draft, effect.block.bonus, effect.block.deferral is not None) == ((), False, True)
    assert generation.correction.state is CorrectionState.ROW_ORDERED


def ordering(
    protocol: ProtocolName, params: SamplingParams, book: AcceptanceBook | None = None, **more: Any
) -> tuple[Generation, RoundMachine, AskDrafter]:
    """A response that has ordered its first block; ``more`` of its request."""
    request = GenerationRequest("g", PROMPT, params, 64, protocol=protocol, reproducible=False, **more)
    generation = Generation(request, eos_token_ids=(), max_context_tokens=128)
    generation.happened(GenerationEvent.STARTED)
    rounds = RoundMachine(generation, IncrementalText(TOKENIZER, (), (), 0), rules_of(protocol), 100.0)
    (order,) = rounds.step(RoundInput(drafter("small", book=book), VIEW), 100.0)
    assert isinstance(order, AskDrafter)
    return generation, rounds, order


LOSSLESS = [name for name in PROTOCOLS if name not in judged_protocols()]
RATIO = [name for name in LOSSLESS if name != "token_ids"]
SAMPLED, GREEDY = SamplingParams(seed=3), SamplingParams(temperature=0.0)
DROPPABLE = [*((name, GREEDY) for name in LOSSLESS), ("token_ids", SAMPLED)]


@pytest.mark.parametrize("protocol", RATIO)
def test_a_draft_that_has_to_be_used_and_is_not_here_makes_the_round_inexact(protocol: ProtocolName) -> None:
    generation, rounds, order = ordering(protocol, SAMPLED)
    assert order.must_use
    told, verify = rounds.step(DrafterAnswered(order.round, None, censored=True), 101.0)
    assert told == Report(Incident.DRAFT_GIVEN_UP, {"round": order.round, "protocol": protocol})
    assert isinstance(verify, Verify)
    assert (verify.block.draft, generation.stats.inexact_rounds) == ((), 1)


@pytest.mark.parametrize("protocol", RATIO)
def test_a_device_that_is_lost_whatever_it_drew_leaves_the_round_exact(protocol: ProtocolName) -> None:
    generation, rounds, order = ordering(protocol, SAMPLED)
    (verify,) = rounds.step(DrafterAnswered(order.round, None), 101.0)
    assert isinstance(verify, Verify)
    assert generation.stats.inexact_rounds == 0


@pytest.mark.parametrize(("protocol", "params"), DROPPABLE)
def test_a_draft_that_may_be_dropped_is_none_the_worse_for_it(protocol: ProtocolName, params: SamplingParams) -> None:
    generation, rounds, order = ordering(protocol, params)
    assert not order.must_use
    (verify,) = rounds.step(DrafterAnswered(order.round, None, censored=True), 101.0)
    assert isinstance(verify, Verify)
    assert generation.stats.inexact_rounds == 0


@pytest.mark.parametrize(("room", "inexact"), [(60, 1), (1, 0)], ids=["with a block behind it", "alone"])
def test_a_correction_is_drawn_again_and_the_block_behind_it_is_not(room: int, inexact: int) -> None:
    request = GenerationRequest("g", PROMPT, SAMPLED, room, protocol="dssd", reproducible=False)
    generation = Generation(request, eos_token_ids=(), max_context_tokens=128)
    generation.happened(GenerationEvent.STARTED)
    generation.correction.defer(TargetRow(None, np.full(WIRE.vocab_size, 1 / WIRE.vocab_size, np.float32)), "small")
    rounds = RoundMachine(generation, IncrementalText(TOKENIZER, (), (), 0), rules_of("dssd"), 100.0)
    (order,) = rounds.step(RoundInput(drafter("small"), VIEW), 100.0)
    assert isinstance(order, AskDrafter)
    assert order.must_use
    rounds.step(DrafterAnswered(order.round, None, censored=True), 101.0)
    assert (generation.correction.state, generation.stats.inexact_rounds) == (CorrectionState.PENDING, inexact)


def fresh(window: int | None = None, lookup: int | None = None) -> RoundMachine:
    """A response at its first round, whose drafts are the policy's choice unless it names a window."""
    request = GenerationRequest("g", PROMPT, SamplingParams(), 64, window=window, lookup=lookup)
    generation = Generation(request, eos_token_ids=(), max_context_tokens=128)
    generation.happened(GenerationEvent.STARTED)
    speculation = Speculation(("token_ids",), k_max=4, window=None, wire=WIRE, has_drafters=True)
    rules = RoundRules(speculation, Cheapest(), DeadlineRule.LEDGER, SpikeDetector(), correction_deadline_s=5.0)
    return RoundMachine(generation, IncrementalText(TOKENIZER, (), (), 0), rules, 0.0)


def grant(mode: SpeculationMode, step_s: float, window: int | None = None) -> int:
    """Rounds that may follow the first one, where a step takes so long and no drafter is ready."""
    view = PresentLoad().view(LinearCostModel(0.0, 0.0, 0.0, step_s), mode)
    (effect,) = fresh(window).step(RoundInput(None, view, mode), 0.0)
    assert isinstance(effect, Verify)
    assert effect.block.autonomous_run is not None
    return effect.block.autonomous_run.until_round - effect.block.round


@pytest.mark.parametrize(("step_s", "rounds"), [(0.001, 32), (0.0625, 16), (0.25, 4), (2.0, 2)])
def test_a_leave_under_an_mode_without_drafts_is_a_second(step_s: float, rounds: int) -> None:
    assert grant(NONE, step_s) == rounds


def test_a_leave_while_a_drafter_may_be_of_use_is_short() -> None:
    assert grant(DRAFT, 0.0125) == 2
    assert grant(NONE, 0.0125, window=3) == 2, "drafted whatever the arm"
    assert grant(DRAFT, 0.0125, window=0) == 32


def test_what_is_drafted_is_up_to_the_tuner_unless_the_request_says_it() -> None:
    assert fresh().follows_tuner
    assert fresh(lookup=0).follows_tuner, "devices draft for it under some arms only"
    assert not fresh(window=0).follows_tuner
    assert not fresh(window=3).follows_tuner


STEP_S = 0.01
FAR = DrafterView(None, 0.02, 0.0)  # three tokens take sixty milliseconds
NEAR = DrafterView(None, 0.001, 0.0)
STEPS = LinearCostModel(0.0, 0.0, 0.0, STEP_S)


def turn(view: DrafterView | None, queue_s: float = 0.0) -> RoundInput:
    load = PresentLoad()
    for _ in range(200):
        load.round(queue_s, 0.0)
    return RoundInput(None if view is None else drafter("small", view), load.view(STEPS))


def alone(protocol: ProtocolName, params: SamplingParams) -> tuple[Generation, RoundMachine]:
    """A response in its first autonomous run, of which the first round is committed."""
    request = GenerationRequest("g", PROMPT, params, 64, protocol=protocol, reproducible=False)
    generation = Generation(request, eos_token_ids=(), max_context_tokens=128)
    generation.happened(GenerationEvent.STARTED)
    rounds = RoundMachine(generation, IncrementalText(TOKENIZER, (), (), 0), rules_of(protocol), 0.0)
    (first,) = rounds.step(turn(None), 0.0)
    assert isinstance(first, Verify)
    rounds.moved(0, RoundEvent.DISPATCHED)
    assert isinstance(rounds.step(said(0, 4), STEP_S)[-1], Follow)
    return generation, rounds


def said(number: int, token_id: int, accepted: int = 0, at: RoundInput | None = None) -> VerifierAnswered:
    outcome = Verified("g", number, tuple(range(accepted)), token_id)
    return VerifierAnswered(number, VerifyResult(outcome, 0.0, STEP_S), at)


def drew(ordered: AskDrafter, generation: Generation, *token_ids: int) -> DrafterAnswered:
    draft = Draft("g", ordered.round, generation.position, token_ids)
    return DrafterAnswered(ordered.round, Exchange(draft, 0.05, 0.01, 0, 0, "small"))


def ordered_ahead(effects: list[Effect]) -> AskDrafter:
    (ordered,) = [effect.asked for effect in effects if isinstance(effect, OrderAhead)]
    assert not ordered.must_use
    assert isinstance(effects[-1], Follow)
    return ordered


AHEAD = [("token_ids", SAMPLED), ("token_ids", GREEDY), ("dsd", GREEDY)]


@pytest.mark.parametrize(("protocol", "params"), AHEAD)
def test_a_draft_that_takes_longer_than_a_step_is_ordered_ahead_and_joins(
    protocol: ProtocolName, params: SamplingParams
) -> None:
    generation, rounds = alone(protocol, params)
    ordered = ordered_ahead(rounds.step(said(1, 5, at=turn(FAR)), 0.02))
    answered = drew(ordered, generation, 7, 8, 9)
    rounds.step(said(2, 7), 0.03)
    (join,) = rounds.step(answered, 0.035)
    assert isinstance(join, Join)
    assert (join.block.position, join.block.draft) == (generation.position, (8, 9))
    assert join.block.round == ordered.round > 900
    assert isinstance(rounds.step(said(3, 8), 0.04)[-1], Follow)
    rounds.moved(join.block.round, RoundEvent.DISPATCHED)
    effects = rounds.step(said(join.block.round, 3, accepted=1, at=turn(FAR)), 0.05)
    assert generation.output_ids == [4, 5, 7, 8, 9, 3]
    stats = generation.stats
    assert (stats.drafted_tokens, stats.trimmed_tokens, stats.accepted_tokens, stats.rounds) == (3, 2, 1, 5)
    (timing,) = [effect.timing for effect in effects if isinstance(effect, Measured)]
    assert timing.total_s == pytest.approx(0.01), "since the last token, not since it was ordered"
    assert timing.beside_s == timing.draft_s + timing.link_s
    assert ordered_ahead(effects).round > ordered.round, "the next one, while its stretch goes on"


def test_a_draft_in_vain_is_a_round_like_any_other_and_was_wrong_where_it_differed() -> None:
    generation, rounds = alone("token_ids", GREEDY)
    ordered = ordered_ahead(rounds.step(said(1, 5, at=turn(FAR)), 0.02))
    answered = drew(ordered, generation, 7, 8, 9)
    rounds.step(said(2, 7), 0.03)
    rounds.step(said(3, 4), 0.04)
    (join,) = rounds.step(answered, 0.045)
    assert isinstance(join, Join)
    assert join.block.draft == ()
    rounds.moved(join.block.round, RoundEvent.DISPATCHED)
    rounds.step(said(join.block.round, 3), 0.05)
    stats = generation.stats
    assert (stats.drafted_tokens, stats.trimmed_tokens, stats.accepted_tokens) == (3, 1, 0)
    assert (stats.speculative_rounds, generation.output_ids) == (1, [4, 5, 7, 4, 3])


@pytest.mark.parametrize("protocol", RATIO)
def test_what_has_to_be_used_is_waited_for_by_a_verifier_that_stands_still(protocol: ProtocolName) -> None:
    _, rounds = alone(protocol, SAMPLED)
    effects = rounds.step(said(1, 5, at=turn(FAR)), 0.02)
    assert not any(isinstance(effect, OrderAhead | Extend) for effect in effects), "the stretch ends"
    assert not isinstance(rounds.step(said(2, 6), 0.03)[-1], Follow)
    (order,) = rounds.step(turn(FAR), 0.03)
    assert isinstance(order, AskDrafter)
    assert order.must_use


@pytest.mark.parametrize(("view", "queue_s"), [(NEAR, 0.0), (FAR, 1.0)], ids=["quicker than a step", "loaded"])
def test_a_draft_is_waited_for_where_a_autonomous_run_would_bring_little_or_cost_others(
    view: DrafterView, queue_s: float
) -> None:
    _, rounds = alone("token_ids", GREEDY)
    effects = rounds.step(said(1, 5, at=turn(view, queue_s)), 0.02)
    assert not any(isinstance(effect, OrderAhead | Extend) for effect in effects)
    rounds.step(said(2, 6), 0.03)
    (order,) = rounds.step(turn(view, queue_s), 0.03)
    assert isinstance(order, AskDrafter)


def test_a_verifier_that_is_lost_beside_a_draft_waits_for_it() -> None:
    """One order at a time: what is out comes first, and is worth what it is worth by then."""
    generation, rounds = alone("token_ids", GREEDY)
    ordered = ordered_ahead(rounds.step(said(1, 5, at=turn(FAR)), 0.02))
    answered = drew(ordered, generation, 7, 8, 9)
    rounds.step(said(2, 7), 0.03)
    assert rounds.step(VerifierAnswered(3, None), 0.04)[-1] == AwaitVerifier()
    assert rounds.step(turn(FAR), 0.05) == [AwaitDraft(ordered.round)]
    (verify,) = rounds.step(answered, 0.06)
    assert isinstance(verify, Verify)
    assert verify.opening is not None
    assert (verify.block.round, verify.block.draft) == (ordered.round, (8, 9))


def test_a_device_that_is_lost_beside_a_autonomous_run_leaves_the_autonomous_run() -> None:
    generation, rounds = alone("token_ids", GREEDY)
    ordered = ordered_ahead(rounds.step(said(1, 5, at=turn(FAR)), 0.02))
    assert rounds.step(DrafterAnswered(ordered.round, None, censored=True), 0.025) == []
    follow = rounds.step(said(2, 7), 0.03)[-1]
    assert isinstance(follow, Follow)
    assert (generation.stats.inexact_rounds, generation.output_ids) == (0, [4, 5, 7])


def test_nothing_is_ordered_ahead_that_nobody_would_read() -> None:
    _, rounds = alone("token_ids", GREEDY)
    effects = rounds.step(replace(said(1, 5, at=turn(FAR)), goes_on=False), 0.02)
    assert not any(isinstance(effect, OrderAhead | Extend) for effect in effects)


@pytest.mark.parametrize(
    ("outcome", "error"),
    [
        (Failed("g", 1, "NaN", non_finite=True), NonFiniteError),
        (Failed("g", 1, "it raised"), RequestFailedError),
        (BlockRefused("g", 1, "it is malformed"), RequestFailedError),
        (BlockRefused("g", 1, "the context ends", too_long=True), ContextTooLongError),
        (BlockRefused("g", 1, "it leads nowhere", by_grammar=True), GrammarError),
    ],
)
def test_a_block_that_can_never_be_verified_ends_the_response_with_the_error_of_its_kind(
    outcome: Failed | BlockRefused, error: type[OutriderError]
) -> None:
    _, rounds = alone("token_ids", GREEDY)
    (effect,) = rounds.step(VerifierAnswered(1, VerifyResult(outcome, 0.0, STEP_S)), 0.02)
    assert isinstance(effect, Fail)
    assert type(effect.error) is error
    assert outcome.reason in str(effect.error)

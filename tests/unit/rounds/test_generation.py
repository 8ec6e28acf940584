"""State machines and commits of one response."""

from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.contracts.errors import IllegalTransitionError
from outrider.contracts.exchanged import TargetRow
from outrider.contracts.prefix import EMPTY_PREFIX_HASH, extend_prefix_hash
from outrider.contracts.requests import (
    FinishReason,
    GenerationRequest,
    RoundStats,
    SamplingParams,
    TokenLogprobs,
    TokenOrigin,
)
from outrider.contracts.verifying import Verified
from outrider.rounds.generation import Generation, VerifiedDraft
from outrider.rounds.states import (
    CORRECTION_TRANSITIONS,
    GENERATION_TRANSITIONS,
    ROUND_TRANSITIONS,
    CorrectionEvent,
    CorrectionState,
    GenerationEvent,
    GenerationState,
    RoundEvent,
    RoundState,
    after,
)

EOS = 2
PARAMS = SamplingParams(temperature=0.0)
ACCEPTED, CORRECTION, VERIFIER = TokenOrigin.ACCEPTED, TokenOrigin.CORRECTION, TokenOrigin.VERIFIER


def make(max_tokens: int = 10, *, context: int = 100, **request: Any) -> Generation:
    generation = Generation(
        GenerationRequest("g", (1, 5, 6), PARAMS, max_tokens, **request),
        eos_token_ids=(EOS,),
        max_context_tokens=context,
    )
    generation.happened(GenerationEvent.STARTED)
    return generation


def begin(generation: Generation) -> int:
    number = generation.begin_round(drafting=False)
    generation.round_happened(number, RoundEvent.ENQUEUED)
    generation.round_happened(number, RoundEvent.DISPATCHED)
    return number


def commit(
    generation: Generation, draft: list[int], accepted: int, after: int | None
) -> tuple[tuple[int, ...], object]:
    outcome = Verified("g", begin(generation), tuple(range(accepted)), after)
    committed = generation.commit(outcome, VerifiedDraft(draft))
    assert len(committed.origins) == len(committed.token_ids)
    return committed.token_ids, committed.finish


TABLES = {
    "generation": (GENERATION_TRANSITIONS, GenerationState, GenerationEvent),
    "round": (ROUND_TRANSITIONS, RoundState, RoundEvent),
    "correction": (CORRECTION_TRANSITIONS, CorrectionState, CorrectionEvent),
}


@pytest.mark.parametrize("who", TABLES)
def test_a_table_is_the_only_way(who: str) -> None:
    table: Any
    table, states, events = TABLES[who]
    for state, event in product(states, events):
        if (state, event) in table:
            assert after(table, who, state, event) is table[state, event]
        else:
            with pytest.raises(IllegalTransitionError, match=f"{who} that is {state} cannot take {event}"):
                after(table, who, state, event)


def test_every_round_state_can_end_and_ended_rounds_stay_ended() -> None:
    over = {RoundState.COMMITTED, RoundState.STALE, RoundState.LOST}
    reach = {state: {to for (frm, _), to in ROUND_TRANSITIONS.items() if frm is state} for state in RoundState}
    for state in over:
        assert not reach[state]
    for state in set(RoundState) - over:
        seen, frontier = {state}, {state}
        while frontier:
            frontier = {to for frm in frontier for to in reach[frm]} - seen
            seen |= frontier
        assert seen & over, f"{state} never ends"


@given(st.data())
def test_any_sequence_of_events_leaves_a_consistent_generation(data: st.DataObject) -> None:
    """Rounds opened, moved by random events, committed: numbers never repeat, nothing open after the end."""
    generation = make(max_tokens=data.draw(st.integers(1, 12)))
    numbers: list[int] = []
    expected: list[int] = []
    for _ in range(data.draw(st.integers(1, 25))):
        if len(generation.open_rounds) > 0 and data.draw(st.booleans()):
            number = data.draw(st.sampled_from(sorted(generation.open_rounds)))
            event = data.draw(st.sampled_from([e for e in RoundEvent if e is not RoundEvent.VERIFIED]))
            before = dict(generation.open_rounds)
            try:
                generation.round_happened(number, event)
            except IllegalTransitionError:
                assert generation.open_rounds == before
        elif generation.remaining_tokens and data.draw(st.booleans()):
            draft = data.draw(st.lists(st.integers(3, 9), max_size=4))
            accepted = data.draw(st.integers(0, len(draft)))
            token_ids, finish = commit(generation, draft, accepted, data.draw(st.integers(2, 9)))
            expected += token_ids
            if finish is not None:
                generation.happened(GenerationEvent.ENDED)
                break
        else:
            numbers.append(generation.begin_round(drafting=data.draw(st.booleans())))
    assert len(set(numbers)) == len(numbers)
    assert generation.output_ids == expected
    assert generation.prefix_hash == extend_prefix_hash(EMPTY_PREFIX_HASH, [1, 5, 6, *expected])
    assert len(expected) <= generation.request.max_tokens
    if generation.state is GenerationState.ACTIVE:
        generation.happened(data.draw(st.sampled_from([GenerationEvent.FAULT, GenerationEvent.CLIENT_LEFT])))
    assert not generation.open_rounds


def test_max_tokens_is_exact_although_a_round_commits_several() -> None:
    generation = make(max_tokens=5)
    assert commit(generation, [7, 8], 2, 9) == ((7, 8, 9), None)
    assert commit(generation, [7, 8], 2, 9) == ((7, 8), FinishReason.LENGTH)
    assert generation.remaining_tokens == 0


def test_the_end_of_sequence_token_ends_the_response_and_is_counted() -> None:
    generation = make()
    assert commit(generation, [7, EOS, 8], 3, 9) == ((7, EOS), FinishReason.STOP)
    assert generation.output_ids == [7, EOS]


def test_end_of_sequence_on_the_last_token_is_a_stop_not_a_length() -> None:
    assert commit(make(max_tokens=2), [7, EOS, 8], 3, 9) == ((7, EOS), FinishReason.STOP)


def test_ignore_eos_goes_on() -> None:
    assert commit(make(max_tokens=4, ignore_eos=True), [EOS], 1, 9) == ((EOS, 9), None)


def test_context_bounds_the_response() -> None:
    generation = make(max_tokens=50, context=6)
    assert generation.remaining_tokens == 3
    assert commit(generation, [7, 8, 9], 3, 4) == ((7, 8, 9), FinishReason.LENGTH)


def test_resumed_output_counts_towards_max_tokens_but_is_not_committed_again() -> None:
    generation = make(max_tokens=4, output_ids=(7, 8))
    assert (generation.position, generation.remaining_tokens) == (5, 2)
    assert commit(generation, [], 0, 9) == ((9,), None)
    assert commit(generation, [], 0, 9) == ((9,), FinishReason.LENGTH)
    assert generation.output_ids == [7, 8, 9, 9]


def test_statistics_count_every_round() -> None:
    generation = make()
    commit(generation, [], 0, 5)
    commit(generation, [5, 6, 7], 1, 4)
    commit(generation, [5], 1, 4)
    stats = generation.stats
    assert (stats.rounds, stats.speculative_rounds, stats.drafted_tokens, stats.accepted_tokens) == (3, 2, 4, 2)


def test_what_was_looked_up_is_no_drafters_and_counts_as_accepted() -> None:
    generation = make()
    number = begin(generation)
    committed = generation.commit(
        Verified("g", number, (0, 1), 4), VerifiedDraft((5, 6, 7), protocol="lookup", from_lookup=True)
    )
    assert committed.origins == (TokenOrigin.LOOKUP, TokenOrigin.LOOKUP, CORRECTION)
    assert (generation.stats.drafted_tokens, generation.stats.accepted_tokens) == (3, 2)
    generation.swallowed((TokenOrigin.LOOKUP, CORRECTION))
    assert generation.stats.accepted_tokens == 1


def test_only_accepted_tokens_of_the_response_count_as_accepted() -> None:
    """An accepted token behind its end is waste like a rejected one."""
    generation = make()
    commit(generation, [7, EOS, 8, 8], 4, 9)
    assert (generation.stats.drafted_tokens, generation.stats.accepted_tokens) == (4, 2)
    generation.swallowed((TokenOrigin.ACCEPTED, TokenOrigin.VERIFIER))
    assert generation.stats.accepted_tokens == 1


def test_a_round_cannot_be_committed_twice() -> None:
    generation = make()
    outcome = Verified("g", begin(generation), (), 5)
    generation.commit(outcome)
    with pytest.raises(IllegalTransitionError, match="round 0 of g is not open"):
        generation.commit(outcome)
    assert generation.output_ids == [5]


def test_a_resumed_response_goes_on_counting_where_it_was() -> None:
    before = RoundStats(rounds=3, speculative_rounds=2, drafted_tokens=8, accepted_tokens=5, cached_tokens=16)
    generation = make(output_ids=(7, 8), stats=before)
    generation.commit(Verified("g", begin(generation), (0,), 9, cached_tokens=4), VerifiedDraft([7, 8]))
    assert generation.stats == RoundStats(4, 3, 10, 6, cached_tokens=16, kept_drafts=(0, 1))


def test_each_token_is_told_who_proposed_it() -> None:
    generation = make(max_tokens=20)
    for draft, accepted, following, forced, origins in (
        ([], 0, 5, [], [VERIFIER]),
        ([5, 6], 2, 7, [], [ACCEPTED, ACCEPTED, VERIFIER]),
        ([5, 6], 1, 7, [], [ACCEPTED, CORRECTION]),
        ([5, 6], 0, 7, [], [CORRECTION]),
        ([5], 1, None, [], [ACCEPTED]),
        ([5], 0, 6, [8, 9], [CORRECTION, CORRECTION, CORRECTION]),
        ([], 0, 6, [8], [CORRECTION, VERIFIER]),
        ([5, EOS, 6], 3, 7, [], [ACCEPTED, ACCEPTED]),
    ):
        outcome = Verified("g", begin(generation), tuple(range(accepted)), following)
        assert generation.commit(outcome, VerifiedDraft(draft, forced)).origins == tuple(origins)


@pytest.mark.parametrize(
    ("max_tokens", "token_ids", "kept"), [(10, [7, 9, 8], 3), (10, [7, EOS, 8], 2), (1, [7, 9, 8], 1)]
)
def test_logprobs_are_cut_where_the_response_ends(max_tokens: int, token_ids: list[int], kept: int) -> None:
    entries = tuple(TokenLogprobs(token_id, -0.5, ((token_id, -0.5),)) for token_id in token_ids)
    prompt = (None, TokenLogprobs(5, -1.0), TokenLogprobs(6, -2.0))
    generation = make(max_tokens=max_tokens, logprobs=1)
    outcome = Verified("g", begin(generation), (0, 1), token_ids[2], logprobs=entries, prompt_logprobs=prompt)
    committed = generation.commit(outcome, VerifiedDraft(token_ids[:2]))
    assert committed.logprobs == entries[:kept]
    assert [entry.token_id for entry in committed.logprobs] == list(committed.token_ids)
    assert committed.prompt_logprobs == prompt


ROW = TargetRow(None, np.full(9, 1 / 9, dtype=np.float32))


def deferred(**fields: Any) -> Generation:
    """A response whose next token is a device's to draw, behind one accepted token of a draft of two."""
    generation = make(**fields)
    outcome = Verified("g", begin(generation), (0,), None, deferred=ROW)
    committed = generation.commit(outcome, VerifiedDraft((3, 4), protocol="dssd", draft_model="small"))
    assert (committed.token_ids, committed.origins) == ((3,), (TokenOrigin.ACCEPTED,))
    return generation


def drawn(generation: Generation) -> Generation:
    """Once the device has drawn it."""
    generation.correction.happened(CorrectionEvent.ORDERED)
    generation.correction.happened(CorrectionEvent.DRAWN)
    return generation


def test_a_deferred_correction_is_committed_when_the_device_has_drawn_it() -> None:
    generation = deferred()
    assert generation.correction_by == "small"
    before = (generation.position, generation.prefix_hash)
    committed = drawn(generation).commit_correction(7)
    assert (committed.token_ids, committed.origins, committed.finish) == ((7,), (TokenOrigin.CORRECTION,), None)
    assert generation.correction_by is None
    assert (generation.verifier_position, generation.verifier_prefix_hash) == before, "it has not been told yet"
    assert generation.position == before[0] + 1
    generation.commit(Verified("g", begin(generation), (0,), 2), VerifiedDraft((5,), protocol="dssd"))
    assert generation.output_ids == [3, 7, 5, 2]
    assert generation.verifier_position == generation.position
    assert generation.stats.protocols == (("dssd", 2),)


def test_a_correction_may_be_the_last_token() -> None:
    assert drawn(deferred(max_tokens=2)).commit_correction(7).finish is FinishReason.LENGTH
    assert drawn(deferred()).commit_correction(EOS).finish is FinishReason.STOP


def test_with_logprobs_a_correction_is_committed_together_with_what_the_verifier_says_of_it() -> None:
    generation = drawn(deferred(logprobs=0))
    entries = tuple(TokenLogprobs(token_id, -0.5) for token_id in (7, 5, 2))
    committed = generation.commit(
        Verified("g", begin(generation), (0,), 2, logprobs=entries), VerifiedDraft((5,), forced=(7,))
    )
    assert committed.token_ids == (7, 5, 2)
    assert committed.logprobs == entries
    assert committed.origins == (TokenOrigin.CORRECTION, TokenOrigin.ACCEPTED, TokenOrigin.VERIFIER)
    assert generation.correction_by is None


def test_a_verifier_that_is_opened_again_knows_all_that_is_committed() -> None:
    generation = deferred()
    drawn(generation).commit_correction(7)
    generation.verifier_lost()
    assert generation.opening().output_ids == (3, 7)
    assert (generation.verifier_position, generation.verifier_prefix_hash) == (
        generation.position,
        generation.prefix_hash,
    )


def test_a_row_that_is_asked_for_again_leaves_the_correction_to_the_same_model() -> None:
    generation = deferred()
    for event in (CorrectionEvent.ORDERED, CorrectionEvent.NOT_AMONG_CANDIDATES, CorrectionEvent.ROW_ORDERED):
        generation.correction.happened(event)
    generation.commit(Verified("g", begin(generation), (), None, deferred=ROW))
    assert (generation.correction_by, generation.output_ids) == ("small", [3])


def test_a_correction_that_nobody_can_draw_is_said_to_be_inexact() -> None:
    generation = deferred()
    assert generation.stats.inexact_rounds == 0
    generation.forgo_correction()
    assert (generation.correction_by, generation.stats.inexact_rounds) == (None, 1)


@pytest.mark.parametrize(
    ("path", "origin"),
    [((0, 2), TokenOrigin.VERIFIER), ((0,), TokenOrigin.CORRECTION), ((1,), TokenOrigin.VERIFIER), ((), None)],
)
def test_behind_a_leaf_of_a_tree_nothing_was_rejected(path: tuple[int, ...], origin: TokenOrigin | None) -> None:
    generation = make()
    committed = generation.commit(
        Verified("g", begin(generation), path, 8), VerifiedDraft((3, 4, 5), parents=(-1, -1, 0))
    )
    assert committed.origins[-1] is (origin or TokenOrigin.CORRECTION)
    assert (generation.stats.drafted_tokens, generation.stats.accepted_tokens) == (3, len(path))


def test_costs_add_up_by_protocol() -> None:
    one = RoundStats(rounds=2, payload_up_bits=5, protocols=(("dsd", 1), ("tslt", 2)))
    two = RoundStats(rounds=3, payload_up_bits=1, protocols=(("tslt", 4),))
    protocols = (("dsd", 1), ("tslt", 6))
    assert one + two == RoundStats(rounds=5, payload_up_bits=6, protocols=protocols)
    assert one + RoundStats() == one


def test_an_opening_asks_for_logprobs_and_for_those_of_the_prompt_once() -> None:
    generation = make(logprobs=4, prompt_logprobs=True)
    assert (generation.opening().logprobs, generation.opening().prompt_logprobs) == (4, True)
    commit(generation, [], 0, 5)
    opening = generation.opening()
    assert (opening.logprobs, opening.prompt_logprobs, opening.output_ids) == (4, False, (5,))
    assert (make().opening().logprobs, make().opening().prompt_logprobs) == (None, False)
    assert not make(prompt_logprobs=True, stats=RoundStats(rounds=1)).opening().prompt_logprobs


def test_the_end_of_sequence_is_withheld_until_min_tokens() -> None:
    generation = make(min_tokens=4, output_ids=(7,))
    assert generation.opening().params == replace(PARAMS, withheld_ids=(EOS,), withheld_until=7)  # 3 of the prompt + 4
    commit(generation, [], 0, 8)
    assert generation.opening().params.withheld_until == 7
    assert make().opening().params is PARAMS
    assert make(min_tokens=4, ignore_eos=True).opening().params is PARAMS


def test_what_nobody_verified_of_a_draft_is_neither_accepted_nor_rejected() -> None:
    """The token behind a cut is the target's own, and no correction."""
    generation = make(max_tokens=20)
    committed = generation.commit(Verified("g", begin(generation), (0, 1), 7), VerifiedDraft([5, 6], trimmed_tokens=3))
    assert committed.origins == (ACCEPTED, ACCEPTED, VERIFIER)
    stats = generation.stats
    assert (stats.drafted_tokens, stats.trimmed_tokens, stats.accepted_tokens) == (5, 3, 2)

"""A device drafts less than was ordered: what is expected of it, and what is learned."""

import pytest

from outrider.contracts.drafting import Draft
from outrider.contracts.requests import SamplingParams
from outrider.contracts.slo import LedgerRecord, SloClass
from outrider.contracts.verifying import AcceptanceRule, Verified
from outrider.rounds.events import (
    AskDrafter,
    DrafterAnswered,
    Exchange,
    Join,
    LeasedDrafter,
    RoundInput,
    VerifierAnswered,
    Verify,
    VerifyResult,
)
from outrider.rounds.states import RoundEvent
from outrider.selection.acceptance import AcceptanceBook
from outrider.selection.acceptance_view import rule_row
from tests.unit.rounds.test_machine import FAR, GREEDY, READY, VIEW, alone, drew, ordered_ahead, ordering, said, turn

ROW = rule_row(AcceptanceRule.GREEDY)


def shares(drafted: int, accepted: int, params: SamplingParams = GREEDY, verified: int | None = None) -> list[float]:
    """How often positions are drafted, by what the book says after a round of which three tokens were ordered."""
    book = AcceptanceBook()
    generation, rounds, order = ordering("token_ids", params, book)
    assert order.plan.window == 3
    draft = Draft("g", order.round, generation.position, tuple(range(5, 5 + drafted)))
    (verify,) = rounds.step(DrafterAnswered(order.round, Exchange(draft, 0.05, 0.01, 0, 0, "small")), 100.1)
    assert isinstance(verify, Verify)
    rounds.moved(order.round, RoundEvent.DISPATCHED)
    outcome = Verified("g", order.round, tuple(range(accepted)), 30)
    rounds.step(VerifierAnswered(order.round, VerifyResult(outcome, 0.0, 0.01, verified)), 100.2)
    (following,) = rounds.step(RoundInput(LeasedDrafter("small", book, READY, trusted=True), VIEW), 100.2)
    assert isinstance(following, AskDrafter)
    told = book.view().drafted
    return [1.0] * 3 if told is None else told[ROW, :3].tolist()


def test_a_stop_is_learned_where_all_before_it_was_accepted() -> None:
    assert shares(drafted=3, accepted=3) == [1.0, 1.0, 1.0]
    assert shares(drafted=1, accepted=0) == [1.0, 1.0, 1.0], "whatever stands behind a rejection"
    one, two, three = shares(drafted=1, accepted=1)
    assert (one, three) == (1.0, 1.0)
    assert two < 1.0
    assert shares(drafted=0, accepted=0)[0] < 1.0


def test_what_the_verifier_cuts_is_no_stop_of_the_devices() -> None:
    assert shares(drafted=3, accepted=1, verified=1) == [1.0, 1.0, 1.0]


def expected(drafted: int) -> tuple[float, float, tuple[float, ...]]:
    """Of a block of so many tokens of three that were ordered: tokens, when they are due, survivals."""
    slo, ledger = SloClass("fast", 8.0), LedgerRecord(slack_s=1.0)
    generation, rounds, order = ordering("token_ids", GREEDY, slo=slo, output_ids=(4,), ledger=ledger)
    draft = Draft("g", order.round, generation.position, tuple(range(5, 5 + drafted)))
    (verify,) = rounds.step(DrafterAnswered(order.round, Exchange(draft, 0.05, 0.01, 0, 0, "small")), 100.1)
    assert isinstance(verify, Verify)
    return verify.terms.expected_tokens, verify.terms.deadline_at_s, verify.terms.survivals


def test_no_more_is_expected_of_a_block_than_it_has() -> None:
    """So it is due as early as its response needs it, not as late as a whole draft would be."""
    tokens, due_at_s, survivals = expected(3)
    assert tokens == pytest.approx(1.0 + sum(survivals))
    assert len(survivals) == 3
    for drafted in range(3):
        fewer, earlier_at_s, front = expected(drafted)
        assert front == survivals[:drafted]
        assert fewer == pytest.approx(1.0 + sum(front))
        assert due_at_s - earlier_at_s == pytest.approx((tokens - fewer) / 8.0)


def test_a_block_that_comes_while_the_verifier_goes_on_is_expected_to_bring_what_is_left_of_it() -> None:
    generation, rounds = alone("token_ids", GREEDY)
    ordered = ordered_ahead(rounds.step(said(1, 5, at=turn(FAR)), 0.02))
    answered = drew(ordered, generation, 7, 8)  # of three
    rounds.step(said(2, 7), 0.03)
    (join,) = rounds.step(answered, 0.035)
    assert isinstance(join, Join)
    assert (join.block.draft, len(join.terms.survivals)) == ((8,), 1)
    assert join.terms.expected_tokens == pytest.approx(1.0 + join.terms.survivals[0])

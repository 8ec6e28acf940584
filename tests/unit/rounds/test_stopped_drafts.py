"""A device drafts less than was ordered: what is learned of it."""

from outrider.contracts.drafting import Draft
from outrider.contracts.requests import SamplingParams
from outrider.contracts.verifying import AcceptanceRule, Verified
from outrider.rounds.events import Answered, AskDrafter, Decided, Drafter, Exchange, Turn, Verify, VerifyResult
from outrider.rounds.states import RoundEvent
from outrider.selection.acceptance import AcceptanceBook, rule_row
from tests.unit.rounds.test_machine import GREEDY, READY, VIEW, ordering

ROW = rule_row(AcceptanceRule.GREEDY)


def shares(drafted: int, accepted: int, params: SamplingParams = GREEDY, verified: int | None = None) -> list[float]:
    """How often positions are drafted, by what the book says after a round of which three tokens were ordered."""
    book = AcceptanceBook()
    generation, rounds, order = ordering("token_ids", params, book)
    assert order.plan.window == 3
    draft = Draft("g", order.round, generation.position, tuple(range(5, 5 + drafted)))
    (verify,) = rounds.step(Answered(order.round, Exchange(draft, 0.05, 0.01, 0, 0, "small")), 100.1)
    assert isinstance(verify, Verify)
    rounds.moved(order.round, RoundEvent.DISPATCHED)
    outcome = Verified("g", order.round, tuple(range(accepted)), 30)
    rounds.step(Decided(order.round, VerifyResult(outcome, 0.0, 0.01, verified)), 100.2)
    (following,) = rounds.step(Turn(Drafter("small", book, READY), VIEW), 100.2)
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

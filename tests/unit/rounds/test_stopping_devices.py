"""What a device is asked that may end its drafts early, and what may be cut of them."""

from dataclasses import replace

import numpy as np
import pytest

from outrider.contracts.drafting import Draft
from outrider.contracts.exchanged import ScalarDraft
from outrider.contracts.price import DraftPrice
from outrider.contracts.requests import GenerationRequest, ProtocolName, SamplingParams
from outrider.rounds.events import AskDrafter, DrafterAnswered, Exchange, RoundInput, Verify
from outrider.rounds.generation import Generation
from outrider.rounds.machine import RoundMachine
from outrider.rounds.states import GenerationEvent
from outrider.selection.situation import DrafterView
from outrider.text.shown import IncrementalText
from tests.unit.rounds.test_machine import READY, VIEW, drafter, rules_of
from tests.unit.serve_app.api.in_memory_service import TOKENIZER
from tests.unit.serve_app.coordination.in_memory import PROMPT

STOPS, LOGS = replace(READY, stops=True), replace(READY, logs=True)


def asked(view: DrafterView, protocol: ProtocolName = "token_ids") -> tuple[RoundMachine, AskDrafter]:
    request = GenerationRequest("g", PROMPT, SamplingParams(), 64, protocol=protocol, reproducible=False)
    generation = Generation(request, eos_token_ids=(), max_context_tokens=128)
    generation.happened(GenerationEvent.STARTED)
    rounds = RoundMachine(generation, IncrementalText(TOKENIZER, (), (), 0), rules_of(protocol), 100.0)
    (order,) = rounds.step(RoundInput(drafter("small", view), VIEW), 100.0)
    assert isinstance(order, AskDrafter)
    return rounds, order


def test_who_drafts_while_it_pays_is_told_what_a_token_costs() -> None:
    _, order = asked(replace(STOPS, by_price=True))
    assert isinstance(order.price, DraftPrice)
    assert order.price.go_on_above > 0.0


@pytest.mark.parametrize("view", [READY, STOPS], ids=["never stops", "stops by itself"])
def test_others_are_not(view: DrafterView) -> None:
    _, order = asked(view)
    assert order.price is None


@pytest.mark.parametrize(
    ("protocol", "view", "may_be_cut"),
    [
        ("token_ids", READY, True),
        ("token_ids", STOPS, True),
        ("token_ids", LOGS, True),
        ("dssd", READY, True),
        ("dssd", STOPS, False),
        ("dssd", LOGS, False),
    ],
)
def test_a_draft_whose_length_tells_or_whose_rejections_are_logged_stays_whole_where_its_rule_minds(
    protocol: ProtocolName, view: DrafterView, may_be_cut: bool
) -> None:
    rounds, order = asked(view, protocol)
    sent = ScalarDraft(np.array([200, 200]), 8) if protocol == "dssd" else None
    draft = Draft("g", order.round, len(PROMPT), (5, 6), distribution=sent)  # of three
    (verify,) = rounds.step(DrafterAnswered(order.round, Exchange(draft, 0.04, 0.01, 64, 64, "small")), 101.0)
    assert isinstance(verify, Verify)
    assert len(verify.terms.survivals) == (2 if may_be_cut else 0)
    assert 1.0 < verify.terms.expected_tokens < 3.0, "of the tokens that came"

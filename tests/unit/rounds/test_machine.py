"""A token that is a device's to draw, on a clock that is driven by hand: waited for, asked for, given up."""

from outrider.contracts.cost import DEFAULT_COST_MODEL
from outrider.contracts.requests import GenerationRequest, SamplingParams
from outrider.rounds.choice import Speculation
from outrider.rounds.events import AwaitDrafter, Drafter, Incident, Report, Turn, Verify
from outrider.rounds.generation import Generation
from outrider.rounds.load import PresentLoad
from outrider.rounds.machine import RoundMachine, RoundRules
from outrider.rounds.states import CorrectionState, GenerationEvent
from outrider.scheduling.attribution import SpikeDetector
from outrider.scheduling.ledger import DeadlineRule
from outrider.selection.acceptance import AcceptanceBook
from outrider.selection.fixed import Fixed
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
    speculation = Speculation(("dssd",), k_max=4, window=3, expansion=(), wire=WIRE, has_drafters=True)
    rules = RoundRules(speculation, Fixed(), DeadlineRule.LEDGER, SpikeDetector(), correction_deadline_s=5.0)
    return generation, RoundMachine(generation, IncrementalText(TOKENIZER, (), (4,), 0), rules, 100.0)


def drafter(model: str, view: DrafterView | None = READY) -> Drafter:
    return Drafter(model, AcceptanceBook(), view)


def test_a_drafter_is_waited_for_until_the_deadline_of_the_first_wait_and_no_longer() -> None:
    generation, rounds = owing()
    assert rounds.step(Turn(None, VIEW), 100.0) == [AwaitDrafter(105.0)]
    assert rounds.step(Turn(drafter("small", None), VIEW), 104.9) == [AwaitDrafter(105.0)], "its KV is not ready"
    assert rounds.step(Turn(drafter("small"), VIEW), 105.0) == [
        Report(Incident.CORRECTION_GIVEN_UP, {"model": "small"})
    ]
    assert (generation.correction.state, generation.stats.inexact_rounds) == (CorrectionState.SETTLED, 1)


def test_a_drafter_of_another_model_cannot_draw_it() -> None:
    _, rounds = owing()
    assert rounds.step(Turn(drafter("large"), VIEW), 100.0) == GIVEN_UP


def test_a_row_that_is_not_known_is_asked_for_first() -> None:
    generation, rounds = owing()
    (effect,) = rounds.step(Turn(drafter("small"), VIEW), 100.0)
    assert isinstance(effect, Verify)
    assert (effect.block.draft, effect.block.bonus, effect.block.deferral is not None) == ((), False, True)
    assert generation.correction.state is CorrectionState.ROW_ORDERED

"""The parts of one response that its rounds share, each with a state of its own."""

from dataclasses import dataclass
from math import inf

from outrider.rounds.choice import RoundChooser
from outrider.rounds.generation import Generation
from outrider.rounds.lookup.prompt_lookup import PromptLookup
from outrider.rounds.open_round import CurrentRound
from outrider.rounds.promise_tracker import PromiseTracker
from outrider.rounds.response_emitter import ResponseEmitter
from outrider.rounds.rules import RoundRules
from outrider.rounds.verifier_side import VerifierSide
from outrider.scheduling.ledger import resumed_ledger
from outrider.text.shown import IncrementalText


@dataclass(frozen=True, slots=True)
class RoundParts:
    rules: RoundRules
    generation: Generation
    current: CurrentRound
    chooser: RoundChooser
    tracker: PromiseTracker
    emitter: ResponseEmitter
    verifier: VerifierSide
    lookup: PromptLookup


def round_parts(generation: Generation, text: IncrementalText, rules: RoundRules, now_s: float) -> RoundParts:
    """Return the parts of a NEW generation. The ledger of a resumed one goes on from ``now_s``."""
    request = generation.request
    first_due_at_s = now_s + (request.first_token_s or rules.first_token_s) if request.slo.tokens_per_s else inf
    ledger = resumed_ledger(request.slo.tokens_per_s, request.ledger, now_s, first_due_at_s)
    tracker = PromiseTracker(ledger, rules.deadline_rule, rules.spikes, rules.kv_is_short)
    chooser = RoundChooser(generation, rules.speculation, rules.policy)
    return RoundParts(
        rules,
        generation,
        CurrentRound(),
        chooser,
        tracker,
        ResponseEmitter(generation, text, tracker, now_s),
        VerifierSide(generation, rules, tracker, chooser),
        PromptLookup(generation, rules),
    )

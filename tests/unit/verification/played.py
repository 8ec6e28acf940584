"""One response made by everything the service makes it of, but for its processes: tables stand in for the two models.

Coordinator's bookkeeping, both sessions, drafter and verifier engines are the real ones; so are the messages' bytes.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pytest

from outrider.contracts.drafting import Draft, DraftAnswer, DraftPlan, DraftRequest, DraftTerms, NeedsRow
from outrider.contracts.exchanged import Deferral, WireFormat
from outrider.contracts.requests import GenerationRequest, ProtocolName, SamplingParams
from outrider.contracts.trimming import trimmed
from outrider.contracts.verifying import Block, Verified
from outrider.drafting.stopping import Stops
from outrider.drafting.stops import StopRule
from outrider.engines.drafter import engine as drafter_engine
from outrider.engines.limits import EngineLimits, MemoryBesideKv
from outrider.engines.verifier.engine import PagedVerifier
from outrider.grammar.compiling import Grammars
from outrider.protocols.protocol import RoundTerms
from outrider.protocols.registry import CORRECTION_ALONE, PROTOCOLS
from outrider.rounds.blocks import empty_block, row_request, with_device_draft
from outrider.rounds.generation import Generation, VerifiedDraft
from outrider.rounds.states import CorrectionEvent, CorrectionState, GenerationEvent, RoundEvent
from outrider.session.answers import draft_fault
from outrider.session.session import CoordinatorSession, DrafterSession
from tests.unit.drafting.always import Always
from tests.unit.verification import oracle
from tests.unit.verification.table_model import BLOCK_TOKENS, BLOCKS, BranchTable, Logits, MaskedTable
from tests.unit.verification.tape import Tape

PROMPT = (0, 1)
CONTEXT_TOKENS = 64
WHOLE = Always()


@dataclass(frozen=True)
class Pair:
    """Drafter and target: logits by the tokens of the whole sequence."""

    vocab: int
    draft_logits: Logits
    target_logits: Logits


def pair(kind: str, seed: int, vocab: int = 3) -> Pair:
    """As different as pairs can be; rows depend on every token before them."""
    scale = {"flat": 0.1, "peaked": 8.0}.get(kind, 2.0)

    def table(which: int) -> Logits:
        @cache
        def logits_of(tokens: tuple[int, ...]) -> npt.NDArray[np.float32]:
            rng = np.random.default_rng([seed, which, *tokens])
            row = rng.normal(scale=scale, size=vocab).astype(np.float32)
            if kind == "ties":
                row = np.round(row).astype(np.float32)
            if kind == "apart":
                row[(np.arange(vocab) % 2 == which) & (np.arange(vocab) < vocab - 1)] -= 12.0
            return row

        return logits_of

    return Pair(vocab, table(0), table(0 if kind == "equal" else 1))


@dataclass(frozen=True)
class Case:
    """A request, and how its rounds are made.

    Attributes:
        plans: of the rounds in turn, None for one without a draft; behind the last the target goes on alone.
        length: tokens of the response.
        candidates: draws sent in place of a row, where corrections are a device's to draw.
        bonus: whether rounds want a bonus token.
        min_tokens: before which the response cannot end.
        end: the token that ends it, if any does.
        masks: the target takes trees by a mask, not path by path.
        grammars: over the target's tokens, if the request has one; devices are not told of it.
        cuts: of the first drafts so many tokens are verified.
        cut: how many tokens of a draft of so many are verified.
        rule: how far the device drafts chains.
        stops: the same, where it is not one rule for all.
    """

    models: Pair
    plans: Sequence[DraftPlan | None]
    params: SamplingParams = field(default_factory=SamplingParams)
    wire: WireFormat = field(default_factory=partial(WireFormat, 3))
    length: int = 2
    candidates: int = 0
    bonus: bool = True
    min_tokens: int = 0
    end: int | None = None
    masks: bool = True
    grammars: Grammars | None = None
    cuts: Sequence[int] = ()
    cut: Callable[[int], int] | None = None
    rule: StopRule | None = None
    stops: Stops | None = None

    @property
    def request(self) -> GenerationRequest:
        """What the coordinator is asked."""
        return GenerationRequest(
            "g", PROMPT, self.params, self.length, min_tokens=self.min_tokens, ignore_eos=self.end is None
        )


class Played:
    """One response."""

    def __init__(self, case: Case) -> None:
        self.case = case
        ends = () if case.end is None else (case.end,)
        self.generation = Generation(case.request, eos_token_ids=ends, max_context_tokens=CONTEXT_TOKENS)
        self.generation.happened(GenerationEvent.STARTED)
        self.outcomes: list[Verified] = []
        self.known = len(PROMPT)
        self.cuts = list(case.cuts)
        opening = self.generation.opening()
        terms = DraftTerms(case.wire, tuple(self.generation.end_ids), self.generation.last_position)
        self.drafter = drafter_over(case.models, case.stops or (WHOLE if case.rule is None else Always(case.rule)))
        self.verifier = verifier_over(case.models, masks=case.masks, grammars=case.grammars)
        self.drafter.open(replace(opening, params=replace(opening.params, grammar=None)), terms)
        self.verifier.open(opening)
        self.up = DrafterSession(case.wire, "g", PROMPT)
        self.down = CoordinatorSession(case.wire, "g")

    def output(self) -> tuple[int, ...]:
        """Tokens committed once all rounds were made."""
        plans = list(self.case.plans)
        while not self._ended and (plans or self.generation.correction_by is not None):
            if self.generation.correction.state is CorrectionState.ROW_MISSING:
                self._ask_row()
            else:
                self._round(plans.pop(0) if plans else None)
        return tuple(self.generation.output_ids)

    @property
    def _ended(self) -> bool:
        output = self.generation.output_ids
        return self.generation.remaining_tokens == 0 or bool(output and output[-1] == self.case.end)

    def _round(self, plan: DraftPlan | None) -> None:
        generation = self.generation
        if generation.correction_by is not None and plan is None:
            plan = CORRECTION_ALONE
        number = generation.begin_round(drafting=plan is not None)
        draft = None if plan is None else self._drafted(number, plan)
        if isinstance(draft, NeedsRow):
            generation.round_happened(number, RoundEvent.OVERTAKEN)
            generation.correction.happened(CorrectionEvent.NOT_AMONG_CANDIDATES)
            return
        forced = () if draft is None or draft.correction is None else (draft.correction,)
        if draft is not None:
            generation.round_happened(number, RoundEvent.BLOCK_ARRIVED)
        if forced:
            generation.correction.happened(CorrectionEvent.DRAWN)
            generation.commit_correction(forced[0])
            if self._ended:
                return
        block = empty_block(generation, number, forced)
        if plan is not None and draft is not None and draft.token_ids:
            rule = PROTOCOLS[plan.protocol].rule(generation.request.params, self.case.wire)
            block = with_device_draft(block, draft, rule, self._deferral(plan.protocol))
        if block.draft and self.cuts:
            block = trimmed(block, self.cuts.pop(0))
        if block.draft and self.case.cut is not None:
            block = trimmed(block, self.case.cut(len(block.draft)))
        outcome = self._verified(replace(block, bonus=self.case.bonus or not block.draft))
        generation.commit(outcome, VerifiedDraft(block.draft, parents=block.parents, draft_model="m"))

    def _deferral(self, protocol: ProtocolName) -> Deferral | None:
        """As the protocol says, but for the number of candidates."""
        asked = PROTOCOLS[protocol].deferral(RoundTerms(self.case.params, self.case.wire, None, 0.5))
        return None if asked is None else replace(asked, candidates=self.case.candidates)

    def _ask_row(self) -> None:
        self.generation.correction.happened(CorrectionEvent.ROW_ORDERED)
        number = self.generation.begin_round(drafting=False)
        outcome = self._verified(row_request(self.generation, number, self.case.wire))
        self.generation.commit(outcome)

    def _drafted(self, number: int, plan: DraftPlan) -> Draft | NeedsRow:
        generation = self.generation
        feedback = tuple(generation.output_ids[self.known - len(PROMPT) :])
        source = generation.correction.source
        if source is not None:
            generation.correction.happened(CorrectionEvent.ORDERED)
        request = DraftRequest("g", number, self.known, feedback, generation.prefix_hash, plan, source)
        self.drafter.submit(self.up.decode_order(self.down.encode_order(request)))
        answers: list[DraftAnswer] = []
        while not answers:
            answers = self.drafter.step()
        answer = self.down.decode_answer(self.up.encode_answer(answers[0]), request)
        assert isinstance(answer, Draft | NeedsRow)
        if isinstance(answer, Draft):
            assert draft_fault(answer, request, self.case.params) is None
        self.known = request.feedback_position + len(feedback)
        return answer

    def _verified(self, block: Block) -> Verified:
        self.generation.round_happened(block.round, RoundEvent.ENQUEUED)
        self.generation.round_happened(block.round, RoundEvent.DISPATCHED)
        (outcome,) = self.verifier.verify([block])
        assert isinstance(outcome, Verified), outcome
        self.outcomes.append(outcome)
        return outcome


def verifier_over(models: Pair, *, masks: bool, grammars: Grammars | None = None) -> PagedVerifier:
    """The engine over the target."""
    table = MaskedTable if masks else BranchTable
    return PagedVerifier(
        table(models.target_logits, models.vocab),
        vocab_size=models.vocab,
        max_context_tokens=CONTEXT_TOKENS,
        prefill_chunk_tokens=CONTEXT_TOKENS,
        memory=MemoryBesideKv(2**20),
        grammars=grammars,
    )


def drafter_over(models: Pair, stops: Stops = WHOLE) -> drafter_engine.TorchDrafter:
    """The engine over the draft model."""
    table = MaskedTable(models.draft_logits, models.vocab)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(drafter_engine, "draft_model", lambda *_: table)
        patch.setattr(drafter_engine, "kv_bytes_per_token", lambda _: 1)
        model = SimpleNamespace(get_output_embeddings=lambda: None)
        servable = SimpleNamespace(model=model, vocab_size=models.vocab, max_context_tokens=CONTEXT_TOKENS)
        limits = EngineLimits(BLOCKS * BLOCK_TOKENS, BLOCK_TOKENS)
        return drafter_engine.TorchDrafter(cast("Any", servable), limits, stops)


Law = dict[tuple[int, ...], float]  # of a response's tokens


def target_law(case: Case, output: tuple[int, ...] = ()) -> Law:
    """What the target says behind ``output``, by the definitions."""
    if len(output) == case.length or (output and output[-1] == case.end):
        return {output: 1.0}
    logits = case.models.target_logits((*PROMPT, *output))
    params = case.params
    if case.end is not None:
        params = replace(params, withheld_ids=(case.end,), withheld_until=len(PROMPT) + case.min_tokens)
    row = oracle.probs(oracle.adjusted(logits, params, PROMPT, output), params)
    law: Law = {}
    for token in np.flatnonzero(row).tolist():
        for tokens, prob in target_law(case, (*output, token)).items():
            law[tokens] = float(row[token]) * prob
    return law


def output_law(case: Case) -> Law:
    """Of the response as it is made; where its rounds end before it does, the target's own behind them."""
    law: Law = {}
    behind = cache(partial(target_law, case))
    for prob, output in Tape().runs(lambda: Played(case).output()):
        for tokens, rest in behind(output).items():
            law[tokens] = law.get(tokens, 0.0) + prob * rest
    return law


def distance(case: Case) -> float:
    """Total variation between what is said and what the target would say."""
    found, wanted = output_law(case), target_law(case)
    return sum(abs(found.get(tokens, 0.0) - wanted.get(tokens, 0.0)) for tokens in found | wanted) / 2

"""What drafter engines do alike, whatever computes: hold generations, take up blocks, and hand out what is complete."""

from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from typing import Generic, TypeVar

from outrider.contracts.drafting import DraftAnswer, DraftPlan, DraftRequest, DraftTerms, NeedsPrefix
from outrider.contracts.errors import ContextTooLongError, UnsupportedBlockError
from outrider.contracts.requests import GenerationId
from outrider.contracts.verifying import OpenGeneration
from outrider.drafting.recalibration import OnVerdict
from outrider.drafting.stopping import Stops, StopSetting
from outrider.engines.drafter.job import DraftedGeneration, DraftingJob
from outrider.engines.segments import Move
from outrider.protocols.registry import PROTOCOLS, growing_protocols

Held = TypeVar("Held", bound=DraftedGeneration)


def check_fits(tokens: int, max_context_tokens: int) -> None:
    """Raise ``ContextTooLongError`` unless a generation of so many tokens leaves a position to draft."""
    if tokens >= max_context_tokens:
        raise ContextTooLongError(
            f"needs {tokens + 1} positions, found a drafter limit of {max_context_tokens} (draft model context and KV "
            "budget); raise the drafter group's KV budget"
        )


def check_grows(plan: DraftPlan) -> None:
    """Raise ``UnsupportedBlockError`` for a dynamic tree under a rule that needs every drawn token to be sent."""
    if plan.rows and not PROTOCOLS[plan.protocol].grows:
        raise UnsupportedBlockError(
            f"needs a protocol with dynamic trees ({', '.join(growing_protocols())}), found {plan.protocol}: "
            "its rule needs every drawn token to be sent"
        )


class BaseDrafter(ABC, Generic[Held]):
    """Generations of a ``DrafterEngine`` and their blocks."""

    def __init__(self, stops: Stops | None, on_verdict: OnVerdict | None) -> None:
        self._stops = StopSetting() if stops is None else stops
        self._recalibration = self._stops.recalibration()
        self._on_verdict = on_verdict
        self._generations: dict[GenerationId, Held] = {}
        self._ready_answers: list[DraftAnswer] = []

    @property
    def busy(self) -> bool:
        return bool(self._ready_answers) or any(g.job is not None for g in self._generations.values())

    def started(self) -> tuple[GenerationId, ...]:
        return tuple(name for name, generation in self._generations.items() if generation.job is not None)

    def step(self, among: Collection[GenerationId] | None = None) -> list[DraftAnswer]:
        held = self._generations
        present = held.values() if among is None else [held[name] for name in among if name in held]
        # The oldest first: it may take memory from younger ones, so one generation always makes progress.
        started = sorted((g for g in present if g.job), key=lambda g: g.kv.order)
        try:
            self._step(started)
        except BaseException:
            for generation in started:
                if generation.job is not None:  # else it is complete
                    self._start_again(generation, generation.job)
            raise
        answers, self._ready_answers = self._ready_answers, []
        return answers

    @abstractmethod
    def _step(self, started: Sequence[Held]) -> None:
        """Run a pass for these blocks, and answer those that are complete."""

    @abstractmethod
    def _start_again(self, generation: Held, job: DraftingJob) -> None:
        """Draft a block from its beginning after a failed pass. Draws are repeated with the same noise."""

    @abstractmethod
    def close(self, generation: GenerationId) -> None: ...

    def hand_over(self, generation: GenerationId) -> tuple[OpenGeneration, DraftTerms] | None:
        """Close a generation and return how another engine opens it as it is now; None if it is not held."""
        held = self._generations.get(generation)
        self.close(generation)
        return None if held is None else (held.opening, held.terms)

    def _taken_up(self, request: DraftRequest) -> tuple[Held, list[Move]] | None:
        """Set the generation of a request to what it says is committed, and learn from its verdict.

        Returns:
            The generation, and KV to move before any computation. None: the next step answers, as it is not held, or
            holds other tokens, or the request repeats the last one.
        """
        generation = self._generations.get(request.generation)
        if generation is None:
            self._ready_answers.append(NeedsPrefix(request.generation, request.round))
            return None
        self._release(generation)
        if generation.answered is not None and generation.answered[0] == request:
            self._ready_answers.append(generation.answered[1])
            return None
        verdict = generation.verdict(request)
        moves = generation.synchronise(request)
        if moves is None:
            self._ready_answers.append(NeedsPrefix(request.generation, request.round))
            return None
        generation.sent_chain = None
        if verdict is not None:
            generation.recalibration.learn(verdict)
            self._recalibration.learn(verdict)
            if self._on_verdict is not None:
                self._on_verdict(request.generation, verdict)
        return generation, moves

    def _plan_chain(self, generation: Held, job: DraftingJob) -> None:
        """Have a chain predicted, and stopped where its tokens no longer pay."""
        acceptance = job.protocol.rule(generation.params, generation.terms.wire)
        job.predictor = generation.recalibration.chain(acceptance, generation.params.temperature)
        job.keeps_features = self._on_verdict is not None
        job.rule = self._stops.rule(job.predictor, job.request.price)

    def _answer(self, generation: Held, job: DraftingJob) -> None:
        self._ready_answers.append(generation.finish(job))
        self._release(generation)

    def _answer_if_complete(self, generation: Held) -> None:
        job = generation.job
        known = len(generation.token_ids) - 1
        if job is not None and not job.wants_row and generation.kv.computed_tokens >= known:
            self._answer(generation, job)

    def _release(self, generation: Held) -> None:
        generation.job = None

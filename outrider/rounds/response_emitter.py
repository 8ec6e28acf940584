"""Chunks of one response for its client: committed text up to a stop string, with reports of choices and rounds."""

from outrider.contracts.committed import CommittedRound
from outrider.contracts.requests import ChoiceReport, ChunkDetails, GenerationChunk, RoundReport
from outrider.contracts.verifying import AutonomousRun, OwnDraft
from outrider.rounds.choice import report
from outrider.rounds.generation import Generation, accepted_of
from outrider.rounds.lookup.ngram_drafts import NgramDraft, report_lookup, report_own_draft
from outrider.rounds.promise_tracker import PromiseTracker
from outrider.rounds.states import GenerationEvent
from outrider.rounds.timing import RoundTiming
from outrider.selection.situation import RoundChoice
from outrider.text.shown import IncrementalText, shown


class ResponseEmitter:
    def __init__(
        self, generation: Generation, text: IncrementalText, tracker: PromiseTracker, began_at_s: float
    ) -> None:
        """``began_at_s``: when this coordinator began the response; rounds' ends are reported relative to it."""
        self._generation, self._text, self._tracker = generation, text, tracker
        self._began_at_s = began_at_s
        self._choices: list[ChoiceReport] = []  # to be sent with the next chunk
        self._rounds: list[RoundReport] = []  # likewise

    def explain(self, choice: RoundChoice | None) -> None:
        """Report a round's choice, if the request asks for reports (``explain``)."""
        if self._generation.request.explain and choice is not None:
            self._choices.append(report(choice))

    def explain_lookup(self, choice: RoundChoice | None, found: NgramDraft) -> None:
        """Replace the last choice reported by an n-gram draft that was used in its place."""
        if self._generation.request.explain and choice is not None:
            self._choices[-1:] = [report_lookup(choice, found)]

    def explain_own_draft(
        self, choice: RoundChoice | None, own: OwnDraft | None, autonomous_run: AutonomousRun | None
    ) -> None:
        """Replace the last choice reported by the verifier's own draft, if it made one."""
        if own is not None and self._generation.request.explain and choice is not None:
            self._choices[-1:] = [
                report_own_draft(choice, own, None if autonomous_run is None else autonomous_run.lookup)
            ]

    def measured(self, timing: RoundTiming, now_s: float) -> None:
        """Report the times of a round that ends now, if the request asks for ``details``."""
        if self._generation.request.details:
            self._rounds.append(round_report(timing, now_s - self._began_at_s))

    def chunk(self, committed: CommittedRound) -> GenerationChunk:
        """Return the chunk of committed tokens up to a stop string. The last chunk ends the generation.

        Tokens behind a stop string are taken back from statistics and ledger.
        """
        generation, piece = self._generation, shown(self._text, committed)
        if piece.consumed < len(committed.token_ids):
            origins = committed.origins
            generation.swallowed(origins[piece.consumed :], accepted_of(origins[: piece.consumed]))
            self._tracker.swallowed(len(committed.token_ids) - piece.consumed)
        if piece.finish is not None:
            generation.happened(GenerationEvent.ENDED)
        choices, self._choices = tuple(self._choices), []
        details = None
        if generation.request.details:
            details, self._rounds = ChunkDetails(piece.pieces(), tuple(self._rounds)), []
        return GenerationChunk(
            token_ids=committed.token_ids[: piece.consumed],
            spans=piece.spans,
            stats=generation.stats,
            shown_tokens=self._text.shown_tokens,
            logprobs=committed.logprobs[: piece.consumed],
            prompt_logprobs=committed.prompt_logprobs,
            finish_reason=piece.finish,
            correction_by=generation.correction_by,
            choices=choices,
            ledger=self._tracker.record,
            details=details,
            tags=self._text.take_tags(),
        )


def round_report(timing: RoundTiming, ended_s: float) -> RoundReport:
    """Return a round's timing in the form that clients see; ``ended_s``: since the response began."""
    return RoundReport(
        protocol=timing.protocol,
        drafted_tokens=timing.drafted_tokens,
        accepted_tokens=timing.accepted_tokens,
        trimmed_tokens=timing.trimmed_tokens,
        committed_tokens=timing.committed_tokens,
        payload_up_bits=timing.up_bits,
        payload_down_bits=timing.down_bits,
        ended_s=ended_s,
        phases_s=tuple(timing.phases_s.items()),
        beside_s=timing.beside_s,
    )

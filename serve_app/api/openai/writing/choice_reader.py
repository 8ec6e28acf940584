"""Reads one choice of a response in progress: takes a coordinator's chunks, returns what the client sees.

A token's log-probability is returned with the text that completes the token; it is dropped if a stop string swallowed
the token.
"""

from collections import deque
from dataclasses import dataclass
from itertools import pairwise

from outrider.contracts.requests import (
    ChoiceReport,
    FinishReason,
    GenerationChunk,
    RoundReport,
    RoundStats,
    TagPlace,
    TextSpan,
    TokenLogprobs,
)
from outrider.contracts.slo import LedgerRecord
from outrider.text.tokens import TextOffsets, TokenTable
from serve_app.api.openai.choices import Choice
from serve_app.api.openai.tools.deltas import MessageDeltas
from serve_app.api.openai.writing.hidden_tokens import HiddenTokens

KEPT_REPORTS = 1024  # per response, shared by its choices: some 270 bytes each
_KEPT_CHOICES = 256  # per choice
ECHOED_TOKENS = 256  # per piece: a long prompt's log-probabilities come all at once


@dataclass(frozen=True, slots=True)
class ShownToken:
    """A token whose log-probability may be reported.

    ``logprobs`` is None for a prompt's first token. ``text_offset`` and ``text_end`` count characters of the choice's
    text.
    """

    token_id: int
    text_offset: int
    text_end: int
    logprobs: TokenLogprobs | None


@dataclass(frozen=True, slots=True)
class ChoiceDelta:
    """A piece of a choice.

    Attributes:
        spans: the generated part of ``text``: all of it, unless it echoes the prompt.
        made: its tokens and who proposed each, if requested; their joint text is that of the spans.
        rounds: the rounds that made them, if requested.
    """

    text: str
    spans: tuple[TextSpan, ...] = ()
    tokens: tuple[ShownToken, ...] = ()
    made: tuple[tuple[int, TextSpan], ...] = ()
    rounds: tuple[RoundReport, ...] = ()
    token_ids: tuple[int, ...] = ()  # all that were made, if requested
    prompt_ids: tuple[int, ...] = ()  # with a choice's first piece, likewise
    tags: tuple[TagPlace, ...] = ()  # marks of reasoning whose text is complete now


class ChoiceReader:
    """Reads the chunks of one choice.

    Attributes:
        finish_reason: None until the last chunk was read.
        completion_tokens: so far.
        stats: of the chunks read so far.
        slo: the class whose speed it is promised.
        ledger: how well the promise was kept; None before the first chunk.
        choices: explained plans of the last rounds.
        stop_string: the one that ended it, if one did.
    """

    def __init__(
        self,
        choice: Choice,
        table: TokenTable,
        kept_reports: int = _KEPT_CHOICES,
        message: MessageDeltas | None = None,
        *,
        token_ids: bool = False,
    ) -> None:
        """Read from the start.

        Args:
            choice: the choice.
            table: of the target's tokenizer.
            kept_reports: number of ``choices`` to keep, at most ``_KEPT_CHOICES``.
            message: separates reasoning and tool calls from the text; None: all of it is the answer.
            token_ids: whether they are reported.
        """
        self.message = message
        self._reports_ids, self._begun = token_ids, False
        self.choice = choice
        self.finish_reason: FinishReason | None = None
        self.completion_tokens = 0
        self.stats = RoundStats()
        self.slo = choice.request.slo
        self.ledger: LedgerRecord | None = None
        self.stop_string: str | None = None
        self._hidden = HiddenTokens(choice.request, table) if choice.request.stop else None
        self.choices: deque[ChoiceReport] = deque(maxlen=min(kept_reports, _KEPT_CHOICES))
        self._table = table
        self._offsets = TextOffsets(table, start=len(choice.echo or ""), special=choice.request.special_text)
        self._echoed = choice.echo is None
        self._held: list[TokenLogprobs] = []  # of committed tokens that are not shown yet
        self._shown_tokens = 0  # number of shown tokens

    def read(self, chunk: GenerationChunk) -> list[ChoiceDelta]:
        """Return what a chunk adds, the prompt's echo as separate deltas; nothing empty."""
        deltas = [] if self._echoed else self._echo(chunk)
        self._echoed = True
        if self._reports_ids and not self._begun:
            deltas.insert(0, ChoiceDelta("", prompt_ids=self.choice.request.prompt_ids))
        self._begun = True
        self.stats, self.finish_reason = chunk.stats, chunk.finish_reason
        self.ledger = chunk.ledger
        self.slo = chunk.granted or self.slo
        if chunk.choices:
            self.choices += chunk.choices
        if self._hidden is not None:
            self._hidden.add(chunk)
            self.stop_string = self._hidden.stop_string() if chunk.finish_reason is FinishReason.STOP else None
        if self.choice.shows_output:
            self.completion_tokens += len(chunk.token_ids)
            if self.message is not None:
                self.message.made(chunk.token_ids)
            deltas.append(self._made(chunk))
        elif chunk.finish_reason is not None:
            self.finish_reason = FinishReason.LENGTH
        return [
            delta
            for delta in deltas
            if delta.text or delta.tokens or delta.made or delta.token_ids or delta.prompt_ids or delta.tags
        ]

    @property
    def reasoning_tokens(self) -> int | None:
        """How many of them are reasoning; None: the model does not reason."""
        if self.message is None or not self.message.reasons:
            return None
        return self.message.reasoning_tokens(self.completion_tokens)

    def _echo(self, chunk: GenerationChunk) -> list[ChoiceDelta]:
        """Return the echo in pieces, each with the text from its first token on."""
        text = self.choice.echo or ""
        offsets = TextOffsets(self._table, spelled=text)
        reported = zip(self.choice.request.prompt_ids, chunk.prompt_logprobs, strict=False)  # empty unless requested
        tokens = [ShownToken(i, offsets.next(i), offsets.end, logprobs) for i, logprobs in reported]
        firsts = range(0, len(tokens), ECHOED_TOKENS)
        bounds = [0, *(tokens[first].text_offset for first in firsts[1:]), len(text)]
        return [
            ChoiceDelta(text[low:high], tokens=tuple(tokens[first : first + ECHOED_TOKENS]))
            for first, (low, high) in zip(firsts or (0,), pairwise(bounds), strict=True)
        ]

    def _made(self, chunk: GenerationChunk) -> ChoiceDelta:
        shown, details = self._shown(chunk), chunk.details
        ids = chunk.token_ids if self._reports_ids else ()
        if details is None:
            return ChoiceDelta(chunk.text, chunk.spans, shown, token_ids=ids, tags=chunk.tags)
        made = tuple(zip(chunk.token_ids, details.pieces, strict=True))
        return ChoiceDelta(chunk.text, chunk.spans, shown, made, details.rounds, ids, tags=chunk.tags)

    def _shown(self, chunk: GenerationChunk) -> tuple[ShownToken, ...]:
        if not (chunk.logprobs or self._held):
            return ()
        self._held += chunk.logprobs
        shown = self._held[: chunk.shown_tokens - self._shown_tokens]
        del self._held[: len(shown)]
        self._shown_tokens += len(shown)
        offsets = self._offsets
        return tuple(ShownToken(item.token_id, offsets.next(item.token_id), offsets.end, item) for item in shown)

"""Metrics of each response at the ingress, as its client sees it."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from outrider.contracts.requests import FinishReason, GenerationChunk, RoundStats
from outrider.contracts.slo import BEST_EFFORT, LedgerRecord, SloClass
from outrider.scheduling.attribution import response_cause
from serve_app import metrics
from serve_app.api.http_errors import answer_for
from serve_app.metrics import Sink

MAX_METERED_KEYS = 256  # of one ingress: a file of keys may be replaced by others for as long as it runs
OTHER_KEYS = "_others"  # no name of a key begins so
_TOLD_EVERY_S = 1.0  # updating a counter with every token would cost as much as the token's event


class MeteredResponse:
    def __init__(self, sink: Sink, clock: Callable[[], float], prompt_tokens: int, slo: SloClass) -> None:
        self._sink = sink
        self._slo = slo
        self._clock = clock
        self._prompt_tokens = prompt_tokens
        self._began_at_s = clock()
        self._last_chunk_at_s: float | None = None
        self._tokens, self._untold_tokens, self._told_at_s = 0, 0, self._began_at_s
        self.finish: FinishReason | None = None

    def chunk(self, chunk: GenerationChunk) -> None:
        """Record a chunk. One without tokens, which only updates the resume record, is not seen by the client."""
        if not chunk.token_ids and chunk.finish_reason is None:
            return
        self._slo = chunk.granted or self._slo
        now_s, sink, tokens = self._clock(), self._sink, len(chunk.token_ids)
        if self._last_chunk_at_s is None:
            sink.record(metrics.TTFT_S, now_s - self._began_at_s)
            sink.record(metrics.PROMPT_TOKENS, self._prompt_tokens)
            sink.record(metrics.PROMPT_LENGTH, self._prompt_tokens)
            sink.record(metrics.CACHED_TOKENS, chunk.stats.cached_tokens)
        else:
            for _ in range(tokens):
                sink.record(metrics.INTER_TOKEN_S, (now_s - self._last_chunk_at_s) / tokens)
        self._tokens += tokens
        self._untold_tokens += tokens
        if now_s - self._told_at_s >= _TOLD_EVERY_S:
            self.tell_tokens()
            self._told_at_s = now_s
        self._last_chunk_at_s = now_s
        self.finish = chunk.finish_reason
        if self.finish is not None:
            sink.record(metrics.E2E_S, now_s - self._began_at_s)
            sink.record(metrics.RESPONSE_LENGTH, self._tokens)
            self._promise(chunk.ledger, chunk.stats)

    @property
    def begun(self) -> bool:
        """Whether the client has got a token."""
        return self._last_chunk_at_s is not None

    def tell_tokens(self) -> None:
        if self._untold_tokens:
            self._sink.record(metrics.GENERATION_TOKENS, self._untold_tokens)
            self._untold_tokens = 0

    def _promise(self, ledger: LedgerRecord | None, stats: RoundStats) -> None:
        """Record whether the promise was kept, if the response had more than its first tokens."""
        speed = None if ledger is None else ledger.tokens_per_s
        if speed is None:
            return
        self._sink.record(metrics.RESPONSE_SPEED, speed, slo_class=self._slo.name)
        if self._slo.tokens_per_s:
            kept = speed >= self._slo.tokens_per_s
            self._sink.record(metrics.SLO_RESPONSES, slo_class=self._slo.name, kept="yes" if kept else "no")
            if not kept:
                cause = response_cause(stats.late_queue_rounds, stats.late_compute_rounds)
                self._sink.record(metrics.SLO_BROKEN, slo_class=self._slo.name, cause=cause)

    def waited_s(self) -> float:
        """Seconds since the last chunk, or since the request."""
        since_s = self._began_at_s if self._last_chunk_at_s is None else self._last_chunk_at_s
        return self._clock() - since_s

    def resumed(self) -> None:
        """Count a move to another coordinator after a loss."""
        self._sink.record(metrics.RESUMED)


class ResponseMeter:
    def __init__(self, sink: Sink, clock: Callable[[], float], deadline_s: float) -> None:
        """``clock`` is monotonic, in seconds; ``deadline_s`` is the shortest deadline of a chunk.

        ``deadline_s`` may be replaced; later responses use the new one.
        """
        self._sink = sink
        self._clock = clock
        self.deadline_s = deadline_s
        self._under_way: set[MeteredResponse] = set()
        self._keys: set[str] = set()  # names of API keys that have series

    @property
    def running(self) -> int:
        return len(self._under_way)

    @property
    def waiting(self) -> int:
        """Number of these without a token."""
        return sum(not metered.begun for metered in self._under_way)

    @contextmanager
    def response(self, prompt_tokens: int, slo: SloClass = BEST_EFFORT) -> Iterator[MeteredResponse]:
        metered, deadline_s = MeteredResponse(self._sink, self._clock, prompt_tokens, slo), self.deadline_s
        self._under_way.add(metered)
        self._sink.record(metrics.RUNNING, self.running)
        end = "failed"
        try:
            yield metered
            end = metered.finish or "failed"
        except (asyncio.CancelledError, GeneratorExit):
            # A missed deadline cancels, too, not only a client that disconnects.
            end = metered.finish or ("failed" if metered.waited_s() >= deadline_s else "cancelled")
            raise
        except Exception as error:
            end = "failed" if answer_for(error).status >= 500 else "refused"
            raise
        finally:
            self._under_way.discard(metered)
            self._sink.record(metrics.RUNNING, self.running)
            metered.tell_tokens()
            self._sink.record(metrics.RESPONSES, end=str(end))

    def used(self, key: str, *, prompt_tokens: int, generation_tokens: int) -> None:
        """Count what a request took, whatever became of it, for the name of its API key."""
        if key not in self._keys and len(self._keys) >= MAX_METERED_KEYS:
            key = OTHER_KEYS
        else:
            self._keys.add(key)
        self._sink.record(metrics.KEY_TOKENS, prompt_tokens, key=key, kind="prompt")
        self._sink.record(metrics.KEY_TOKENS, generation_tokens, key=key, kind="generation")

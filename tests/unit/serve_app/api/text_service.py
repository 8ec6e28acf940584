"""A second implementation of the coordinator's contract: it says a fixed text, three tokens to a round."""

import asyncio
import atexit
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field

from transformers import PreTrainedTokenizerBase

from outrider.config.access import HttpConfig
from outrider.config.schema import ModelConfig, SloConfig
from outrider.contracts.committed import CommittedRound
from outrider.contracts.requests import (
    ChunkDetails,
    FinishReason,
    GenerationChunk,
    GenerationRequest,
    RoundReport,
    RoundStats,
    TokenLogprobs,
    TokenOrigin,
)
from outrider.contracts.slo import LedgerRecord
from outrider.models.tokenizer import load_tokenizer
from outrider.text.shown import IncrementalText, shown
from serve_app.api.grammars.pool import GrammarPool
from serve_app.api.service import Gate, RequestLimits, ServiceSettings
from serve_app.service_answers import Ready, Status

TOKENIZER = load_tokenizer("smollm2-135m-instruct")
MODEL = "smollm2"
LIMITS = RequestLimits(
    model_name=MODEL,
    max_context_tokens=256,
    max_output_tokens=100,
    vocab_size=len(TOKENIZER),
    k_max=16,
    max_prompt_chars=20_000,
    slo_classes=SloConfig().slo_classes,
)
SETTINGS = ServiceSettings(
    model=ModelConfig(target="smollm2-135m-instruct", served_name=MODEL, generation_config="vllm"),
    http=HttpConfig(host="0.0.0.0"),  # noqa: S104 (whatever name a request is for)
    max_output_tokens=LIMITS.max_output_tokens,
    k_max=LIMITS.k_max,
    max_body_bytes=50_000,
)
GRAMMARS = GrammarPool()  # of all tests of this process
atexit.register(GRAMMARS.close)
TEXT = "The quick 🦊 jumps over 漢字 and the lazy dog. " * 4
TOKENS_PER_ROUND = 3
ROUND_S = 0.25  # of the first request's rounds, by their ledger; twice that of the second one's, and so on
ALTERNATIVE_ID = 1000  # what is always second


@dataclass
class TextService:
    """Says the first of ``texts`` to the first request, and so on around; a prompt's tokens are scored as a text's.

    At the token ``trouble_at`` it raises ``error``, or hangs if there is none; unless ``trouble_with`` says that only
    one of its requests has trouble. ``floor`` is the logarithm of what comes second.
    """

    settings: ServiceSettings = SETTINGS
    limits: RequestLimits = LIMITS
    tokenizer: PreTrainedTokenizerBase = TOKENIZER
    texts: Sequence[str] = (TEXT,)
    trouble_at: int | None = None
    trouble_with: int | None = None
    error: Exception | None = None
    floor: float = -100.0
    is_ready: bool = True
    said_all: int = 0
    cancelled: int = 0
    requests: list[GenerationRequest] = field(default_factory=list)
    hanging: asyncio.Event = field(default_factory=asyncio.Event)
    gate: Gate | None = None
    grammars: GrammarPool = GRAMMARS
    phases: list[str] = field(default_factory=list)  # of first tokens
    taken: list[tuple[str, int, int]] = field(default_factory=list)  # key, prompt's and response's tokens

    def first_token_phase(self, phase: str, seconds: float) -> None:
        assert seconds >= 0.0
        self.phases.append(phase)

    def used(self, key: str, *, prompt_tokens: int, generation_tokens: int) -> None:
        self.taken.append((key, prompt_tokens, generation_tokens))

    async def generate(self, request: GenerationRequest) -> AsyncGenerator[GenerationChunk, None]:
        """Say as much of the text as is asked for."""
        number = len(self.requests)
        self.requests.append(request)
        ids = self.tokenizer.encode(self.texts[number % len(self.texts)])[: request.max_tokens]
        text = IncrementalText(self.tokenizer, request.stop, min_tokens=request.min_tokens)
        text.tag_ids = request.tag_ids
        try:
            for first in range(0, len(ids), TOKENS_PER_ROUND):
                if self.trouble_at == first and self.trouble_with in (None, number):
                    await self._trouble()
                await asyncio.sleep(0)  # others have their turn
                made = tuple(ids[first : first + TOKENS_PER_ROUND])
                finish = FinishReason.LENGTH if first + TOKENS_PER_ROUND >= len(ids) else None
                piece = shown(text, CommittedRound(made, finish, tuple(_origin(first, i) for i in range(len(made)))))
                taken = made[: piece.consumed]
                rounds = 1 + first // TOKENS_PER_ROUND
                yield GenerationChunk(
                    token_ids=taken,
                    spans=piece.spans,
                    stats=RoundStats(
                        *(rounds, rounds - 1, 2 * rounds, rounds, 5 + number, 80 * rounds, 64 * rounds),
                        late_queue_rounds=rounds // 2,
                        late_compute_rounds=rounds // 4,
                        protocols=(("token_ids", rounds - 1),) if rounds > 1 else (),
                    ),
                    shown_tokens=text.shown_tokens,
                    logprobs=tuple(score(request, i, self.floor) for i in taken)
                    if request.logprobs is not None
                    else (),
                    prompt_logprobs=prompt_scores(request, self.floor) if first == 0 else (),
                    finish_reason=piece.finish,
                    ledger=LedgerRecord(
                        tokens=first + len(taken) - TOKENS_PER_ROUND if first else 0,
                        elapsed_s=ROUND_S * (number + 1) * (rounds - 1),
                        times_behind=number,
                    ),
                    details=ChunkDetails(piece.pieces(), (round_of(rounds, len(taken)),)) if request.details else None,
                    tags=text.take_tags(),
                )
                if piece.finish is not None:
                    break
            self.said_all += 1
        except (asyncio.CancelledError, GeneratorExit):
            self.cancelled += 1
            raise

    async def ready(self) -> Ready:
        """As told."""
        return {"ready": self.is_ready, "verifier": "answers" if self.is_ready else "does not answer"}

    async def status(self) -> Status:
        """It has nobody to tell of."""
        return {"model": MODEL, "drafters": [], "coordinators": [], "gateways": []}

    load: int = 0

    async def metrics(self) -> bytes:
        """How many requests came."""
        return f"requests_total {len(self.requests)}.0\n".encode()

    async def _trouble(self) -> None:
        if self.error is not None:
            raise self.error
        self.hanging.set()
        await asyncio.Event().wait()


def score(request: GenerationRequest, token_id: int, floor: float) -> TokenLogprobs:
    """What the service says of any token: the logarithm is minus its id, in thousandths."""
    top = ((token_id, -token_id / 1000), (ALTERNATIVE_ID, floor), *((i, floor - i) for i in range(100, 200)))
    return TokenLogprobs(token_id, -token_id / 1000, top[: request.logprobs])


def prompt_scores(request: GenerationRequest, floor: float) -> tuple[TokenLogprobs | None, ...]:
    """The same of the prompt, if asked for."""
    if not request.prompt_logprobs:
        return ()
    return (None, *(score(request, token_id, floor) for token_id in request.prompt_ids[1:]))


def round_of(number: int, tokens: int) -> RoundReport:
    """What the service says of a round, all of which take as long."""
    phases = (("draft", 0.15), ("verify", ROUND_S - 0.15))
    return RoundReport("token_ids" if number > 1 else None, 2, 1, 0, tokens, 80, 64, ROUND_S * number, phases)


def _origin(first: int, at: int) -> TokenOrigin:
    if first == 0:
        return TokenOrigin.VERIFIER
    return TokenOrigin.CORRECTION if at == TOKENS_PER_ROUND - 1 else TokenOrigin.ACCEPTED

"""A second implementation of the coordinator's contract: it says a fixed text, three tokens to a round."""

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field

from transformers import PreTrainedTokenizerBase

from outrider.models.registry import load_tokenizer
from outrider.text import IncrementalText
from outrider.types import FinishReason, GenerationChunk, GenerationRequest, RoundStats
from serve_app.openai_api import RequestLimits
from serve_app.service import ReadyReport, ServiceSettings

TOKENIZER = load_tokenizer("smollm2-135m-instruct")
MODEL = "smollm2"
LIMITS = RequestLimits(
    model_name=MODEL,
    max_context_tokens=256,
    max_output_tokens=100,
    vocab_size=len(TOKENIZER),
    k_max=16,
    max_prompt_chars=20_000,
)
SETTINGS = ServiceSettings(
    model_name=MODEL,
    target="smollm2-135m-instruct",
    max_output_tokens=LIMITS.max_output_tokens,
    k_max=LIMITS.k_max,
    max_body_bytes=50_000,
)
TEXT = "The quick 🦊 jumps over 漢字 and the lazy dog. " * 4
TOKENS_PER_ROUND = 3


@dataclass
class TextService:
    """Says ``TEXT``; at the token ``trouble_at`` it raises ``error``, or hangs if there is none."""

    settings: ServiceSettings = SETTINGS
    limits: RequestLimits = LIMITS
    tokenizer: PreTrainedTokenizerBase = TOKENIZER
    trouble_at: int | None = None
    error: Exception | None = None
    is_ready: bool = True
    said_all: bool = False
    requests: list[GenerationRequest] = field(default_factory=list)
    cancelled: asyncio.Event = field(default_factory=asyncio.Event)
    hanging: asyncio.Event = field(default_factory=asyncio.Event)

    async def generate(self, request: GenerationRequest) -> AsyncGenerator[GenerationChunk, None]:
        """Say as much of the text as is asked for."""
        self.requests.append(request)
        ids = TOKENIZER.encode(TEXT)[: request.max_tokens]
        text = IncrementalText(TOKENIZER, request.stop)
        rounds = 0
        try:
            for first in range(0, len(ids), TOKENS_PER_ROUND):
                if self.trouble_at == first:
                    await self._trouble()
                block = ids[first : first + TOKENS_PER_ROUND]
                piece = text.push(block)
                rounds += 1
                last = first + TOKENS_PER_ROUND >= len(ids)
                reason = FinishReason.STOP if piece.stopped else FinishReason.LENGTH if last else None
                shown = piece.text + (text.finish() if last else "")
                stats = None if reason is None else RoundStats(rounds, rounds - 1, 2 * rounds, rounds, 5)
                yield GenerationChunk(tuple(block[: piece.consumed_tokens]), shown, reason, stats)
                if piece.stopped:
                    break
            self.said_all = True
        except (asyncio.CancelledError, GeneratorExit):
            self.cancelled.set()
            raise

    async def ready(self) -> ReadyReport:
        """As told."""
        return ReadyReport(self.is_ready, {"verifier": "answers" if self.is_ready else "does not answer"})

    async def _trouble(self) -> None:
        if self.error is not None:
            raise self.error
        self.hanging.set()
        await asyncio.Event().wait()

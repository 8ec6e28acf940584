"""The few types every part of Outrider shares: sampling parameters, requests and what comes out of them.

Frozen data only. Token ids are plain ints, probabilities float32, times seconds.
"""

from dataclasses import dataclass
from enum import StrEnum
from math import isfinite

from outrider.errors import ParameterError

GenerationId = str
MAX_SEED = 2**64 - 1


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """The distribution a request samples from, and the seed that fixes the sample.

    Applied in this order: logit bias, repetition penalty, presence and frequency penalties,
    temperature, top-k, top-p, min-p. ``temperature == 0`` is greedy: the argmax after bias and penalties.

    Raises:
        ParameterError: a field is out of range (the message names it, its range and the value).
    """

    temperature: float = 1.0  # 0 is greedy
    top_k: int = 0  # 0 keeps all
    top_p: float = 1.0  # smallest set of tokens whose mass reaches top_p
    min_p: float = 0.0  # drop tokens below min_p * (largest probability)
    repetition_penalty: float = 1.0  # prompt and output; positive logits divided, negative multiplied
    presence_penalty: float = 0.0  # output only, once per token that occurred
    frequency_penalty: float = 0.0  # output only, times its count
    logit_bias: tuple[tuple[int, float], ...] = ()
    seed: int = 0  # unsigned 64 bit

    def __post_init__(self) -> None:
        """Refuse what has no meaning, naming field, range and value."""
        _in_range("temperature", self.temperature, 0.0, 2.0)
        _in_range("top_p", self.top_p, 0.0, 1.0, low_open=True)
        _in_range("min_p", self.min_p, 0.0, 1.0)
        _in_range("repetition_penalty", self.repetition_penalty, 0.0, 10.0, low_open=True)
        _in_range("presence_penalty", self.presence_penalty, -2.0, 2.0)
        _in_range("frequency_penalty", self.frequency_penalty, -2.0, 2.0)
        if self.top_k < 0:
            raise ParameterError("top_k", "an integer >= 0 (0 keeps all tokens)", self.top_k)
        if not 0 <= self.seed <= MAX_SEED:
            raise ParameterError("seed", f"an integer in 0..{MAX_SEED}", self.seed)
        for token_id, bias in self.logit_bias:
            if token_id < 0:
                raise ParameterError("logit_bias", "token ids >= 0", token_id)
            _in_range(f"logit_bias[{token_id}]", bias, -100.0, 100.0)

    @property
    def greedy(self) -> bool:
        """Whether the output is the argmax, without randomness."""
        return self.temperature == 0.0

    @property
    def penalised(self) -> bool:
        """Whether logits depend on which tokens came before."""
        return self.repetition_penalty != 1.0 or self.presence_penalty != 0.0 or self.frequency_penalty != 0.0


def _in_range(field: str, value: float, low: float, high: float, *, low_open: bool = False) -> None:
    inside = isfinite(value) and (low < value if low_open else low <= value) and value <= high
    if not inside:
        bracket = "(" if low_open else "["
        raise ParameterError(field, f"a number in {bracket}{low:g}, {high:g}]", value)


class FinishReason(StrEnum):
    """Why a generation ended; the values are OpenAI's."""

    STOP = "stop"  # end-of-sequence token, or a stop string
    LENGTH = "length"  # max_tokens, or the model's context is full


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """One response to make, as the ingress hands it to a coordinator. Also the resume record.

    ``output_ids`` is empty for a new request; a resumed one carries the tokens already committed elsewhere,
    which count as output for penalties and ``max_tokens`` but are not sent again.
    """

    generation: GenerationId
    prompt_ids: tuple[int, ...]
    params: SamplingParams
    max_tokens: int  # of output, ``output_ids`` included; >= 1
    stop: tuple[str, ...] = ()
    ignore_eos: bool = False
    window: int | None = None  # fixed draft window for this request; None: the coordinator chooses
    output_ids: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class RoundStats:
    """What a generation has cost so far: the basis of ``usage`` and ``usage.outrider``."""

    rounds: int = 0  # verify outcomes committed, the prefill included
    speculative_rounds: int = 0  # of those, rounds that verified at least one draft token
    drafted_tokens: int = 0
    accepted_tokens: int = 0
    cached_tokens: int = 0  # prompt tokens whose KV was already resident when the generation opened


@dataclass(frozen=True, slots=True)
class GenerationChunk:
    """One committed piece of a response, in order, nothing sent twice.

    ``token_ids`` are the tokens committed by one round; ``text`` is what may be shown because of them (characters
    split over tokens and possible beginnings of a stop string are held back, so it may be empty).
    ``finish_reason`` and ``stats`` are set on the last chunk only.
    """

    token_ids: tuple[int, ...]
    text: str
    finish_reason: FinishReason | None = None
    stats: RoundStats | None = None

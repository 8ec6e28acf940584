"""Types shared by all parts: sampling parameters, the request for a generation, and the chunks of its response.

Frozen data only. Token ids are plain ints, probabilities float32, times seconds.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import zip_longest
from typing import Annotated, get_type_hints

from outrider.contracts.accounts import NO_ACCOUNT, Account
from outrider.contracts.errors import ParameterError
from outrider.contracts.plain import Plain
from outrider.contracts.slo import BEST_EFFORT, LedgerRecord, SloClass

GenerationId = str
ProtocolName = str  # one of ``outrider.protocols.registry``
MAX_SEED = 2**64 - 1
DEFAULT_LOOKUP_TOKENS = 8  # draft length of prompt lookup, where a request asks for it without a number
MAX_LOOKUP_TOKENS = 64


@dataclass(frozen=True, slots=True)
class Range:
    """Allowed values of a sampling parameter: ``low`` to ``high``, both included unless ``low_open``."""

    low: float
    high: float
    low_open: bool = False
    needed: str = ""  # text for the error message, in place of the interval

    def check(self, field: str, value: float) -> None:
        if not ((self.low < value if self.low_open else self.low <= value) and value <= self.high):
            numbers = f"a number in {'(' if self.low_open else '['}{self.low:g}, {self.high:g}]"
            raise ParameterError(field, self.needed or numbers, value)


@dataclass(frozen=True, slots=True)
class Grammar(Plain):
    """Grammar of a response, in the syntax of the library that ``outrider.grammar`` uses.

    It applies from the response's start, or from behind the first token ``begins_after`` (after a reasoning prefix).
    With ``opened_by`` that prefix begins with this token, and there is none unless the response does.
    """

    text: str
    begins_after: int | None = None  # token id
    opened_by: int | None = None


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """The distribution a request samples from, and the seed that fixes the sample.

    Applied in this order: logit bias, repetition penalty, presence and frequency penalties, withheld tokens, grammar,
    temperature, top-k, top-p, min-p. ``temperature == 0`` is greedy: the argmax after bias and penalties, the
    lowest id on ties. ``top_k == 1``, a tiny ``top_p`` and ``min_p == 1`` leave no other token, whatever is drawn.

    A field with a ``Range`` is an API parameter of the same name; its default has no effect.
    """

    temperature: Annotated[float, Range(0.0, 2.0)] = 1.0  # 0 is greedy
    top_p: Annotated[float, Range(0.0, 1.0, low_open=True)] = 1.0  # smallest set of tokens whose mass reaches top_p
    top_k: Annotated[int, Range(0, float("inf"), needed="an integer >= 0 (0 keeps all tokens)")] = 0
    min_p: Annotated[float, Range(0.0, 1.0)] = 0.0  # drop tokens below min_p * (largest probability)
    repetition_penalty: Annotated[float, Range(0.0, 10.0, low_open=True)] = 1.0  # divides logits > 0, multiplies others
    presence_penalty: Annotated[float, Range(-2.0, 2.0)] = 0.0  # output only, once per token that occurred
    frequency_penalty: Annotated[float, Range(-2.0, 2.0)] = 0.0  # output only, times its count
    logit_bias: tuple[tuple[int, float], ...] = ()
    withheld_ids: tuple[int, ...] = ()  # excluded at positions below withheld_until (implements min_tokens)
    withheld_until: int = 0  # absolute position
    grammar: Grammar | None = None  # excludes tokens that it does not allow
    seed: int = 0  # unsigned 64 bit

    def __post_init__(self) -> None:
        for name, allowed in SAMPLING_RANGES.items():
            allowed.check(name, getattr(self, name))
        if not 0 <= self.seed <= MAX_SEED:
            raise ParameterError("seed", f"an integer in 0..{MAX_SEED}", self.seed)
        for token_id, bias in self.logit_bias:
            if token_id < 0:
                raise ParameterError("logit_bias", "token ids >= 0", token_id)
            _BIAS.check(f"logit_bias[{token_id}]", bias)

    @property
    def greedy(self) -> bool:
        return self.temperature == 0.0

    @property
    def edited(self) -> bool:
        """Whether logits are edited for this request: by bias, penalties or a grammar."""
        return self.penalised or bool(self.logit_bias) or self.grammar is not None

    @property
    def penalised(self) -> bool:
        return self.repetition_penalty != 1.0 or self.presence_penalty != 0.0 or self.frequency_penalty != 0.0


SAMPLING_RANGES: Mapping[str, Range] = {
    name: extra
    for name, hint in get_type_hints(SamplingParams, include_extras=True).items()
    for extra in getattr(hint, "__metadata__", ())
}
_BIAS = Range(-100.0, 100.0)


class FinishReason(StrEnum):
    """Why a generation ended; the values are OpenAI's."""

    STOP = "stop"  # end-of-sequence token, or a stop string
    LENGTH = "length"  # max_tokens, or the model's context is full


class TokenOrigin(StrEnum):
    ACCEPTED = "accepted"  # the drafter; the target agreed
    LOOKUP = "lookup"  # prompt lookup; the target agreed
    OVERRIDE = "override"  # the drafter; the target's choice differed, and a judge accepted the token
    CORRECTION = "correction"  # the target, in place of a rejected draft token
    VERIFIER = "verifier"  # the target, without a rejection: a bonus token, or a round without a draft


@dataclass(frozen=True, slots=True)
class TokenLogprobs(Plain):
    """Natural log-probabilities in the target's raw distribution: before any edit that a request asks for."""

    token_id: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()  # the most probable tokens, best first, lowest id first on ties


@dataclass(frozen=True, slots=True)
class RoundStats(Plain):
    """Accumulated costs of a generation: the source of ``usage`` and ``usage.outrider``."""

    rounds: int = 0  # verify outcomes committed, the prefill included
    speculative_rounds: int = 0  # of those, rounds that verified at least one draft token
    drafted_tokens: int = 0
    accepted_tokens: int = 0  # draft tokens that are part of the response
    cached_tokens: int = 0  # prompt tokens whose KV was already resident when the generation opened
    payload_up_bits: int = 0  # of messages from drafters
    payload_down_bits: int = 0  # of messages to drafters
    inexact_rounds: int = 0  # rounds that may have moved the output away from the target's distribution
    late_queue_rounds: int = 0  # taken alone slower than promised, for want of a place in a batch (WISP eq. 21)
    late_compute_rounds: int = 0  # the same, because their batch took unusually long
    protocols: tuple[tuple[ProtocolName, int], ...] = ()  # number of speculative rounds of each protocol used
    trimmed_tokens: int = 0  # drafted but not verified, under load: neither accepted nor rejected
    judged_tokens: int = 0  # draft tokens that a judge accepted (``overrides``) or rejected
    overrides: tuple[int, ...] = ()  # positions in the response where the target's choice differed
    kept_drafts: tuple[int, ...] = ()  # number of speculative rounds by how many draft tokens are part of the response

    def round_without_draft(self) -> "RoundStats":
        """Return the sum after one more round without a draft; written out, as most rounds of some modes are such."""
        return RoundStats(
            self.rounds + 1,
            self.speculative_rounds,
            self.drafted_tokens,
            self.accepted_tokens,
            self.cached_tokens,
            self.payload_up_bits,
            self.payload_down_bits,
            self.inexact_rounds,
            self.late_queue_rounds,
            self.late_compute_rounds,
            self.protocols,
            self.trimmed_tokens,
            self.judged_tokens,
            self.overrides,
            self.kept_drafts,
        )

    def taken_back(self, tokens: int, kept: int) -> "RoundStats":
        """Return the record without the last draft tokens of the last round, which keeps ``kept`` of them."""
        if not tokens:
            return self
        rounds = [*self.kept_drafts]
        rounds[kept + tokens] -= 1
        rounds[kept] += 1
        while not rounds[-1]:
            del rounds[-1]
        return replace(self, accepted_tokens=self.accepted_tokens - tokens, kept_drafts=tuple(rounds))

    def __add__(self, other: "RoundStats") -> "RoundStats":
        """Return the sum of two records; written out field by field, as it runs once a round."""
        protocols = self.protocols
        if other.protocols:
            protocols = tuple(sorted((Counter(dict(self.protocols)) + Counter(dict(other.protocols))).items()))
        return RoundStats(
            self.rounds + other.rounds,
            self.speculative_rounds + other.speculative_rounds,
            self.drafted_tokens + other.drafted_tokens,
            self.accepted_tokens + other.accepted_tokens,
            self.cached_tokens + other.cached_tokens,
            self.payload_up_bits + other.payload_up_bits,
            self.payload_down_bits + other.payload_down_bits,
            self.inexact_rounds + other.inexact_rounds,
            self.late_queue_rounds + other.late_queue_rounds,
            self.late_compute_rounds + other.late_compute_rounds,
            protocols,
            self.trimmed_tokens + other.trimmed_tokens,
            self.judged_tokens + other.judged_tokens,
            (*self.overrides, *other.overrides) if other.overrides else self.overrides,
            _summed(self.kept_drafts, other.kept_drafts) if other.kept_drafts else self.kept_drafts,
        )


def _summed(one: tuple[int, ...], other: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(map(sum, zip_longest(one, other, fillvalue=0)))


@dataclass(frozen=True, slots=True)
class PlanEstimate:
    """Estimated yield of the next round under one plan; ``protocol`` None is a round without a draft."""

    protocol: ProtocolName | None
    window: int
    expansion: tuple[int, ...]
    seconds_per_token: float
    expected_tokens: float
    rows: int = 0


@dataclass(frozen=True, slots=True)
class ChoiceReport:
    """Why a plan was chosen for a round."""

    chosen: PlanEstimate
    runner_up: PlanEstimate | None
    reason: str


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """One response to make, as the ingress sends it to a coordinator. Also the resume record.

    ``output_ids`` and ``stats`` are empty for a new request. A resumed one carries the tokens committed elsewhere: they
    count as output for penalties, ``min_tokens`` and ``max_tokens``, but are not sent again.

    Attributes:
        logprobs: alternatives to report with each output token's own log-probability; None reports nothing.
        prompt_logprobs: whether to report the prompt's tokens as well, on the first chunk (needs ``logprobs``).
        semantic: whether a judge may accept mismatches of a greedy response, where one is available; else lossless.
        reproducible: whether the request named the seed: output must then equal what the target alone makes of it.
        correction_by: the draft model whose residual the pending correction is drawn from, of a response resumed
            before it was drawn; None: no correction is pending.
        token_map: hash of the token map of its ids; only a target with the same map may take them. "": not known.
        target: ``ModelCard.target`` of whoever made ``output_ids``; only the same may continue. "": any may begin.
    """

    generation: GenerationId  # unique to this attempt; a resumed response is a new generation
    prompt_ids: tuple[int, ...]
    params: SamplingParams
    max_tokens: int  # of output, ``output_ids`` included; >= 1
    stop: tuple[str, ...] = ()
    min_tokens: int = 0  # of output, before which neither an end-of-sequence token nor a stop string ends it
    ignore_eos: bool = False
    stop_ids: tuple[int, ...] = ()  # tokens that end it beside those of the model, whatever ``ignore_eos`` says
    special_text: bool = False  # whether special tokens have a text
    keeps_stop: bool = False  # whether the text ends with the stop string or token that ended it
    logprobs: int | None = None
    prompt_logprobs: bool = False
    window: int | None = None  # fixed draft window for this request; None: the coordinator chooses
    protocol: ProtocolName | None = None  # fixed for this request; None: the coordinator chooses in every round
    expansion: tuple[int, ...] = ()  # fixed tree shape, ``window`` numbers; () leaves it to the coordinator
    rows: int = 0  # if not 0: the most nodes of dynamic trees, which are up to ``window`` deep
    lookup: int | None = None  # longest draft by prompt lookup, 0: none; None: the coordinator chooses
    account: Account = NO_ACCOUNT  # charged for its share of places and of prefill
    tenant: str = ""  # prompt lookup shares responses within a tenant; "": with none
    reproducible: bool = True
    semantic: bool = False
    explain: bool = False  # whether chunks report the choice of each plan
    details: bool = False  # whether they report each token's origin and each round
    output_ids: tuple[int, ...] = ()
    stats: RoundStats = RoundStats()
    correction_by: str | None = None
    slo: SloClass = BEST_EFFORT  # the speed it is promised
    lower: tuple[SloClass, ...] = ()  # classes it accepts if ``slo`` cannot be admitted, in order of preference
    first_token_s: float | None = None  # requested limit on the time to first token, in s
    ledger: LedgerRecord | None = None  # of a resumed response: how far its promise was kept
    request_id: str = ""  # of the HTTP request, for logs
    trace: str = ""  # of a sampled one: its span, as ``traceparent`` (``contracts.tracing``)
    cache_salt: bytes = b""  # KV is shared among requests of the same salt
    affinity: bytes = b""  # requests of the same are sent to one coordinator where no prefix decides; b"": no wish
    priority: int = 0  # among the waiting requests of its account and user; a lower one goes first
    drafters: tuple[str, ...] | None = None  # drafter groups that may draft for it; None: all
    token_map: str = ""
    target: str = ""
    tag_ids: tuple[int, ...] = ()  # tokens whose places in the text are reported, special ones too


@dataclass(frozen=True, slots=True)
class TextSpan(Plain):
    """A piece of visible text, and the origin of the token that made it visible."""

    text: str
    origin: TokenOrigin


@dataclass(frozen=True, slots=True)
class TagPlace(Plain):
    """Place in a response of one of its request's ``tag_ids``. A special token is empty where these have no text."""

    token_id: int
    index: int  # among the response's tokens
    begin: int  # of its text, in characters of the response's
    end: int


@dataclass(frozen=True, slots=True)
class RoundReport(Plain):
    """Tokens, traffic and durations of one round."""

    protocol: ProtocolName | None  # of its draft, ``lookup`` included; None: nothing was drafted
    drafted_tokens: int
    accepted_tokens: int
    trimmed_tokens: int
    committed_tokens: int  # a token that was sent before the rest of the round included
    payload_up_bits: int  # of messages from a drafter; ``payload_down_bits``: of messages to it
    payload_down_bits: int
    ended_s: float  # time since its coordinator received the response, in s
    # durations of the phases in their order; they add up to the round's duration
    phases_s: tuple[tuple[str, float], ...]
    beside_s: float = 0.0  # time of drafting and link during which the verifier decoded autonomously: part of no phase


@dataclass(frozen=True, slots=True)
class ChunkDetails(Plain):
    """Origin of a chunk: its tokens and rounds."""

    pieces: tuple[TextSpan, ...]  # for each of its tokens, the text it makes visible (possibly empty) and its origin
    # committed with it. A device's correction may be sent before its round is committed.
    rounds: tuple[RoundReport, ...]


@dataclass(frozen=True, slots=True)
class GenerationChunk(Plain):
    """One committed piece of a response, in order, nothing sent twice.

    Attributes:
        spans: the text that becomes visible by these tokens, none of them empty. Characters split over tokens and
            possible beginnings of a stop string are held back, so there may be no span.
        shown_tokens: number of the response's leading tokens whose text is all visible. On the last chunk: all tokens
            but those that a stop string removed.
        prompt_logprobs: one for each prompt token, None for the first, if asked for; on the first chunk only.
    """

    token_ids: tuple[int, ...]  # committed by one round
    spans: tuple[TextSpan, ...]
    stats: RoundStats  # of the response so far
    shown_tokens: int
    logprobs: tuple[TokenLogprobs, ...] = ()  # one for each of ``token_ids``, if asked for
    prompt_logprobs: tuple[TokenLogprobs | None, ...] = ()
    finish_reason: FinishReason | None = None  # set on the last chunk only
    correction_by: str | None = None  # as in ``GenerationRequest``, for the token after these
    choices: tuple[ChoiceReport, ...] = ()  # why the plans of these rounds were chosen, if asked for
    ledger: LedgerRecord | None = None  # as in ``GenerationRequest``, after these tokens
    granted: SloClass | None = None  # on the first chunk: its class, if not the one it asked for
    target: str = ""  # on the first chunk: the target that makes it
    details: ChunkDetails | None = None  # if asked for
    tags: tuple[TagPlace, ...] = ()  # whose text is all visible now

    @property
    def text(self) -> str:
        return self.spans[0].text if len(self.spans) == 1 else "".join(span.text for span in self.spans)

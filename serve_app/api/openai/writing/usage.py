"""What is told beside an answer: its ``usage``, with how it was made, and the model card."""

from collections.abc import Sequence
from math import floor
from typing import Any

from outrider.contracts.requests import SAMPLING_RANGES, RoundStats, SamplingParams
from outrider.scheduling.attribution import response_cause
from serve_app.answers import (
    CompletionUsage,
    OutriderUsage,
    ReasoningTokens,
    SloUsage,
    TokenUsage,
    VerificationUsage,
)
from serve_app.api.openai.fields.explained import explained_usage
from serve_app.api.openai.writing.choice_reader import ChoiceReader
from serve_app.api.service import RequestLimits
from serve_app.service_answers import Model


def token_counts(prompt_tokens: int, completion_tokens: int) -> TokenUsage:
    """OpenAI's ``usage`` of a response so far."""
    return {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": completion_tokens,
        "total_tokens": prompt_tokens + completion_tokens,
    }


def usage_of(readers: Sequence[ChoiceReader]) -> CompletionUsage:
    """OpenAI's ``usage``, and ``usage.outrider``: how the response was made, summed over its choices.

    A prompt's tokens count once for all its choices; its cached tokens are those of its first choice.
    """
    firsts = [reader for reader in readers if reader.choice.first_of_prompt]
    prompt_tokens = sum(len(reader.choice.request.prompt_ids) for reader in firsts)
    completion_tokens = sum(reader.completion_tokens for reader in readers)
    stats = sum((reader.stats for reader in readers), RoundStats())
    return {
        **token_counts(prompt_tokens, completion_tokens),
        "prompt_tokens_details": {"cached_tokens": sum(reader.stats.cached_tokens for reader in firsts)},
        "completion_tokens_details": {
            "accepted_prediction_tokens": stats.accepted_tokens,
            "rejected_prediction_tokens": stats.drafted_tokens - stats.trimmed_tokens - stats.accepted_tokens,
            **_reasoning(readers),
        },
        "outrider": _outrider_usage(readers, stats),
    }


def _reasoning(readers: Sequence[ChoiceReader]) -> ReasoningTokens:
    """Tokens of the choices' reasoning, if the model reasons."""
    counts = [count for reader in readers if (count := reader.reasoning_tokens) is not None]
    return {"reasoning_tokens": sum(counts)} if counts else {}


def _outrider_usage(readers: Sequence[ChoiceReader], stats: RoundStats) -> OutriderUsage:
    rounds: dict[str, int] = {**dict(stats.protocols), "none": stats.rounds - stats.speculative_rounds}
    return {
        "rounds": stats.rounds,
        "speculative_rounds": stats.speculative_rounds,
        "drafted_tokens": stats.drafted_tokens,
        "accepted_tokens": stats.accepted_tokens,
        "trimmed_tokens": stats.trimmed_tokens,
        "protocols": {name: count for name, count in rounds.items() if count},
        "payload_bits": {"up": stats.payload_up_bits, "down": stats.payload_down_bits},
        "lossless": stats.inexact_rounds == 0,
        "sampling": sampling_of(readers[0].choice.request.params),
        **_verification(readers, stats),
        "slo": _slo_usage(readers, stats),
        **explained_usage(readers),
    }


def sampling_of(params: SamplingParams) -> dict[str, float]:
    """Sampling parameters in effect: the temperature, and others that are not neutral."""
    neutral = SamplingParams()
    values = {name: getattr(params, name) for name in SAMPLING_RANGES}
    return {name: value for name, value in values.items() if name == "temperature" or value != getattr(neutral, name)}


def _verification(readers: Sequence[ChoiceReader], stats: RoundStats) -> VerificationUsage:
    """Judged mismatches of responses that allowed it, and the positions in each choice at which one passed.

    What passes depends on windows, links and losses: the same request need not get the same answer again.
    """
    if not any(reader.choice.request.semantic for reader in readers):
        return {"verification": "lossless"}
    return {
        "verification": "semantic",
        "reproducible": False,
        "judged_tokens": stats.judged_tokens,
        "overrides": [list(reader.stats.overrides) for reader in readers],
    }


def _slo_usage(readers: Sequence[ChoiceReader], stats: RoundStats) -> SloUsage:
    """Promise and achieved speed of the response: those of its slowest choice.

    Speed is that of the tokens behind a choice's first ones; None while there are none.
    """
    asked = readers[0].choice.request.slo
    slo = min((reader.slo for reader in readers), key=lambda one: one.tokens_per_s)  # the lowest class given
    ledgers = [reader.ledger for reader in readers if reader.ledger is not None]
    speeds = [(speed, reader.slo) for reader in readers if (speed := _speed(reader)) is not None]
    achieved = min((speed for speed, _ in speeds), default=None)
    kept = all(speed >= own.tokens_per_s for speed, own in speeds)
    usage: SloUsage = {
        "class": slo.name,
        "promised_tokens_per_s": slo.tokens_per_s or None,
        "achieved_tokens_per_s": None if achieved is None else floor(achieved * 1e3) / 1e3,  # never up to the promise
        "kept": kept,
        "cause": None if kept else response_cause(stats.late_queue_rounds, stats.late_compute_rounds),
        "times_behind": sum(ledger.times_behind for ledger in ledgers),
        "late_rounds": {"queue": stats.late_queue_rounds, "compute": stats.late_compute_rounds},
    }
    return usage if slo == asked else {"preferred_class": asked.name, **usage}


def _speed(reader: ChoiceReader) -> float | None:
    return None if reader.ledger is None else reader.ledger.tokens_per_s


def model_card(limits: RequestLimits, created_s: int) -> Model:
    """An entry of ``/v1/models``; ``root``, ``parent`` and ``max_model_len``, the context, are vLLM's names."""
    return {
        "id": limits.model_name,
        "object": "model",
        "created": created_s,
        "owned_by": "outrider",
        "root": limits.model_name,
        "parent": None,
        "max_model_len": limits.max_context_tokens,
        "outrider": {
            "sampling": _default_sampling(limits),
            "max_window": limits.k_max,
            "protocols": limits.protocols,
            "slo_classes": {slo.name: slo.tokens_per_s or None for slo in limits.slo_classes},
        },
    }


def _default_sampling(limits: RequestLimits) -> dict[str, float]:
    """Defaults of requests without parameters, as ``usage`` would report them, and the default length of a chat."""
    filled: dict[str, Any] = dict(limits.defaults.params)
    most = limits.defaults.max_tokens
    return sampling_of(SamplingParams(**filled)) | ({} if most is None else {"max_tokens": most})

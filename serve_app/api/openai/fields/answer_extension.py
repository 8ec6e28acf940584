"""What an answer tells beside choices and usage, once all of it was made."""

from collections.abc import Callable, Iterable, Sequence

from outrider.contracts.requests import RoundStats
from outrider.contracts.slo import SloClass
from serve_app.answers import AnswerExtension, ServiceTier, SpeculativeDecoding
from serve_app.api.openai.writing.choice_reader import ChoiceReader


def answer_extension(
    readers: Sequence[ChoiceReader], tier: Callable[[Iterable[SloClass]], ServiceTier | None]
) -> AnswerExtension:
    """What an answer tells beside its usage once all of it was made; ``tier`` by the classes it was given."""
    stats = sum((reader.stats for reader in readers), RoundStats())
    extension: AnswerExtension = {}
    if (given := tier(reader.slo for reader in readers)) is not None:
        extension["service_tier"] = given
    if stats.speculative_rounds:
        extension["metrics"] = {"speculative_decoding": speculative_decoding(stats)}
    return extension


def speculative_decoding(stats: RoundStats) -> SpeculativeDecoding:
    """A response's drafts under vLLM's names, for what reads them (vllm#48915)."""
    verified = stats.drafted_tokens - stats.trimmed_tokens
    return {
        "mean_acceptance_length": 1.0 + stats.accepted_tokens / stats.speculative_rounds,
        "draft_acceptance_rate": stats.accepted_tokens / verified if verified else 0.0,
        "acceptance_histogram": list(stats.kept_drafts),
        "num_spec_steps": stats.speculative_rounds,
        "num_accepted_draft_tokens": stats.accepted_tokens,
        "num_draft_tokens": verified,
    }

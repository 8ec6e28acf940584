"""What every server is asked, and what vLLM's own says of its speculation."""

from collections.abc import Mapping

import httpx
from prometheus_client.parser import text_string_to_metric_families

from bench.harness.prompts import PROMPTS
from bench.load.plan import PlannedRequest

_PATH = "/v1/chat/completions"
_DRAFTED, _ACCEPTED = "vllm:spec_decode_num_draft_tokens_total", "vllm:spec_decode_num_accepted_tokens_total"


def chats(count: int, tokens: int, session: str, extra: Mapping[str, object]) -> tuple[PlannedRequest, ...]:
    """Greedy chats of exactly ``tokens`` output tokens, the same questions in the same order each time.

    Args:
        count: how many.
        tokens: of each answer.
        session: begins every chat, so that no KV of another session's chats is met.
        extra: put into every body.
    """
    return tuple(_chat(number, tokens, session, extra) for number in range(count))


def _chat(number: int, tokens: int, session: str, extra: Mapping[str, object]) -> PlannedRequest:
    messages = [
        {"role": "system", "content": f"{session}.{number}: you are a helpful assistant."},
        {"role": "user", "content": PROMPTS[number % len(PROMPTS)]},
    ]
    body = {"messages": messages, "temperature": 0.0, "max_tokens": tokens, "ignore_eos": True, **extra}
    return PlannedRequest(0.0, _PATH, body)


async def drafted_and_accepted(client: httpx.AsyncClient) -> tuple[float, float]:
    """Draft tokens of a vLLM server so far, and those accepted; zeros where it does not speculate or is no vLLM."""
    response = await client.get("/metrics")
    return read_drafted_and_accepted(response.text) if response.is_success else (0.0, 0.0)


def read_drafted_and_accepted(exposition: str) -> tuple[float, float]:
    """The same of a metrics page."""
    samples = [sample for family in text_string_to_metric_families(exposition) for sample in family.samples]
    drafted, accepted = (
        sum(sample.value for sample in samples if sample.name == name) for name in (_DRAFTED, _ACCEPTED)
    )
    return float(drafted), float(accepted)

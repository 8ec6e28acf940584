"""Requests to every server, and vLLM's own speculation metrics."""

from collections.abc import Sequence

import httpx
from prometheus_client.parser import text_string_to_metric_families

from lab.bench.harness.mix import MixedPrompt
from lab.bench.harness.server import Arm
from lab.bench.load.plan import PlannedRequest

_PATH = "/v1/chat/completions"
_DRAFTED, _ACCEPTED = "vllm:spec_decode_num_draft_tokens_total", "vllm:spec_decode_num_accepted_tokens_total"


def chats(
    prompts: Sequence[MixedPrompt], tokens: int, session: str, arm: Arm, temperature: float = 0.0
) -> tuple[PlannedRequest, ...]:
    """Chats of exactly ``tokens`` output tokens, one for each prompt.

    ``session`` is the prefix of every chat, so that no server finds KV of another session. ``arm`` adds fields to every
    body; above temperature 0 all arms get the same seeds, if they take any.
    """
    return tuple(_chat(number, one, tokens, session, arm, temperature) for number, one in enumerate(prompts))


def _chat(number: int, prompt: MixedPrompt, tokens: int, session: str, arm: Arm, temperature: float) -> PlannedRequest:
    messages = [
        {"role": "system", "content": f"{session}.{number}: you are a helpful assistant."},
        {"role": "user", "content": prompt.text},
    ]
    drawn = {"seed": number} if temperature and arm.takes_seeds else {}
    settings = {"temperature": temperature, "top_p": 1.0, "max_tokens": tokens, "ignore_eos": True}
    return PlannedRequest(0.0, _PATH, {"messages": messages, **settings, **drawn, **arm.extra}, prompt.kind)


async def drafted_and_accepted(client: httpx.AsyncClient) -> tuple[float, float]:
    """Draft and accepted tokens of a vLLM server so far; zeros if it does not speculate or is not vLLM."""
    response = await client.get("/metrics")
    return read_drafted_and_accepted(response.text) if response.is_success else (0.0, 0.0)


def read_drafted_and_accepted(exposition: str) -> tuple[float, float]:
    """Read both from a metrics page."""
    samples = [sample for family in text_string_to_metric_families(exposition) for sample in family.samples]
    drafted, accepted = (sum(one.value for one in samples if one.name == name) for name in (_DRAFTED, _ACCEPTED))
    return float(drafted), float(accepted)

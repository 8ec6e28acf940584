"""Semantic verification through HTTP: each token is the target's own behind those before it, or a told override."""

from typing import Any

import httpx
import pytest
import torch

from outrider.models.loading import LoadedModel
from outrider.training.traces import prompt_ids
from tests.cluster.prompts import CHATS
from tests.cluster.reference import ids_of
from tests.cluster.served import MODEL, TOKENS, Service

UPLOADS = ("wisv_full", "wisv_selective")
_MOST_ASKED = 10  # times for a response with a draft


def semantic(service: Service, prompt: list[int], protocol: str, window: int) -> dict[str, Any]:
    """A greedy response with a draft, whose mismatches are judged."""
    options = {"verification": "semantic", "protocol": protocol, "window": window}
    for _ in range(_MOST_ASKED):
        answer = service.complete(prompt, ignore_eos=True, temperature=0, logprobs=0, outrider=options)
        if answer["usage"]["outrider"]["protocols"].get(protocol):
            return answer
    raise AssertionError(f"nobody drafted for any of {_MOST_ASKED} responses by {protocol}")


def told_and_own(target: LoadedModel, prompt: list[int], tokens: list[int]) -> list[int]:
    """Where a response is not what the target would have said behind what is before it."""
    with torch.inference_mode():
        logits = target.model(input_ids=torch.tensor([[*prompt, *tokens]])).logits[0, len(prompt) - 1 : -1]
    own = logits[:, : target.vocab_size].argmax(dim=-1).tolist()
    return [i for i, token_id in enumerate(tokens) if token_id != own[i]]


@pytest.mark.parametrize("protocol", UPLOADS)
def test_what_is_not_the_target_s_own_is_told(service: Service, target: LoadedModel, protocol: str) -> None:
    passed = 0
    for chat in CHATS[:3]:
        prompt = prompt_ids(target.tokenizer, chat)
        answer = semantic(service, prompt, protocol, window=6)
        names = answer["choices"][0]["logprobs"]["tokens"]
        usage = answer["usage"]["outrider"]
        tokens = ids_of(target, names)
        assert len(tokens) == TOKENS
        assert told_and_own(target, prompt, tokens) == usage["overrides"][0]
        assert (usage["verification"], usage["lossless"]) == ("semantic", not usage["overrides"][0])
        passed += len(usage["overrides"][0])
    assert passed > 0


def test_nobody_else_is_judged(service: Service) -> None:
    answer = service.complete("Once upon a time", temperature=0, ignore_eos=True)
    assert (answer["usage"]["outrider"]["verification"], answer["usage"]["outrider"]["lossless"]) == ("lossless", True)


@pytest.mark.parametrize(
    ("temperature", "options", "needed"),
    [
        (0.7, {"verification": "semantic"}, "lossless, or temperature 0"),
        (0.0, {"protocol": "wisv_full"}, "a lossless one, or outrider.verification semantic"),
        (0.0, {"verification": "loose"}, "lossless"),
    ],
)
def test_what_cannot_be_judged_is_refused(
    service: Service, temperature: float, options: dict[str, str], needed: str
) -> None:
    body = {"model": MODEL, "prompt": "Once", "temperature": temperature, "outrider": options}
    answer = httpx.post(f"{service.url}/v1/completions", json=body, timeout=60)
    assert answer.status_code == httpx.codes.BAD_REQUEST
    assert needed in answer.json()["error"]["message"]

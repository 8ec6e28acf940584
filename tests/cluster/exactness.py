"""Through HTTP, a service answers token for token what its target alone answers."""

import random
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from outrider.contracts.requests import SamplingParams
from outrider.models.loading import LoadedModel
from outrider.training.traces import prompt_ids
from tests.cluster.prompts import CHATS, COMPLETIONS
from tests.cluster.reference import shown
from tests.cluster.served import Service

TOKENS = 32
CLIENTS = 8  # more than there is KV for; half as many find room
GREEDY = SamplingParams(temperature=0.0)
# What the target alone says: a prompt's tokens, how they are drawn, how many at most.
Alone = Callable[[Sequence[int], SamplingParams, int], list[int]]


def answer(service: Service, prompt: str | list[int], window: int, **extra: object) -> tuple[str, dict[str, Any]]:
    """Complete a prompt; returns its text and usage."""
    reply = service.complete(prompt, max_tokens=TOKENS, outrider={"window": window}, **extra)
    return reply["choices"][0]["text"], reply["usage"]


def check_greedy(service: Service, target: LoadedModel, alone: Alone, clients: int = CLIENTS) -> None:
    """A dozen prompts, several at a time, windows 1..16, any protocols, KV for a few of them, three drafters."""
    rng = random.Random(0)
    prompts = [prompt_ids(target.tokenizer, text) for text in CHATS]
    prompts += [target.tokenizer(text)["input_ids"] for text in COMPLETIONS]
    prompts = prompts[1::2]  # the long one among them
    windows = [rng.randint(1, service.config.speculation.k_max) for _ in prompts]
    with ThreadPoolExecutor(clients) as pool:
        answers = list(pool.map(lambda p, w: answer(service, p, w, temperature=0), prompts, windows))
    accepted = 0
    for prompt, window, (text, usage) in zip(prompts, windows, answers, strict=True):
        expected = alone(prompt, GREEDY, TOKENS)
        assert (text, usage["completion_tokens"]) == (shown(target, expected), len(expected)), f"window {window}"
        accepted += usage["outrider"]["accepted_tokens"]
    assert accepted > len(prompts), "the drafters took part"
    assert service.get("/ready")["kv"]["evictions"] > 0, "generations lost their KV to each other"


def check_seeded(service: Service, target: LoadedModel, alone: Alone, temperature: float, top_p: float) -> None:
    """The same for every window and company."""
    params = {"temperature": temperature, "top_p": top_p}
    prompts = [prompt_ids(target.tokenizer, text) for text in CHATS[:3]]
    seeds = [11, 2**63 - 1, -5]  # negative ones count as unsigned 64-bit numbers
    by_itself = [answer(service, prompts[0], window, seed=seeds[0], **params) for window in (0, 5)]
    jobs = [(p, window, seed) for p, seed in zip(prompts, seeds, strict=True) for window in (0, 1, 4, 16)]
    with ThreadPoolExecutor(CLIENTS // 2) as pool:
        together = list(pool.map(lambda job: answer(service, job[0], job[1], seed=job[2], **params), jobs))
    for i, (prompt, seed) in enumerate(zip(prompts, seeds, strict=True)):
        expected = alone(prompt, SamplingParams(temperature, top_p=top_p, seed=seed % 2**64), TOKENS)
        outputs = [*together[4 * i : 4 * i + 4], *(by_itself if i == 0 else [])]
        for text, usage in outputs:
            assert (text, usage["completion_tokens"]) == (shown(target, expected), len(expected))
            assert set(usage["outrider"]["protocols"]) <= {"none", "token_ids", "lookup"}, (
                "others would draw other tokens"
            )


def check_penalised(service: Service, target: LoadedModel, alone: Alone) -> None:
    """Penalties of a row count the draft tokens before it, min-p and top-k see penalised logits."""
    prompt = prompt_ids(target.tokenizer, CHATS[0])
    extra = {
        "temperature": 0.8,
        "seed": 3,
        "min_p": 0.02,
        "top_k": 50,
        "repetition_penalty": 1.1,
        "presence_penalty": 0.4,
        "frequency_penalty": 0.3,
        "logit_bias": {"28": -5, "339": 2.5},
    }
    params = SamplingParams(0.8, 1.0, 50, 0.02, 1.1, 0.4, 0.3, ((28, -5.0), (339, 2.5)), seed=3)
    expected = shown(target, alone(prompt, params, TOKENS))
    with ThreadPoolExecutor(CLIENTS // 2) as pool:
        answers = list(pool.map(lambda window: answer(service, prompt, window, **extra), (0, 1, 5, 16)))
    assert [text for text, _ in answers] == [expected] * 4

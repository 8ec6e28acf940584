"""A whole cluster on the vLLM engine: through HTTP it answers what the target alone answers, and survives its loss."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest
import torch

from bench.harness.prompts import chat_ids
from outrider.contracts.requests import SamplingParams
from outrider.models.loading import LoadedModel
from outrider.text.tokens import TokenTable
from serve_app.metrics import KV_BLOCKS
from tests.cluster.prompts import CHATS, COMPLETIONS
from tests.cluster.reference import greedy, sampled, shown
from tests.cluster.served import MODEL, Served, eventually, served
from tests.cluster.streams import streams

TOKENS = 24
KV_BLOCK_TOKENS = 32
WITHIN_S = 180.0
CHOICES: tuple[dict[str, object], ...] = (
    {"protocol": "token_ids", "window": 6},
    {"protocol": "token_ids", "window": 3, "expansion": [2, 2, 1]},
    {"protocol": "tslt_tree", "window": 3, "expansion": [3, 2, 1]},
    {"protocol": "dssd", "window": 4},
    {"protocol": "dssd_candidates", "window": 4},
    {"protocol": "dsd", "window": 4},
    {"window": 0},
)


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """One verifier with KV for a few generations at a time, two drafters."""
    settings = {
        "verifiers": {"engine": "vllm", "kv_budget_mib": 20},
        "drafters": [{"name": "edge", "count": 2}],
    }
    with served(tmp_path_factory.mktemp("vllm"), settings) as running:
        eventually(lambda: running.idle(1, 2), WITHIN_S)
        yield running


def complete(service: Served, **request: object) -> Any:
    """One completion."""
    body = {"model": MODEL, "max_tokens": TOKENS, **request}
    response = httpx.post(f"{service.url}/v1/completions", json=body, timeout=300)
    assert response.status_code == httpx.codes.OK, response.text
    return response.json()


def under_each(service: Served, choices: tuple[dict[str, object], ...], **request: object) -> list[Any]:
    """The same completion under each choice of ``outrider``, all at once."""
    with ThreadPoolExecutor(len(choices)) as pool:
        return list(pool.map(lambda choice: complete(service, outrider=choice, **request), choices))


def test_greedy_output_is_the_targets_own_under_every_protocol(service: Served, target: LoadedModel) -> None:
    prompt = chat_ids(target.tokenizer, CHATS[0])
    expected = shown(target, greedy(target, prompt, TOKENS))
    answers = under_each(service, CHOICES, prompt=prompt, temperature=0, ignore_eos=True)
    for choice, answer in zip(CHOICES, answers, strict=True):
        usage = answer["usage"]["outrider"]
        assert answer["choices"][0]["text"] == expected, choice
        assert answer["usage"]["completion_tokens"] == TOKENS
        assert set(usage["protocols"]) - {"none"} == {choice[name] for name in ("protocol",) if name in choice}
        assert (usage["accepted_tokens"] > 0) == (choice["window"] != 0), choice
        assert usage["lossless"] is True


def test_seeded_output_is_the_targets_own_whoever_shares_the_batch(service: Served, target: LoadedModel) -> None:
    """More prompts than their KV has room for."""
    prompts = [chat_ids(target.tokenizer, text) for text in CHATS[:4]]
    prompts += [target.tokenizer(text)["input_ids"] for text in COMPLETIONS[:4]]

    def ask(i: int) -> Any:
        drawn = {"temperature": 0.8, "top_p": 0.95, "seed": i, "outrider": {"window": i % 5}}
        return complete(service, prompt=prompts[i], **drawn)

    with ThreadPoolExecutor(len(prompts)) as pool:
        answers = list(pool.map(ask, range(len(prompts))))
    for i, (prompt, answer) in enumerate(zip(prompts, answers, strict=True)):
        expected = sampled(target, prompt, SamplingParams(0.8, top_p=0.95, seed=i), TOKENS)
        assert answer["choices"][0]["text"] == shown(target, expected), i
        assert answer["usage"]["completion_tokens"] == len(expected)


def test_what_ratio_protocols_sample_is_scored_by_the_target(service: Served, target: LoadedModel) -> None:
    """Whoever drew it: the device (a correction), the drafter or the target."""
    prompt = chat_ids(target.tokenizer, CHATS[1])
    table = TokenTable(target.tokenizer.backend_tokenizer)
    ids = {table.name(i): i for i in range(target.vocab_size)}
    choices = CHOICES[2:6]
    answers = under_each(service, choices, prompt=prompt, temperature=1, logprobs=1, ignore_eos=True)
    for choice, answer in zip(choices, answers, strict=True):
        scored = answer["choices"][0]["logprobs"]
        tokens = [ids[name] for name in scored["tokens"]]
        assert len(tokens) == TOKENS
        assert scored["token_logprobs"] == pytest.approx(raw_logprobs(target, prompt, tokens), abs=1e-3), choice


@torch.inference_mode()
def raw_logprobs(target: LoadedModel, prompt: list[int], tokens: list[int]) -> list[float]:
    """The target's raw log-probability of each token behind the prompt."""
    logits = target.model(input_ids=torch.tensor([[*prompt, *tokens]])).logits[0, len(prompt) - 1 : -1]
    rows = logits[:, : target.vocab_size].log_softmax(-1)
    return [float(row[token]) for row, token in zip(rows, tokens, strict=True)]


def test_prefixes_are_cached_and_memory_is_told(service: Served) -> None:
    text = "Once upon a time there was a carriage with outriders. " * 8
    first, again = (complete(service, prompt=text, temperature=0)["usage"] for _ in range(2))
    assert again["prompt_tokens_details"]["cached_tokens"] >= first["prompt_tokens"] - KV_BLOCK_TOKENS
    eventually(lambda: service.idle(1, 2), WITHIN_S)
    [report] = service.status()["coordinators"]
    assert report["kv"]["block_tokens"] == KV_BLOCK_TOKENS
    assert report["kv"]["evictions"] > 0
    cached = report["kv"]["cached_blocks"]
    assert cached > 0
    eventually(lambda: exported(service, f"ray_{KV_BLOCKS.name}", 'state="cached"') == cached, WITHIN_S)


def exported(service: Served, name: str, label: str) -> float:
    """The sum over a metric's series, as Ray exports it for Prometheus."""
    lines = httpx.get(service.metrics_url, timeout=60).text.splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith(f"{name}{{") and label in line)


def test_a_killed_verifier_comes_back_and_the_answers_stay_the_same(service: Served) -> None:
    clients, tokens = 4, 40
    undisturbed = streams(service.url, clients=clients, tokens=tokens)
    before = service.pids("VerifierActor")
    responses = streams(service.url, lambda: service.kill("VerifierActor"), clients=clients, tokens=tokens)
    assert [response.text for response in responses] == [response.text for response in undisturbed]
    eventually(lambda: service.idle(1, 2), WITHIN_S)
    assert len(service.pids("VerifierActor")) == len(before) == 1
    assert service.pids("VerifierActor") != before

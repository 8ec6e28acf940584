"""A whole cluster on the vLLM engine: through HTTP it answers what the target alone answers, and survives its loss."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest

from outrider.config.reading import load_config
from outrider.contracts.requests import SamplingParams
from outrider.models.loading import LoadedModel
from outrider.training.traces import prompt_ids
from serve_app.metrics import KV_BLOCKS
from tests.cluster.prompts import CHATS, COMPLETIONS
from tests.cluster.reference import greedy, ids_of, sampled, scores, shown
from tests.cluster.served import TOKENS, Service, eventually, started
from tests.cluster.streams import streams

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
def service() -> Iterator[Service]:
    """One verifier with KV for a few generations at a time, two drafters."""
    config = load_config()
    verifiers = replace(config.verifiers, engine="vllm", kv_budget_mib=16)
    with started(replace(config, verifiers=verifiers, drafters=(replace(config.drafters[0], count=2),))) as service:
        yield service


def test_greedy_output_is_the_targets_own_under_every_protocol(service: Service, target: LoadedModel) -> None:
    prompt = prompt_ids(target.tokenizer, CHATS[0])
    expected = shown(target, greedy(target, prompt, TOKENS))
    answers = service.under_each(CHOICES, prompt, temperature=0, ignore_eos=True)
    for choice, answer in zip(CHOICES, answers, strict=True):
        usage = answer["usage"]["outrider"]
        assert answer["choices"][0]["text"] == expected, choice
        assert answer["usage"]["completion_tokens"] == TOKENS
        assert set(usage["protocols"]) - {"none"} == {choice[name] for name in ("protocol",) if name in choice}
        assert (usage["accepted_tokens"] > 0) == (choice["window"] != 0), choice
        assert usage["lossless"] is True


def test_seeded_output_is_the_targets_own_whoever_shares_the_batch(service: Service, target: LoadedModel) -> None:
    """More prompts than their KV has room for."""
    prompts = [prompt_ids(target.tokenizer, text) for text in CHATS[:4]]
    prompts += [target.tokenizer(text)["input_ids"] for text in COMPLETIONS[:4]]

    def ask(i: int) -> Any:
        drawn = {"temperature": 0.8, "top_p": 0.95, "seed": i, "outrider": {"window": i % 5}}
        return service.complete(prompts[i], **drawn)

    with ThreadPoolExecutor(len(prompts)) as pool:
        answers = list(pool.map(ask, range(len(prompts))))
    for i, (prompt, answer) in enumerate(zip(prompts, answers, strict=True)):
        expected = sampled(target, prompt, SamplingParams(0.8, top_p=0.95, seed=i), TOKENS)
        assert answer["choices"][0]["text"] == shown(target, expected), i
        assert answer["usage"]["completion_tokens"] == len(expected)


def test_what_ratio_protocols_sample_is_scored_by_the_target(service: Service, target: LoadedModel) -> None:
    """Whoever drew it: the device (a correction), the drafter or the target."""
    prompt = prompt_ids(target.tokenizer, CHATS[1])
    choices = CHOICES[2:6]
    answers = service.under_each(choices, prompt, temperature=1, logprobs=1, ignore_eos=True)
    for choice, answer in zip(choices, answers, strict=True):
        scored = answer["choices"][0]["logprobs"]
        tokens = ids_of(target, scored["tokens"])
        assert len(tokens) == TOKENS
        assert scored["token_logprobs"] == pytest.approx(scores(target, prompt, tokens), abs=1e-3), choice


def test_prefixes_are_cached_and_memory_is_told(service: Service) -> None:
    text = "Once upon a time there was a carriage with outriders. " * 8
    first, again = (service.complete(text, temperature=0)["usage"] for _ in range(2))
    assert again["prompt_tokens_details"]["cached_tokens"] >= first["prompt_tokens"] - KV_BLOCK_TOKENS
    with ThreadPoolExecutor(4) as pool:  # any three of them need more than there is KV for
        list(pool.map(lambda i: service.complete(f"{i}. {text}", temperature=0, ignore_eos=True), range(4)))
    service.check_released()
    (report,) = service.get("/status")["coordinators"]
    assert report["kv"]["block_tokens"] == KV_BLOCK_TOKENS
    assert report["kv"]["evictions"] > 0
    cached = report["kv"]["cached_blocks"]
    assert cached > 0
    eventually(lambda: service.exported(KV_BLOCKS, state="cached") == cached, WITHIN_S)


@pytest.mark.long
def test_a_killed_verifier_comes_back_and_the_answers_stay_the_same(service: Service) -> None:
    clients, tokens = 4, 40
    undisturbed = streams(service.url, clients=clients, tokens=tokens)
    before = service.pids("VerifierActor")
    responses = streams(service.url, lambda: service.kill("VerifierActor"), clients=clients, tokens=tokens)
    assert [response.text for response in responses] == [response.text for response in undisturbed]
    assert len(service.events("round_lost")) > 0, "no round was lost with it"
    service.check_released()
    assert len(service.pids("VerifierActor")) == len(before) == 1
    assert service.pids("VerifierActor") != before

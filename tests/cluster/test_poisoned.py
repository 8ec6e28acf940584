"""A request at which engines fail, among others: it gets its own error, and the others the target's own tokens."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import httpx
import pytest

from outrider.contracts.requests import SamplingParams
from outrider.models.loading import LoadedModel
from outrider.training.traces import prompt_ids
from serve_app.metrics import PASS_FAULTS
from tests.cluster.poison import FAILS_DRAFTERS, FAILS_VERIFIERS, KILLS_VERIFIERS
from tests.cluster.prompts import CHATS
from tests.cluster.reference import sampled, shown
from tests.cluster.served import PLAIN, Service, eventually
from tests.cluster.streams import TOKENS, body, streams

CLIENTS = 5  # and the poisoned one
WITHIN_S = 180.0


@pytest.fixture(scope="module")
def truth(target: LoadedModel) -> list[str]:
    """What the target alone says to each client, behind its end as well."""
    endless, texts = replace(target, eos_token_ids=()), list[str]()
    for i in range(CLIENTS):
        prompt = prompt_ids(target.tokenizer, CHATS[i % len(CHATS)])
        params = SamplingParams(0.8 * (i % 2), seed=i)
        texts.append(shown(target, sampled(endless, prompt, params, TOKENS)))
    return texts


def poisoned(service: Service, seed: int) -> httpx.Response:
    """A request like the others', but for its seed, and drafted for whether or not that pays."""
    request = {**body(1), "seed": seed, "outrider": {"window": 4}, "stream": False, "stream_options": None}
    return httpx.post(f"{service.url}/v1/chat/completions", json=request, timeout=300, verify=PLAIN)


def beside(service: Service, seed: int) -> tuple[httpx.Response, list[Any]]:
    """What the poisoned one is answered, and what the others, in the middle of whose responses it comes."""
    asked: list[httpx.Response] = []
    with ThreadPoolExecutor(1) as pool:
        responses = streams(
            service.url, lambda: asked.append(pool.submit(poisoned, service, seed).result()), clients=CLIENTS
        )
    return asked[0], responses


@pytest.mark.long
@pytest.mark.parametrize("seed", [FAILS_VERIFIERS, KILLS_VERIFIERS])
def test_one_at_which_the_verifier_fails_gets_an_error_of_its_own(
    service: Service, truth: list[str], seed: int
) -> None:
    before, resumed = service.pids("VerifierActor"), len(service.events("response_resumed"))
    failed = len(service.events("block_failed")), len(service.events("verifier_engine_lost"))
    answer, responses = beside(service, seed)
    assert [response.text for response in responses] == truth
    assert answer.status_code == httpx.codes.INTERNAL_SERVER_ERROR, answer.text
    assert answer.json()["error"]["code"] == "internal_error"
    assert "poisoned" not in answer.text, "what is wrong with us is no client's business"
    assert len(service.events("response_resumed")) == resumed, "it was not carried to another coordinator"
    if seed == FAILS_VERIFIERS:
        assert len(service.events("block_failed")) == failed[0] + 1
        assert service.pids("VerifierActor") == before, "nobody had to die of it"
        eventually(lambda: service.exported(PASS_FAULTS, kind="pass") >= 2, WITHIN_S)
    else:
        assert len(service.events("verifier_engine_lost")) >= failed[1] + 2, "it was alone with it, twice"
        assert service.pids("VerifierActor") != before
    service.check_released()


def test_one_at_which_drafters_fail_is_made_by_the_target_alone(service: Service, truth: list[str]) -> None:
    before, ended = service.pids("DrafterActor"), len(service.events("drafting_ended"))
    answer, responses = beside(service, FAILS_DRAFTERS)
    assert [response.text for response in responses] == truth
    assert answer.status_code == httpx.codes.OK, answer.text
    assert answer.json()["usage"]["completion_tokens"] == TOKENS
    assert len(service.events("drafting_ended")) == ended + 1
    assert service.pids("DrafterActor") == before, "no drafter was ended for it"
    eventually(lambda: len(service.drafters("ready")) == len(before), WITHIN_S)
    service.check_released()

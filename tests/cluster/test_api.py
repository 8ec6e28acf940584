"""The API through a real cluster: it answers what the target alone would, and its errors explain themselves."""

from collections import Counter
from typing import Any

import httpx
import pytest
from openai import OpenAI

from outrider.contracts.requests import SamplingParams
from outrider.models.loading import LoadedModel
from outrider.selection.modes import DEFAULT_MODES
from outrider.training.traces import prompt_ids
from tests.cluster.prompts import CHATS, COMPLETIONS
from tests.cluster.reference import greedy, raw_logprobs, sampled, scores, shown
from tests.cluster.served import MODEL, TOKENS, Service

PROMPT = CHATS[0]


@pytest.fixture(scope="module")
def client(service: Service) -> OpenAI:
    """OpenAI's own client."""
    return OpenAI(base_url=f"{service.url}/v1", api_key="none", max_retries=0, timeout=300)


@pytest.mark.parametrize("window", [0, 5])
def test_logprobs_are_the_targets_raw_ones(client: OpenAI, target: LoadedModel, window: int) -> None:
    """Whatever the request does to the distribution it samples from, and whoever proposed a token."""
    answer = client.chat.completions.create(
        model=MODEL,
        messages=[{"role": "user", "content": PROMPT}],
        max_tokens=TOKENS,
        temperature=0.7,
        top_p=1.0,
        seed=5,
        frequency_penalty=0.5,
        logprobs=True,
        top_logprobs=3,
        extra_body={"outrider": {"window": window}, "top_k": 40, "ignore_eos": True},
    )
    prompt = prompt_ids(target.tokenizer, PROMPT)
    params = SamplingParams(0.7, top_k=40, frequency_penalty=0.5, seed=5)
    tokens = sampled(target, prompt, params, TOKENS)
    expected = raw_logprobs(target, [*prompt, *tokens])[len(prompt) - 1 :]
    logprobs = answer.choices[0].logprobs
    assert logprobs is not None
    assert logprobs.content is not None
    assert len(logprobs.content) == len(tokens) == TOKENS
    for row, token, entry in zip(expected, tokens, logprobs.content, strict=True):
        assert entry.logprob == pytest.approx(float(row[token]), abs=1e-3)
        assert entry.bytes is not None
        best = row.topk(3)
        assert [top.logprob for top in entry.top_logprobs] == pytest.approx(best.values.tolist(), abs=1e-3)
    together = b"".join(bytes(entry.bytes or ()) for entry in logprobs.content)
    assert together.decode(errors="replace") == answer.choices[0].message.content


def test_echo_with_logprobs_scores_the_prompt(service: Service, target: LoadedModel) -> None:
    answer = service.complete(COMPLETIONS[0], echo=True, logprobs=1, max_tokens=0)
    ids = target.tokenizer(COMPLETIONS[0])["input_ids"]
    choice = answer["choices"][0]
    assert choice["text"] == COMPLETIONS[0]
    assert choice["logprobs"]["token_logprobs"][0] is None
    assert choice["logprobs"]["token_logprobs"][1:] == pytest.approx(scores(target, ids[:1], ids[1:]), abs=1e-3)
    assert answer["usage"]["completion_tokens"] == 0


def test_several_choices_of_several_prompts(service: Service) -> None:
    prompts = list(COMPLETIONS[:2])
    together = service.complete(prompts, n=2, seed=9, temperature=0.9)
    texts = [choice["text"] for choice in together["choices"]]
    assert [choice["index"] for choice in together["choices"]] == [0, 1, 2, 3]
    alone = [service.complete(prompt, seed=9, temperature=0.9)["choices"][0]["text"] for prompt in prompts]
    assert texts[0::2] == alone
    assert texts[1] != texts[0]
    assert together["usage"]["completion_tokens"] <= 4 * TOKENS


@pytest.fixture(scope="module")
def text(target: LoadedModel) -> str:
    """The target's own answer."""
    return shown(target, greedy(target, prompt_ids(target.tokenizer, PROMPT), 60))


@pytest.mark.parametrize("window", [0, 1, 4, 16])
def test_a_stop_string_across_tokens_and_blocks_ends_it_at_once(
    service: Service, target: LoadedModel, text: str, window: int
) -> None:
    prompt = prompt_ids(target.tokenizer, PROMPT)
    stop = text[35:52]  # begins and ends inside tokens
    answer = service.complete(
        prompt, stop=["never said", stop], temperature=0, max_tokens=200, outrider={"window": window}
    )
    assert answer["choices"][0]["text"] == text[: text.index(stop)]
    assert answer["choices"][0]["finish_reason"] == "stop"
    assert answer["usage"]["completion_tokens"] < 30
    assert answer["usage"]["outrider"]["rounds"] <= answer["usage"]["completion_tokens"]


@pytest.mark.parametrize("max_tokens", [1, 2, 3, 5, 8])
def test_max_tokens_is_exact(service: Service, max_tokens: int) -> None:
    answer = service.complete(COMPLETIONS[0], max_tokens=max_tokens, temperature=0, outrider={"window": 4})
    assert answer["usage"]["completion_tokens"] == max_tokens
    assert answer["choices"][0]["finish_reason"] == "length"


def test_min_tokens_holds_the_end_back(service: Service, target: LoadedModel) -> None:
    prompt = prompt_ids(target.tokenizer, "What is the capital of France?")
    short = service.complete(prompt, temperature=0, max_tokens=60)
    assert short["choices"][0]["finish_reason"] == "stop"
    for window in (0, 4):
        longer = service.complete(prompt, temperature=0, max_tokens=60, min_tokens=30, outrider={"window": window})
        assert longer["usage"]["completion_tokens"] >= 30
        assert longer["choices"][0]["text"].startswith(short["choices"][0]["text"])


def test_a_conversations_next_turn_finds_its_kv(client: OpenAI) -> None:
    messages: list[Any] = [{"role": "user", "content": "Name three colours. " * 8}]
    first = client.chat.completions.create(model=MODEL, messages=messages, max_tokens=40, temperature=0)
    messages += [
        {"role": "assistant", "content": first.choices[0].message.content},
        {"role": "user", "content": "And three more?"},
    ]
    second = client.chat.completions.create(model=MODEL, messages=messages, max_tokens=8, temperature=0)
    assert first.usage is not None
    assert second.usage is not None
    assert second.usage.prompt_tokens_details is not None
    cached = second.usage.prompt_tokens_details.cached_tokens or 0
    assert cached >= first.usage.total_tokens - 2 * 16, "what was answered is part of it"


def test_spans_tell_who_proposed_the_text(service: Service) -> None:
    told = {"window": 4, "lookup": False, "spans": True}
    answer = service.complete(COMPLETIONS[2], temperature=0, max_tokens=60, outrider=told)
    spans = answer["choices"][0]["outrider"]["spans"]
    assert "".join(span["text"] for span in spans) == answer["choices"][0]["text"]
    assert {span["origin"] for span in spans} == {"accepted", "correction", "verifier"}
    usage = answer["usage"]["outrider"]
    assert sum(usage["protocols"].values()) == usage["rounds"]
    assert usage["lossless"] is True


def test_explained_choices_tell_what_else_was_considered(service: Service) -> None:
    answer = service.complete(COMPLETIONS[2], temperature=0, max_tokens=40, outrider={"explain": True, "window": 4})
    usage = answer["usage"]["outrider"]
    chosen = Counter(choice["chosen"]["protocol"] or "none" for choice in usage["choices"])
    assert chosen.total() >= usage["rounds"], "one for each round"
    assert chosen >= Counter(usage["protocols"]) - Counter(none=usage["rounds"]), "that may have lost its drafter"
    compared = [choice for choice in usage["choices"] if choice["runner_up"] is not None]
    assert compared, "there was a choice once the drafter was ready"
    for choice in compared:
        assert choice["runner_up"] != choice["chosen"]
        assert choice["reason"] in {"cheapest", "kept", "exploring", "looked_up"}
        assert min(choice["chosen"]["seconds_per_token"], choice["runner_up"]["seconds_per_token"]) > 0


def test_explained_choices_tell_where_the_verifier_decides(service: Service) -> None:
    answer = service.complete(COMPLETIONS[2], temperature=0, max_tokens=40, outrider={"explain": True})
    usage = answer["usage"]["outrider"]
    assert len(usage["choices"]) >= usage["rounds"]
    drafted = [choice["reason"] for choice in usage["choices"] if choice["chosen"]["protocol"] is not None]
    alone = [choice["reason"] for choice in usage["choices"] if choice["chosen"]["protocol"] is None]
    assert set(drafted) <= {"cheapest", "kept", "exploring", "looked_up"}
    assert set(alone) <= {"regime", "cheapest", "kept", "no_drafter", "last_token"}
    for regime in (coordinator["regime"] for coordinator in service.get("/status")["coordinators"]):
        assert regime["kept"] in DEFAULT_MODES
        assert [arm for arm, _ in regime["rewards"]] == list(DEFAULT_MODES)


BAD: list[tuple[str, str, dict[str, object] | bytes, int, str | None]] = [
    ("POST", "/v1/completions", {"prompt": "a", "temperature": 3}, 400, "temperature"),
    ("POST", "/v1/completions", {"prompt": "a", "n": 0}, 400, "n"),
    ("POST", "/v1/completions", {"prompt": "a", "logprobs": 100}, 400, "logprobs"),
    ("POST", "/v1/completions", {"prompt": "a", "min_tokens": 50, "max_tokens": 5}, 400, "min_tokens"),
    ("POST", "/v1/completions", {"prompt": "a", "suffix": "b"}, 400, "suffix"),
    ("POST", "/v1/completions", {"prompt": "a", "best_of": 4}, 400, "best_of"),
    ("POST", "/v1/completions", {"prompt": "word " * 3000}, 400, "prompt"),
    ("POST", "/v1/completions", {"prompt": "a", "outrider": {"protocol": "wisv"}}, 400, "outrider.protocol"),
    ("POST", "/v1/completions", {"prompt": "a", "outrider": {"window": 99}}, 400, "outrider.window"),
    ("POST", "/v1/completions", {"prompt": "a", "outrider": {"lookup": 99}}, 400, "outrider.lookup"),
    ("POST", "/v1/completions", {"prompt": "a", "outrider": {"expansion": [2]}}, 400, "outrider.expansion"),
    ("POST", "/v1/completions", {"prompt": "a", "model": "gpt-5"}, 404, "model"),
    ("POST", "/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}], "tools": [1]}, 400, "tools[0]"),
    ("POST", "/v1/completions", b"{", 400, None),
    ("POST", "/v1/completions", b'{"prompt": "' + b"a" * 5 * 2**20 + b'"}', 413, None),
    ("GET", "/v1/completions", {}, 405, None),
    ("GET", "/v1/nothing", {}, 404, None),
]


@pytest.mark.parametrize(("method", "path", "body", "status", "param"), BAD, ids=lambda value: str(value)[:30])
def test_errors_explain_themselves(
    service: Service, method: str, path: str, body: dict[str, object] | bytes, status: int, param: str | None
) -> None:
    request: dict[str, Any] = {"headers": {"X-Request-Id": "mine", "Content-Type": "application/json"}}
    if isinstance(body, bytes):
        request["content"] = body
    elif method == "POST":
        request["json"] = {"model": MODEL, **body}
    response = httpx.request(method, f"{service.url}{path}", timeout=60, **request)
    assert response.status_code == status, response.text
    error = response.json()["error"]
    assert error["message"]
    assert error["param"] == param
    assert response.headers["x-request-id"] == "mine"


def test_another_media_type_is_refused(service: Service) -> None:
    response = httpx.post(f"{service.url}/v1/completions", content=b"a=b", headers={"Content-Type": "text/plain"})
    assert response.status_code == httpx.codes.UNSUPPORTED_MEDIA_TYPE

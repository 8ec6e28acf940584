import json
from collections import Counter
from math import inf
from typing import Any

import httpx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.bench.load.client import Endpoint
from lab.bench.load.plan import PlannedRequest, arrivals_s, mixed_requests, plan_load
from serve_app.api.openai.bodies import ChatBody, CompletionBody
from serve_app.api.openai.parsing import parse_body
from serve_app.api.service import RequestLimits

ENDPOINT = Endpoint(httpx.AsyncClient(), "m", timeout_s=1.0)
LIMITS = RequestLimits(
    model_name="m", max_context_tokens=8192, max_output_tokens=4096, vocab_size=49152, k_max=16, max_prompt_chars=10**6
)


def mixed_plan(
    requests: int, rate_per_s: float = 1.0, *, seed: int = 1, max_tokens: int = 64, **options: Any
) -> tuple[PlannedRequest, ...]:
    return plan_load(mixed_requests(requests, seed, max_tokens), rate_per_s, seed=seed, **options)


def lengths(requests: tuple[PlannedRequest, ...]) -> list[int]:
    return [length for request in requests if isinstance(length := request.body["max_tokens"], int)]


@given(
    seed=st.integers(0, 2**31), rate=st.floats(0.01, 100), requests=st.integers(1, 30), max_tokens=st.integers(1, 500)
)
def test_a_plan_is_fixed_by_its_seed(seed: int, rate: float, requests: int, max_tokens: int) -> None:
    plan = mixed_plan(requests, rate, seed=seed, max_tokens=max_tokens)
    assert plan == mixed_plan(requests, rate, seed=seed, max_tokens=max_tokens)
    assert len(plan) == requests
    assert all(1 <= length <= max_tokens for length in lengths(plan))
    times_s = [request.at_s for request in plan]
    assert times_s == sorted(times_s)
    assert times_s[0] > 0
    assert times_s[-1] == pytest.approx(requests / rate)


def test_another_seed_draws_another_load() -> None:
    one, other = (mixed_plan(20, seed=seed) for seed in (0, 1))
    assert [r.at_s for r in one] != [r.at_s for r in other]
    assert [r.body for r in one] != [r.body for r in other]


@pytest.mark.parametrize("rate_per_s", [0.2, 7.0])
def test_gaps_are_exponential(rate_per_s: float) -> None:
    gaps_s = np.sort(np.diff([0.0, *arrivals_s(4000, rate_per_s, 1.0, seed=5)]))
    expected = 1 - np.exp(-rate_per_s * gaps_s)
    found = np.arange(1, len(gaps_s) + 1) / len(gaps_s)
    # Kolmogorov-Smirnov at the 0.1 % level
    assert np.abs(found - expected).max() < 1.95 / np.sqrt(len(gaps_s))


@pytest.mark.parametrize("burstiness", [0.25, 1.0, 4.0])
def test_gaps_have_the_mean_of_the_rate_and_the_variance_of_the_burstiness(burstiness: float) -> None:
    gaps_s = np.diff([0.0, *arrivals_s(20_000, 2.0, burstiness, seed=3)])
    assert gaps_s.mean() == pytest.approx(0.5)
    assert gaps_s.var() == pytest.approx(0.5**2 / burstiness, rel=0.1)


def test_arrivals_are_those_that_vllm_draws() -> None:
    drawn = np.random.RandomState(7)  # vLLM draws from numpy's global state, gap by gap
    times_s = np.cumsum([drawn.gamma(shape=0.5, scale=1.0 / (2.0 * 0.5)) for _ in range(6)])
    assert arrivals_s(6, 2.0, 0.5, seed=7) == pytest.approx(list(times_s * 3.0 / times_s[-1]))


def test_an_infinite_rate_sends_all_at_once() -> None:
    assert arrivals_s(3, inf, 1.0, seed=0) == [0.0, 0.0, 0.0]


def test_requests_are_mixed() -> None:
    requests = mixed_plan(600, max_tokens=90)
    bodies = [request.body for request in requests]
    assert {request.path for request in requests} == {"/v1/chat/completions", "/v1/completions"}
    assert 0.4 < np.mean([body["temperature"] == 0.0 for body in bodies]) < 0.6
    assert 25 < np.median(lengths(requests)) < 35
    sizes = [len(json.dumps(body)) for body in bodies]
    assert min(sizes) < 200
    assert max(sizes) > 1500
    assert not any("outrider" in body for body in bodies)


def test_a_window_is_asked_for_by_every_request() -> None:
    plan = mixed_plan(10, window=0)
    assert all(request.body["outrider"] == {"window": 0} for request in plan)


def test_the_api_takes_every_request() -> None:
    for request in mixed_plan(200, seed=2, window=4):
        body = json.dumps(ENDPOINT.body(request)).encode()
        kind = ChatBody if request.path == "/v1/chat/completions" else CompletionBody
        assert parse_body(body, kind, LIMITS).max_tokens == request.body["max_tokens"]


def test_classes_are_asked_for_alike_often_and_change_nothing_else() -> None:
    names = ("fast", "slow", "free")
    plain, classed = (mixed_plan(600, 50.0, seed=4, classes=c) for c in ((), names))
    counted = Counter(request.slo_class for request in classed)
    assert set(counted) == set(names)
    assert min(counted.values()) > 160
    for before, after in zip(plain, classed, strict=True):
        assert (before.at_s, before.path, before.slo_class) == (after.at_s, after.path, "")
        assert after.body == {**before.body, "outrider": {"slo_class": after.slo_class}}


def test_a_class_is_named_beside_a_window() -> None:
    plan = mixed_plan(1, window=3, classes=("fast",))
    assert plan[0].body["outrider"] == {"window": 3, "slo_class": "fast"}

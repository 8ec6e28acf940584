import json
from collections import Counter

import httpx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.bench.load.client import Endpoint
from lab.bench.load.plan import PlannedRequest, plan_load
from serve_app.api.openai.bodies import ChatBody, CompletionBody
from serve_app.api.openai.parsing import parse_body
from serve_app.api.service import RequestLimits

ENDPOINT = Endpoint(httpx.AsyncClient(), "m", counting=False, timeout_s=1.0)
LIMITS = RequestLimits(
    model_name="m", max_context_tokens=8192, max_output_tokens=4096, vocab_size=49152, k_max=16, max_prompt_chars=10**6
)
seeds = st.tuples(st.integers(0, 2**32), st.integers(0, 10))


def lengths(requests: tuple[PlannedRequest, ...]) -> list[int]:
    return [length for request in requests if isinstance(length := request.body["max_tokens"], int)]


@given(seed=seeds, rate=st.floats(0.01, 100), requests=st.integers(1, 30), max_tokens=st.integers(1, 500))
def test_a_plan_is_fixed_by_its_seed(seed: tuple[int, ...], rate: float, requests: int, max_tokens: int) -> None:
    plan = plan_load(rate, seed=seed, max_tokens=max_tokens, requests=requests)
    assert plan == plan_load(rate, seed=seed, max_tokens=max_tokens, requests=requests)
    assert len(plan.requests) == requests
    assert plan.span_s == plan.requests[-1].at_s
    assert all(1 <= length <= max_tokens for length in lengths(plan.requests))
    times_s = [request.at_s for request in plan.requests]
    assert times_s == sorted(times_s)
    assert times_s[0] > 0


def test_another_seed_draws_another_load() -> None:
    one, other = (plan_load(1.0, seed=(0, index), max_tokens=64, requests=20) for index in (0, 1))
    assert [r.at_s for r in one.requests] != [r.at_s for r in other.requests]
    assert [r.body for r in one.requests] != [r.body for r in other.requests]


def test_a_duration_ends_a_plan() -> None:
    plan = plan_load(5.0, seed=(3,), max_tokens=64, duration_s=20.0)
    longer = plan_load(5.0, seed=(3,), max_tokens=64, duration_s=40.0)
    assert plan.span_s == 20.0
    assert plan.requests == tuple(request for request in longer.requests if request.at_s < 20.0)
    assert len(plan.requests) < len(longer.requests)


@pytest.mark.parametrize("rate_per_s", [0.2, 7.0])
def test_gaps_are_exponential(rate_per_s: float) -> None:
    plan = plan_load(rate_per_s, seed=(5,), max_tokens=64, requests=4000)
    gaps_s = np.sort(np.diff([0.0, *(request.at_s for request in plan.requests)]))
    expected = 1 - np.exp(-rate_per_s * gaps_s)
    found = np.arange(1, len(gaps_s) + 1) / len(gaps_s)
    # Kolmogorov-Smirnov at the 0.1 % level
    assert np.abs(found - expected).max() < 1.95 / np.sqrt(len(gaps_s))


def test_requests_are_mixed() -> None:
    requests = plan_load(1.0, seed=(1,), max_tokens=90, requests=600).requests
    bodies = [request.body for request in requests]
    assert {request.path for request in requests} == {"/v1/chat/completions", "/v1/completions"}
    assert 0.4 < np.mean([body["temperature"] == 0.0 for body in bodies]) < 0.6
    assert 25 < np.median(lengths(requests)) < 35
    sizes = [len(json.dumps(body)) for body in bodies]
    assert min(sizes) < 200
    assert max(sizes) > 1500
    assert not any("outrider" in body for body in bodies)


def test_a_window_is_asked_for_by_every_request() -> None:
    plan = plan_load(1.0, seed=(1,), max_tokens=64, requests=10, window=0)
    assert all(request.body["outrider"] == {"window": 0} for request in plan.requests)


def test_the_api_takes_every_request() -> None:
    for request in plan_load(1.0, seed=(2,), max_tokens=64, requests=200, window=4).requests:
        body = json.dumps(ENDPOINT.body(request)).encode()
        kind = ChatBody if request.path == "/v1/chat/completions" else CompletionBody
        assert parse_body(body, kind, LIMITS).max_tokens == request.body["max_tokens"]


def test_classes_are_asked_for_alike_often_and_change_nothing_else() -> None:
    names = ("fast", "slow", "free")
    plain, classed = (plan_load(50.0, seed=(4, 0), max_tokens=64, requests=600, classes=c) for c in ((), names))
    counted = Counter(request.slo_class for request in classed.requests)
    assert set(counted) == set(names)
    assert min(counted.values()) > 160
    for before, after in zip(plain.requests, classed.requests, strict=True):
        assert (before.at_s, before.path, before.slo_class) == (after.at_s, after.path, "")
        assert after.body == {**before.body, "outrider": {"slo_class": after.slo_class}}


def test_a_class_is_named_beside_a_window() -> None:
    plan = plan_load(1.0, seed=(1, 0), max_tokens=8, requests=1, window=3, classes=("fast",))
    assert plan.requests[0].body["outrider"] == {"window": 3, "slo_class": "fast"}

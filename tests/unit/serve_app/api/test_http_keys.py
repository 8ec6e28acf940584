"""API keys over HTTP: who is let in, what a key may ask for, what it is told, and what is counted in the end."""

from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from math import floor

import httpx
import pytest

from outrider.contracts.errors import GenerationFailedError
from outrider.tenants.keys import Keys, Tenant, parse_keys
from outrider.tenants.quotas import OverQuota, QuotaRequest, RateLeft
from serve_app.api.service import Pass
from tests.unit.serve_app.api.asking import CHAT, COMPLETION, ask, error_of, post
from tests.unit.serve_app.api.text_service import LIMITS, TextService

ALICE, BOB = "sk-alice-0123456789", "sk-bob-01234567890"
KEYS = parse_keys(
    f"""
keys:
  - {{name: alice, key: {ALICE}, slo: {{default: speed_2, allowed: [speed_2, speed_4]}}, max_choices: 2}}
  - {{name: bob, key: {BOB}, drafters: [lab]}}
""",
    "test",
)
WRONG = ("", "Bearer", "Bearer ", f"Basic {ALICE}", ALICE, f"Bearer {'x' * 10_000}", "Bearer sk-nobody-0123456")
GROUPS = replace(LIMITS, drafters={"lab": True, "street": False})


class CountingGate:
    """Lets everybody in with a key, until told otherwise; keeps what was asked and settled."""

    def __init__(self, keys: Keys = KEYS) -> None:
        self.keys = keys
        self.refusal: OverQuota | None = None
        self.entered, self.most_requests = 0, 1000
        self.asked: list[QuotaRequest] = []
        self.settled: list[int] = []

    async def enter(self, tenant: Tenant) -> OverQuota | None:
        """As many as there may be."""
        assert tenant in self.keys.tenants
        self.entered += 1
        return None if self.entered <= self.most_requests else OverQuota("requests_per_minute", 1, 1, 60)

    async def ask(self, tenant: Tenant, asked: QuotaRequest) -> Pass | OverQuota:
        """As told."""
        assert tenant.name == asked.tenant
        self.asked.append(asked)
        return self.refusal or self.settle

    async def left(self, tenant: Tenant) -> Mapping[str, RateLeft]:
        """Half of each."""
        rates = {"requests": tenant.requests_per_minute, "tokens": tenant.tokens_per_minute}
        return {name: RateLeft(rate, rate / 2, 30.0) for name, rate in rates.items() if rate is not None}

    def settle(self, tokens: int) -> None:
        """Keep it."""
        self.settled.append(tokens)


def service(**fields: object) -> tuple[TextService, CountingGate]:
    gate = CountingGate()
    return TextService(limits=GROUPS, gate=gate, **fields), gate  # type: ignore[arg-type]


def asks(served: TextService, body: object, key: str = ALICE) -> httpx.Response:
    path = "/v1/chat/completions" if body is CHAT or "messages" in body else "/v1/completions"  # type: ignore[operator]
    return post(served, path, body, authorization=f"Bearer {key}")


@pytest.mark.parametrize("header", [None, *WRONG])
@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions", "/v1/models", "/v1/models/smollm2"])
def test_without_a_known_key_nothing_is_read_or_made(path: str, header: str | None) -> None:
    served, gate = service()
    headers = {} if header is None else {"authorization": header}
    if "models" in path:
        refused = ask(served, "GET", path, headers=headers)
    else:
        refused = post(served, path, {"nonsense": True}, **headers)
    assert (refused.status_code, error_of(refused)["code"]) == (401, "invalid_api_key")
    assert refused.headers["www-authenticate"] == "Bearer"
    assert "sk-" not in refused.text
    assert (served.requests, gate.asked) == ([], [])


@pytest.mark.parametrize("path", ["/v1/models", "/v1/completions", "/tokenize"])
def test_a_key_may_come_in_the_header_of_anthropic(path: str) -> None:
    def asked(**headers: str) -> int:
        body = {"prompt": "a"} if path == "/tokenize" else COMPLETION
        headers = {name.replace("_", "-"): value for name, value in headers.items()}
        served, _ = service()
        answer = (
            ask(served, "GET", path, headers=headers) if path == "/v1/models" else post(served, path, body, **headers)
        )
        return answer.status_code

    assert asked(x_api_key=ALICE) == 200
    assert asked(x_api_key=ALICE, authorization="Basic abc") == 200
    assert asked(x_api_key="sk-nobody-0123456") == asked(x_api_key="") == asked(x_api_key="x" * 10_000) == 401
    assert asked(x_api_key=ALICE, authorization="Bearer sk-nobody-0123456") == 401, "that goes first"


def test_probes_and_metrics_need_no_key() -> None:
    served, _ = service()
    assert [ask(served, "GET", path).status_code for path in ("/health", "/ready", "/metrics", "/status")] == [200] * 4


@pytest.mark.parametrize("stream", [False, True])
def test_what_may_be_answered_is_counted_and_what_was_is_settled(stream: bool) -> None:
    served, gate = service()
    body = COMPLETION | {"n": 2, "max_tokens": 40, "stream": stream}
    assert asks(served, body).status_code == 200
    (asked,), (settled,) = gate.asked, gate.settled
    prompt = len(served.requests[0].prompt_ids)
    assert asked == QuotaRequest("alice", 2, prompt + 80)
    assert settled == prompt + 80
    assert served.taken == [("alice", prompt, 80)]
    assert served.phases == ["read"], "once, whatever it asks for"
    assert asks(served, COMPLETION | {"stop": "quick", "stream": stream}).status_code == 200
    assert gate.settled[1] < gate.asked[1].tokens, "it ended early"


def test_a_request_that_fails_is_settled_too() -> None:
    served, gate = service(trouble_at=3, error=GenerationFailedError("gone"))
    assert asks(served, COMPLETION).status_code == 503
    assert gate.settled == [len(served.requests[0].prompt_ids) + 3]
    assert served.taken == [("alice", len(served.requests[0].prompt_ids), 3)]


def test_a_key_that_has_nothing_left_is_told_when_it_will() -> None:
    served, gate = service()
    gate.refusal = OverQuota("tokens_per_minute", 600.0, 700.0, 17)
    refused = asks(served, CHAT)
    assert (refused.status_code, error_of(refused)["code"]) == (429, "rate_limit_exceeded")
    assert refused.headers["retry-after"] == "17"
    assert "this key has tokens_per_minute: 600" in error_of(refused)["message"]
    assert (served.requests, gate.settled) == ([], [])


def test_a_key_has_classes_of_its_own() -> None:
    served, _ = service()
    assert asks(served, COMPLETION).status_code == 200
    assert asks(served, COMPLETION | {"outrider": {"slo_class": ["speed_4", "speed_2"]}}).status_code == 200
    assert [(r.slo.name, [slo.name for slo in r.lower]) for r in served.requests] == [
        ("speed_2", []),
        ("speed_4", ["speed_2"]),
    ]
    for named in ("speed_8", ["speed_2", "best_effort"]):
        refused = asks(served, COMPLETION | {"outrider": {"slo_class": named}})
        assert (refused.status_code, error_of(refused)["code"]) == (403, "not_allowed")
        assert error_of(refused)["param"] == "outrider.slo_class"
    assert asks(served, COMPLETION | {"outrider": {"slo_class": "warp"}}).status_code == 400


def test_a_key_says_which_groups_see_its_prompts() -> None:
    served, _ = service()
    assert asks(served, COMPLETION, BOB).status_code == 200
    assert asks(served, COMPLETION | {"outrider": {"drafters": []}}, BOB).status_code == 200
    assert asks(served, COMPLETION).status_code == 200
    assert [request.drafters for request in served.requests] == [("lab",), (), None]
    refused = asks(served, COMPLETION | {"outrider": {"drafters": ["street"]}}, BOB)
    assert (refused.status_code, error_of(refused)["param"]) == (403, "outrider.drafters")


@pytest.mark.parametrize("body", [COMPLETION | {"n": 3}, CHAT | {"n": 3}, COMPLETION | {"prompt": ["a", "b"], "n": 2}])
def test_a_key_has_so_many_choices_a_request(body: dict[str, object]) -> None:
    served, gate = service()
    refused = asks(served, body)
    assert refused.status_code == 400
    assert "choices" in error_of(refused)["message"]
    assert gate.asked == []


def test_kv_is_shared_within_a_key_and_a_salt_alone() -> None:
    served, _ = service()
    asked = [(ALICE, None), (BOB, None), (ALICE, "x"), (BOB, "x"), (ALICE, "y"), (ALICE, "x")]
    for key, salt in asked:
        assert asks(served, COMPLETION | {"cache_salt": salt}, key).status_code == 200
    salts = [request.cache_salt for request in served.requests]
    assert len(set(salts)) == len(asked) - 1
    assert salts[2] == salts[5]
    assert {len(salt) for salt in salts} == {16}, "no digest's length"


def test_without_keys_all_kv_is_shared_but_what_is_salted() -> None:
    served = TextService()
    for salt in (None, "x", "x", "y"):
        post(served, "/v1/completions", COMPLETION | {"cache_salt": salt})
    first, second, third, fourth = [request.cache_salt for request in served.requests]
    assert first == b""
    assert second == third != fourth
    refused = post(served, "/v1/completions", COMPLETION | {"cache_salt": ""})
    assert error_of(refused)["message"] == "cache_salt needs a text of 1 to 1024 characters, found ''"


def test_a_request_is_charged_to_its_key_and_its_user_divides_that() -> None:
    served, _ = service()
    for key, user in ((ALICE, "u"), (ALICE, "v"), (BOB, "u")):
        assert asks(served, COMPLETION | {"user": user}, key).status_code == 200
    first, second, other = (request.account for request in served.requests)
    assert first.name == second.name != other.name
    assert len({first.user, second.user}) == 2
    requests_text = repr(served.requests)
    assert "alice" not in requests_text
    assert "bob" not in requests_text


def test_without_keys_a_request_is_charged_to_the_address_that_it_comes_from() -> None:
    served = TextService()
    assert post(served, "/v1/completions", COMPLETION, **{"x-forwarded-for": "192.0.2.1"}).status_code == 200
    proxied = TextService(
        settings=replace(served.settings, http=replace(served.settings.http, trusted_proxies=("127.0.0.1",)))
    )
    for address in ("192.0.2.1", "192.0.2.2"):
        assert post(proxied, "/v1/completions", COMPLETION, **{"x-forwarded-for": address}).status_code == 200
    names = [request.account.name for request in (*served.requests, *proxied.requests)]
    assert len(set(names)) == 3, "who is no trusted proxy says nothing of others"
    assert all(len(name) == 32 for name in names)


def test_users_of_two_keys_are_two_tenants() -> None:
    served, _ = service()
    for key in (ALICE, BOB, ALICE):
        asks(served, COMPLETION | {"user": "me"}, key)
    first, second, third = [request.tenant for request in served.requests]
    assert first == third != second


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions", "/tokenize", "/detokenize"])
@pytest.mark.parametrize("bad", ["{", "[" * 40_000, "x" * 60_000, '{"prompt": 1}'])
def test_a_bad_request_counts_and_what_is_beyond_the_quota_is_not_looked_at(path: str, bad: str) -> None:
    served, gate = service()
    gate.most_requests = 1
    headers = {"content-type": "application/json", "authorization": f"Bearer {ALICE}"}
    answers = [ask(served, "POST", path, content=bad, headers=headers) for _ in range(20)]
    assert [answer.status_code for answer in answers[1:]] == [429] * 19
    assert 400 <= answers[0].status_code < 429
    assert {error_of(answer)["code"] for answer in answers[1:]} == {"rate_limit_exceeded"}
    assert answers[1].headers["retry-after"] == "60"


def test_a_body_is_not_waited_for_where_the_quota_is_used_up() -> None:
    """Nor is it read: it may never come."""
    served, gate = service()
    gate.most_requests = 0

    async def never() -> AsyncIterator[bytes]:
        raise AssertionError
        yield b""

    headers = {"content-type": "application/json", "authorization": f"Bearer {ALICE}"}
    assert ask(served, "POST", "/v1/completions", content=never(), headers=headers).status_code == 429


def test_a_key_with_rates_is_told_what_is_left_and_another_is_not() -> None:
    rates = "requests_per_minute: 60, tokens_per_minute: 1000.5"
    keys = parse_keys(f"keys: [{{name: alice, key: {ALICE}, {rates}}}, {{name: bob, key: {BOB}}}]", "test")
    gate = CountingGate(keys)
    served = TextService(gate=gate)
    told = {name: value for name, value in asks(served, COMPLETION).headers.items() if "ratelimit" in name}
    assert told == {
        "x-ratelimit-limit-requests": "60",
        "x-ratelimit-remaining-requests": "30",
        "x-ratelimit-reset-requests": "30s",
        "x-ratelimit-limit-tokens": "1000",
        "x-ratelimit-remaining-tokens": str(floor(500.25 - gate.asked[0].tokens)),
        "x-ratelimit-reset-tokens": "30s",
    }
    assert not [name for name in asks(served, COMPLETION, BOB).headers if "ratelimit" in name]
    gate.refusal = OverQuota("tokens_per_minute", 1, 1, 60)
    assert asks(served, COMPLETION).headers["x-ratelimit-remaining-tokens"] == "500"
    gate.most_requests = 0
    assert asks(served, COMPLETION).headers["x-ratelimit-remaining-requests"] == "30"

"""A service is held to what its ``/openapi.json`` says: requests are made of it, and answers judged by it."""

import random
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import seed as seeded
from schemathesis.checks import CHECKS, load_all_checks

from serve_app.api.responses.bodies import LOGPROBS
from tests.unit.serve_app.api.declared import Declared

_METHODS = ("get", "post")
_TOKENS = 2  # of a response, that it does not last
_NOT_JUDGED = {
    "positive_data_acceptance",  # fields depend on each other: what a schema allows may be refused, with a reason
    "unsupported_method",  # every GET has a HEAD, which the document tells in words
    "allow_header_conformance",
}
# The rest asks again without a key, or after a resource is gone: there are neither.
Call = Callable[[Any], Any]
_TOLD = ("spans", "details", "explain")
_GRAMMARS = {"response_format", "structured_outputs", "tools", "tool_choice"}


def operations(document: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Method and path of each."""
    return [(method, path) for path, methods in document["paths"].items() for method in _METHODS if method in methods]


def judge(schema: Any, method: str, path: str, call: Call, *, negative: bool, examples: int, seed: int) -> Counter[int]:
    """Ask one operation so often, by what its schema allows or by what it does not; statuses that came back.

    Args:
        schema: as schemathesis loads it.
        method: of the operation.
        path: as the document has it.
        call: sends a case.
        negative: whether requests are to violate the schema.
        examples: how many.
        seed: the same one makes the same requests.

    Raises:
        Exception: an answer is none that the document has, or has a field that it does not name, or is an error of
            the service; schemathesis's have the request.
    """
    load_all_checks()
    checks = [check for check in CHECKS.get_all() if check.__name__ not in _NOT_JUDGED]
    mode = schemathesis.GenerationMode.NEGATIVE if negative else schemathesis.GenerationMode.POSITIVE
    statuses: Counter[int] = Counter()
    rng = random.Random(seed)
    declared = Declared(schema.raw_schema)

    @seeded(seed)
    @settings(
        max_examples=examples,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=schema[path][method].as_strategy(generation_mode=mode))
    def ask(case: Any) -> None:
        if not negative and isinstance(case.body, dict) and path.startswith("/v1/"):
            begun = _message_begun_soon if path.startswith("/v1/messages") else _begun_soon
            case.body = begun(case.body, rng)
        response = call(case)
        statuses[response.status_code] += 1
        case.validate_response(response, checks=checks)
        content_type, text = response.headers.get("content-type", [""])[0], response.content.decode()
        found = declared.check(method, path, response.status_code, content_type, text)
        if content_type.startswith("text/event-stream"):
            assert text.endswith("data: [DONE]\n\n" if path.endswith("completions") else "}\n\n"), text
            assert not any("error" in event for event in found), text

    ask()
    return statuses


def _begun_soon(body: Mapping[str, Any], rng: random.Random) -> dict[str, Any]:
    """A request that may be carried out, in short: dependencies between fields are kept, most of the time."""
    asked = {key: value for key, value in body.items() if key not in ("max_completion_tokens", "min_tokens", "best_of")}
    if "input" in asked:
        return _response_begun_soon(asked, rng)
    asked |= {"max_tokens": _TOKENS, "n": min(asked.get("n") or 1, 2)}
    if rng.random() < 0.1:
        return asked
    if rng.random() < 0.3:
        asked["stream_options"] = {name: rng.random() < 0.5 for name in ("include_usage", "continuous_usage_stats")}
    if asked.get("stream_options") is not None:
        asked["stream"] = True
    if asked.get("top_logprobs") or rng.random() < 0.2:
        asked["logprobs"] = 1 if "prompt" in asked else True
    if isinstance(asked.get("prompt"), list):
        asked["prompt"] = rng.choice([[5, 17, 42], ["Once", "upon"], [[5], [17, 42]]])
    if asked.get("prompt") == "":
        asked["prompt"] = "Once upon a time"
    if isinstance(asked.get("messages"), list):
        asked["messages"] = [_said(message) for message in asked["messages"]]
    return _possible(asked, rng)


def _response_begun_soon(asked: dict[str, Any], rng: random.Random) -> dict[str, Any]:
    asked |= {"max_output_tokens": _TOKENS}
    if rng.random() < 0.1:
        return asked
    asked |= {"include": [LOGPROBS]} if asked.get("top_logprobs") or rng.random() < 0.2 else {}
    asked |= {"stream": True} if asked.get("stream_options") is not None or rng.random() < 0.4 else {}
    said = {"role": rng.choice(["user", "system", "assistant"]), "content": [{"type": "input_text", "text": "a"}]}
    called = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
    answered = {"type": "function_call_output", "call_id": "c", "output": "b"}
    thought = {"type": "reasoning", "id": "r", "summary": [{"type": "summary_text", "text": "hm"}]}
    asked["input"] = rng.choice(["Once", [said], [thought, called, answered, said], asked["input"]])
    asked["text"] = rng.choice([None, {"verbosity": "low"}, {"format": {"type": "text"}}, asked.get("text")])
    return _possible(asked, rng)


def _message_begun_soon(body: Mapping[str, Any], rng: random.Random) -> dict[str, Any]:
    asked = {key: value for key, value in body.items() if key != "min_tokens"} | {"max_tokens": _TOKENS}
    if rng.random() < 0.1:
        return asked
    blocks = [{"type": "text", "text": "a"}, {"type": "tool_result", "tool_use_id": "t", "content": "b"}]
    thought = {"type": "thinking", "thinking": "hm", "signature": "s"}
    called = {"type": "tool_use", "id": "t", "name": "f", "input": {}}
    turns = [{"role": "assistant", "content": [thought, called]}, {"role": "user", "content": blocks}]
    asked["messages"] = rng.choice([[{"role": "user", "content": "a"}], turns, asked.get("messages")])
    asked["stream"] = rng.random() < 0.4
    asked["thinking"] = rng.choice([None, {"type": "enabled", "budget_tokens": 1024}, {"type": "disabled"}])
    asked["output_config"] = rng.choice([None, {"effort": "low"}, asked.get("output_config")])
    possible = _possible(asked, rng)
    options = {name: value for name, value in possible["outrider"].items() if name not in ("spans", "details")}
    return possible | {"outrider": options}


def _possible(asked: dict[str, Any], rng: random.Random) -> dict[str, Any]:
    asked["logit_bias"] = {key: value for key, value in (asked.get("logit_bias") or {}).items() if len(key) < 4}
    if rng.random() < 0.8:  # several at once are refused, and hardly any text is a grammar
        asked = {key: value for key, value in asked.items() if key not in _GRAMMARS and not key.startswith("guided_")}
    options = dict(asked.get("outrider") or {})
    for name in rng.sample(["expansion", "rows", "protocol", "verification", "slo_class", "drafters"], 5):
        options.pop(name, None)
    options |= {name: True for name in _TOLD if rng.random() < 0.4}
    return asked | {"outrider": options}


def _said(message: Mapping[str, Any]) -> dict[str, Any]:
    """Without calls of tools, which are objects of any kind to a schema."""
    said = {key: value for key, value in message.items() if key not in ("tool_calls", "tool_call_id")}
    return {"content": "a"} | said

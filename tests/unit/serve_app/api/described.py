"""A service is held to what its ``/openapi.json`` says: requests are made of it, and answers judged by it."""

import json
import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jsonschema
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import seed as seeded
from schemathesis.checks import CHECKS, load_all_checks

_METHODS = ("get", "post")
_TOKENS = 2  # of a response, that it does not last
_NOT_JUDGED = {
    "positive_data_acceptance",  # fields depend on each other: what a schema allows may be refused, with a reason
    "unsupported_method",  # every GET has a HEAD, which the document tells in words
    "allow_header_conformance",
}
# The rest asks again without a key, or after a resource is gone: there are neither.
Call = Callable[[Any], Any]
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
        Exception: an answer is none that the document has, or an error of the service; schemathesis's have the request.
    """
    load_all_checks()
    checks = [check for check in CHECKS.get_all() if check.__name__ not in _NOT_JUDGED]
    mode = schemathesis.GenerationMode.NEGATIVE if negative else schemathesis.GenerationMode.POSITIVE
    statuses: Counter[int] = Counter()
    rng = random.Random(seed)
    document = schema.raw_schema

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
            case.body = _begun_soon(case.body, rng)
        response = call(case)
        statuses[response.status_code] += 1
        case.validate_response(response, checks=checks)
        if response.headers.get("content-type", [""])[0].startswith("text/event-stream"):
            _check_events(document, method, path, response.content.decode())

    ask()
    return statuses


def _begun_soon(body: Mapping[str, Any], rng: random.Random) -> dict[str, Any]:
    """A request that may be carried out, in short: dependencies between fields are kept, most of the time."""
    asked = {key: value for key, value in body.items() if key not in ("max_completion_tokens", "min_tokens", "best_of")}
    asked |= {"max_tokens": _TOKENS, "n": min(asked.get("n") or 1, 2)}
    if rng.random() < 0.1:
        return asked
    if asked.get("stream_options") is not None:
        asked["stream"] = True
    if asked.get("top_logprobs"):
        asked["logprobs"] = True
    if isinstance(asked.get("prompt"), list):
        asked["prompt"] = rng.choice([[5, 17, 42], ["Once", "upon"], [[5], [17, 42]]])
    if asked.get("prompt") == "":
        asked["prompt"] = "Once upon a time"
    asked["logit_bias"] = {key: value for key, value in (asked.get("logit_bias") or {}).items() if len(key) < 4}
    if rng.random() < 0.8:  # several at once are refused, and hardly any text is a grammar
        asked = {key: value for key, value in asked.items() if key not in _GRAMMARS and not key.startswith("guided_")}
    if isinstance(asked.get("messages"), list):
        asked["messages"] = [_said(message) for message in asked["messages"]]
    options = dict(asked.get("outrider") or {})
    for name in rng.sample(["expansion", "rows", "protocol", "verification", "slo_class", "drafters"], 5):
        options.pop(name, None)
    return asked | {"outrider": options}


def _said(message: Mapping[str, Any]) -> dict[str, Any]:
    """Without calls of tools, which are objects of any kind to a schema."""
    said = {key: value for key, value in message.items() if key not in ("tool_calls", "tool_call_id")}
    return {"content": "a"} | said


def _check_events(document: Mapping[str, Any], method: str, path: str, text: str) -> None:
    """Every event of a stream, which must end as streams do."""
    media = document["paths"][path][method]["responses"]["200"]["content"]["text/event-stream"]
    with_tools = media["schema"]["properties"]["data"]["anyOf"][1]["contentSchema"]
    events = list(_events(text))
    assert events[-1] == "[DONE]", events[-1]
    for event in events[:-1]:
        found = json.loads(event)
        assert "error" not in found, found
        check_against(document, with_tools, found)


def check_against(document: Mapping[str, Any], schema: Mapping[str, Any], found: object) -> None:
    """Raises ``jsonschema.ValidationError`` where something is not what a part of the document says."""
    jsonschema.Draft202012Validator({**schema, "components": document["components"]}).validate(found)


def _events(text: str) -> Iterator[str]:
    for event in text.split("\n\n"):
        if event and not event.startswith(":"):
            assert event.startswith("data: "), event
            yield event.removeprefix("data: ")

"""A real service is held to its own ``/openapi.json``: no error of its own, no answer that the document has not.

A few requests of each operation by what its schema allows, and as many by what it does not, the same every time;
``make described`` sends more.
"""

import json
import os
import shlex
import subprocess
from dataclasses import replace
from functools import partial

import httpx
import pytest
import schemathesis

from cluster.application import first_steps
from serve_app.api.openapi.document import openapi_document
from tests.cluster.served import MODEL, Service
from tests.unit.serve_app.api.declared import check_against
from tests.unit.serve_app.api.described import judge, operations
from tests.unit.serve_app.api.text_service import LIMITS

EXAMPLES, SEED = int(os.environ.get("OUTRIDER_DESCRIBED_EXAMPLES", "10")), 1
_WITHIN_S = 120.0
_ASKED = operations(openapi_document(LIMITS, keys=False))


@pytest.mark.timeout(600 + 4 * EXAMPLES)
@pytest.mark.parametrize(("method", "path"), _ASKED)
def test_every_operation_is_as_described(service: Service, method: str, path: str) -> None:
    schema = schemathesis.openapi.from_url(f"{service.url}/openapi.json")
    assert operations(schema.raw_schema) == _ASKED
    ask = partial(judge, schema, method, path, lambda case: case.call(timeout=_WITHIN_S), examples=EXAMPLES, seed=SEED)
    statuses = ask(negative=False)
    assert 200 in statuses or "{model}" in path, statuses
    if "requestBody" in schema.raw_schema["paths"][path][method]:
        refused = ask(negative=True)
        assert set(refused) <= {400, 404}, refused
    service.check_released()


def test_the_served_model_is_as_described(service: Service) -> None:
    document = service.get("/openapi.json")
    card = service.get(f"/v1/models/{MODEL}")
    check_against(document, document["components"]["schemas"]["Model"], card)
    assert card["outrider"]["sampling"] == {"temperature": 0.2, "top_p": 0.9}


def test_a_chat_that_says_nothing_is_sampled_as_the_card_recommends(service: Service) -> None:
    body = {"model": MODEL, "messages": [{"role": "user", "content": "Name the capital of France."}], "max_tokens": 16}
    answer = service.post("/v1/chat/completions", body)
    assert answer["usage"]["outrider"]["sampling"] == {"temperature": 0.2, "top_p": 0.9}
    assert "Paris" in answer["choices"][0]["message"]["content"]


def test_the_line_to_try_first_works_as_it_is_printed(service: Service) -> None:
    """As ``outrider serve`` ends by saying."""
    config = replace(service.config, model=replace(service.config.model, served_name=MODEL))
    page, line = first_steps(config, service.url)
    assert page == f"Page: {service.url}/"
    command = line.removeprefix("Try: ")
    assert shlex.split(command)[0] == "curl"
    done = subprocess.run(
        ["/bin/bash", "-c", command], stdin=subprocess.DEVNULL, capture_output=True, timeout=_WITHIN_S, check=True
    )
    assert json.loads(done.stdout)["choices"][0]["message"]["content"]


def test_tokens_are_those_of_the_prompt(service: Service) -> None:
    body = {"messages": [{"role": "user", "content": "Name the capital of France."}]}
    counted = service.post("/tokenize", body)["tokens"]
    usage = service.post("/v1/chat/completions", {"model": MODEL, "max_tokens": 1, **body})["usage"]
    assert len(counted) == usage["prompt_tokens"]
    assert "Name the capital of France." in service.post("/detokenize", {"tokens": counted})["prompt"]


def test_an_api_that_is_not_there_is_told_what_to_use(service: Service) -> None:
    answer = httpx.get(f"{service.url}/v1/responses/resp_1", timeout=_WITHIN_S)
    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (404, "unknown_url")
    assert error["message"].endswith("responses are not kept; send the whole input to POST /v1/responses")

"""Fifty schemas: what is drafted, forked, evicted or resumed changes no token, and what comes out is valid."""

import json
import random

import jsonschema
import pytest

from outrider.contracts.requests import Grammar, SamplingParams
from outrider.grammar.texts import of_json_schema
from outrider.grammar.validating import fault_of
from tests.unit.engines.conftest import VOCAB, tiny_llama, torch_verifier
from tests.unit.engines.reference import Client, generate, verify_until_done
from tests.unit.engines.schemas import SCHEMAS
from tests.unit.engines.toy_grammar import END, text_of
from tests.unit.engines.verifier.test_trees import random_tree

PROMPT = [5, 17, 42, 8, 61, 30, 2]
LENGTH = 90
TEMPERATURES = (0.0, 0.7, 1.0, 1.8)


def params_of(number: int) -> SamplingParams:
    text = of_json_schema(SCHEMAS[number], flexible=False)
    return SamplingParams(temperature=TEMPERATURES[number % 4], seed=number, grammar=Grammar(text))


def until_end(client: Client) -> list[int]:
    output = client.output[:LENGTH]
    return output[: output.index(END) + 1] if END in output else output


@pytest.mark.parametrize("number", range(len(SCHEMAS)))
def test_fifty_schemas(number: int) -> None:
    schema, params, rng = SCHEMAS[number], params_of(number), random.Random(number)
    assert params.grammar is not None
    assert fault_of(params.grammar.text) is None
    model = tiny_llama()
    client = Client("a", PROMPT, params)
    engine = torch_verifier(model)
    engine.open(client.opening())
    while END not in client.output and len(client.output) < LENGTH:
        block = client.block()
        client.take(block, verify_until_done(engine, [block])[0])
    truth = until_end(client)
    if truth[-1] == END:
        jsonschema.validate(json.loads(text_of(truth)), schema)

    drafted, company = Client("a", PROMPT, params), Client("b", PROMPT[::-1], SamplingParams(seed=number))
    resumed = False

    def draft(one: Client) -> list[int]:
        nonlocal resumed
        if one is drafted and len(one.output) > len(truth) // 2 and not resumed:
            resumed = True
            engine.close("a", keep_cache=False)
            engine.open(one.opening())
        right = truth[len(one.output) :][: rng.randint(0, 5)] if one is drafted else []
        return [*right, *rng.choices(range(VOCAB), k=rng.randint(0, 3))]

    engine = torch_verifier(model, blocks=24)
    generate(engine, [drafted, company], draft, len(truth))
    assert resumed or len(truth) < 20
    assert drafted.output[: len(truth)] == truth

    forked, engine = Client("a", PROMPT, params), torch_verifier(model)
    engine.open(forked.opening())
    while len(forked.output) < len(truth):
        tokens, parents = random_tree(truth[len(forked.output) :], rng)
        block = forked.block(tokens, parents=parents)
        forked.take(block, verify_until_done(engine, [block])[0])
    assert forked.output[: len(truth)] == truth


def test_most_of_them_come_to_an_end() -> None:
    """Else the test above would say little of what is valid."""
    ended = 0
    for number in range(0, len(SCHEMAS), 5):
        client = Client("a", PROMPT, params_of(number))
        generate(torch_verifier(tiny_llama()), [client], lambda _: (), LENGTH)
        ended += END in client.output
    assert ended >= 8

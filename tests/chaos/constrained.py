"""Constrained responses by every draft source: ``python -m tests.chaos.constrained --responses 10000``.

In this process: coordinators over tiny models' engines and the real grammars of fifty schemas, sixteen responses at a
time, with KV too scarce for all of them and a verifier that is lost now and then. A response is held to its schema
unless it was cut by its length. Status 1 if one is invalid or fails.
"""

import argparse
import asyncio
import json
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import jsonschema

from outrider.contracts.requests import FinishReason, GenerationChunk, GenerationRequest, Grammar, SamplingParams
from outrider.grammar.texts import of_json_schema
from tests.unit.engines.schemas import SCHEMAS
from tests.unit.engines.toy_grammar import END, text_of
from tests.unit.serve_app.api.in_memory_service import drafter, request_for, tokens_of
from tests.unit.serve_app.coordination.test_prompt_lookup import serving
from tests.unit.virtual_clock import VirtualLoop

_AT_A_TIME = 16
_LENGTH = 60
_TEMPERATURES = (0.0, 0.7, 1.0, 1.8)
_CHAIN: dict[str, Any] = {"window": 4, "lookup": 0, "reproducible": False}
WAYS: dict[str, dict[str, Any]] = {
    "the target alone": {"window": 0, "lookup": 0},
    "lookups": {"window": None, "lookup": 8},
    "whatever is chosen": {"window": None},
    **{f"chains by {name}": {**_CHAIN, "protocol": name} for name in ("token_ids", "dsd", "tslt", "dssd")},
    "chains by dssd_candidates": {**_CHAIN, "protocol": "dssd_candidates"},
    "trees of token ids": {**_CHAIN, "window": 3, "protocol": "token_ids", "expansion": (2, 2, 1)},
    "grown trees": {**_CHAIN, "protocol": "token_ids", "rows": 6},
    "trees by tslt_tree": {**_CHAIN, "window": 3, "protocol": "tslt_tree", "expansion": (2, 2, 1)},
}


@dataclass
class Found:
    """What became of them.

    Attributes:
        ended: responses that are whole, and as their schemas have it, by how they were made.
        cut: those that reached their length.
        accepted: draft tokens.
        wrong: what is wrong with each of the others.
    """

    ended: Counter[str] = field(default_factory=Counter)
    cut: Counter[str] = field(default_factory=Counter)
    accepted: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)

    @property
    def responses(self) -> int:
        """All of them."""
        return self.ended.total() + self.cut.total() + len(self.wrong)

    def judge(self, number: int, chunks: Sequence[GenerationChunk] | BaseException) -> None:
        """One response, or why there is none."""
        way, schema = _way_of(number), _schema_of(number)
        if isinstance(chunks, BaseException):
            self.wrong.append(f"{number}, {way}: {chunks!r}")
            return
        self.accepted[way] += chunks[-1].stats.accepted_tokens
        text = text_of(tokens_of(chunks))
        if chunks[-1].finish_reason is FinishReason.LENGTH:
            self.cut[way] += 1
            return
        try:
            jsonschema.validate(json.loads(text), schema)
        except (ValueError, jsonschema.ValidationError) as error:
            self.wrong.append(f"{number}, {way}: {text!r} is not of {schema}: {error}")
        else:
            self.ended[way] += 1


def tried(first: int, responses: int, found: Found) -> None:
    """Make some; ``first`` is the number of the first, which says how each is made."""
    for begin in range(first, first + responses, _AT_A_TIME):
        numbers = range(begin, min(begin + _AT_A_TIME, first + responses))
        with asyncio.Runner(loop_factory=VirtualLoop) as runner:
            for number, chunks in zip(numbers, runner.run(_made(numbers)), strict=True):
                found.judge(number, chunks)


async def _made(numbers: Sequence[int]) -> list[list[GenerationChunk] | BaseException]:
    service = serving(drafter(), drafter(), blocks=120, eos_token_ids=(END,))
    service.verifier.dies_before = (9, 30)
    requests = [_request(number) for number in numbers]
    responses = await asyncio.gather(*map(service.response, requests), return_exceptions=True)
    await service.idle()
    return responses


def _way_of(number: int) -> str:
    return tuple(WAYS)[number % len(WAYS)]


def _schema_of(number: int) -> dict[str, Any]:
    return SCHEMAS[number // len(WAYS) % len(SCHEMAS)]


def _request(number: int) -> GenerationRequest:
    grammar = Grammar(of_json_schema(_schema_of(number), flexible=False))
    temperature = _TEMPERATURES[number // (len(WAYS) * len(SCHEMAS)) % len(_TEMPERATURES)]
    params = SamplingParams(temperature=temperature, seed=number, grammar=grammar)
    prompt = tuple((number * 7 + i * i) % 90 for i in range(5 + number % 30))
    return replace(request_for(f"g{number}", prompt, params), max_tokens=_LENGTH, **WAYS[_way_of(number)])


def main(argv: Sequence[str] | None = None) -> int:
    """Make them all, and tell what became of them."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.constrained", description=__doc__)
    parser.add_argument("--responses", type=int, default=10_000)
    parser.add_argument("--first", type=int, default=0, help="number of the first (default: %(default)s)")
    args = parser.parse_args(argv)
    found = Found()
    for begin in range(args.first, args.first + args.responses, 10 * _AT_A_TIME):
        tried(begin, min(10 * _AT_A_TIME, args.first + args.responses - begin), found)
        print(f"{found.responses} made, {len(found.wrong)} of them wrong", flush=True)
    for way in WAYS:
        print(f"{way}: {found.ended[way]} whole, {found.cut[way]} cut, {found.accepted[way]} draft tokens accepted")
    print("\n".join(found.wrong) or "all that were not cut are valid", flush=True)
    return int(bool(found.wrong))


if __name__ == "__main__":
    sys.exit(main())

"""What nobody should send is of many kinds, and the same from a seed."""

import json
from random import Random

from tests.chaos.mutating import mutated_body, mutated_bytes, mutated_fields
from tests.chaos.told import Piece

BODY = {"model": "m", "prompt": "Once", "seed": 1, "n": 2, "stop": ["a", "b"], "outrider": {"window": 4}}


def test_a_seed_mutates_alike() -> None:
    assert mutated_body(Random(7), BODY) == mutated_body(Random(7), BODY)
    assert len({mutated_body(Random(seed), BODY) for seed in range(100)}) > 80


def test_bodies_are_json_that_says_something_else_or_no_json() -> None:
    rng, sound, broken, same = Random(0), 0, 0, 0
    for _ in range(2000):
        data = mutated_body(rng, BODY)
        try:
            content = json.loads(data)
        except (ValueError, RecursionError):
            broken += 1
            continue
        sound += 1
        same += content == BODY
    assert min(sound, broken) > 100
    assert same < 200
    assert BODY["outrider"] == {"window": 4}, "the sound one stays as it is"


def test_bytes_are_nearly_always_others() -> None:
    rng, data, other = Random(1), bytes(range(40)), b"another message"
    found = [mutated_bytes(rng, data, other) for _ in range(2000)]
    assert sum(each == data for each in found) < 100
    assert {len(each) < len(data) for each in found} == {True, False}
    assert mutated_bytes(rng, b"", b"") is not None


def test_fields_get_other_values_and_where_it_is_wanted_other_types() -> None:
    rng, message = Random(2), Piece(1.0, 3, "text", ("a", "b"))
    alike = [mutated_fields(rng, message, types=False) for _ in range(300)]
    assert all(isinstance(each.choice, int) and isinstance(each.names, tuple) for each in alike)
    assert any(each != message for each in alike)
    assert any(not isinstance(mutated_fields(rng, message, types=True).names, tuple) for _ in range(300))

"""Statistics are added up field by field, none forgotten."""

from dataclasses import astuple, fields
from typing import Any

from outrider.contracts.requests import RoundStats

NUMBERS = [field.name for field in fields(RoundStats) if field.name not in ("protocols", "overrides")]
_COUNTED: dict[str, Any] = {name: 10 + n for n, name in enumerate(NUMBERS)}
COUNTED = RoundStats(**_COUNTED, protocols=(("dsd", 2), ("tslt", 1)), overrides=(3, 9))


def test_every_number_is_added() -> None:
    doubled = COUNTED + COUNTED
    assert [getattr(doubled, name) for name in NUMBERS] == [2 * getattr(COUNTED, name) for name in NUMBERS]
    assert doubled.protocols == (("dsd", 4), ("tslt", 2))
    assert doubled.overrides == (3, 9, 3, 9)
    assert RoundStats() + COUNTED == COUNTED
    assert not any(astuple(RoundStats()))


def test_a_round_without_a_draft_is_one_more_round() -> None:
    assert COUNTED.round_without_draft() == COUNTED + RoundStats(rounds=1)

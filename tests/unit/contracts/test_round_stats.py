"""Statistics are added up field by field, none forgotten."""

from dataclasses import astuple, fields
from typing import Any

from outrider.contracts.requests import RoundStats

NUMBERS = [field.name for field in fields(RoundStats) if field.name not in ("protocols", "overrides", "kept_drafts")]
_COUNTED: dict[str, Any] = {name: 10 + n for n, name in enumerate(NUMBERS)}
COUNTED = RoundStats(**_COUNTED, protocols=(("dsd", 2), ("tslt", 1)), overrides=(3, 9), kept_drafts=(1, 2))


def test_every_number_is_added() -> None:
    doubled = COUNTED + COUNTED
    assert [getattr(doubled, name) for name in NUMBERS] == [2 * getattr(COUNTED, name) for name in NUMBERS]
    assert doubled.protocols == (("dsd", 4), ("tslt", 2))
    assert doubled.overrides == (3, 9, 3, 9)
    assert doubled.kept_drafts == (2, 4)
    assert (COUNTED + RoundStats(kept_drafts=(0, 0, 5))).kept_drafts == (1, 2, 5)
    assert RoundStats() + COUNTED == COUNTED
    assert not any(astuple(RoundStats()))


def test_a_round_without_a_draft_is_one_more_round() -> None:
    assert COUNTED.round_without_draft() == COUNTED + RoundStats(rounds=1)


def test_what_a_stop_string_cuts_off_was_not_kept() -> None:
    stats = RoundStats(accepted_tokens=7, kept_drafts=(0, 0, 2, 1))
    assert stats.taken_back(0, 3) == stats
    assert stats.taken_back(2, 1) == RoundStats(accepted_tokens=5, kept_drafts=(0, 1, 2))

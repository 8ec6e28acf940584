"""A few of what ``python -m tests.chaos.constrained`` makes: valid by every draft source, unless cut by length."""

from collections import Counter

from tests.chaos.constrained import WAYS, Found, tried


def test_every_draft_source_makes_valid_responses() -> None:
    found = Found()
    tried(29 * len(WAYS), 2 * len(WAYS), found)  # of two objects
    assert found.wrong == []
    assert found.responses == 2 * len(WAYS)
    assert found.ended + found.cut == Counter(dict.fromkeys(WAYS, 2))
    assert found.ended.total() > 0


def test_what_is_not_of_its_schema_or_failed_is_told() -> None:
    found = Found()
    found.judge(0, ValueError("a fault"))
    assert found.wrong == ["0, the target alone: ValueError('a fault')"]

"""A text that goes on: what may come next in it, how far that is believed, and how much of it is worth its rows."""

import random

from outrider.lookup.store import EarlierTexts
from outrider.lookup.text import LEAST_GAIN, LookupHistory, LookupText, tokens_to_draft

SAID = tuple(range(10, 30))


def text(*token_ids: int, experience: LookupHistory | None = None, tenant: str = "") -> LookupText:
    made = LookupText(experience or LookupHistory(), tenant)
    made.extend(token_ids)
    return made


def test_what_follows_the_end_elsewhere_is_found_and_nothing_else() -> None:
    found = text(*SAID, *SAID[:4]).find(3)
    assert found.token_ids == SAID[4:7]
    assert list(found.survivals) == sorted(found.survivals, reverse=True)
    assert text(*SAID).find(3) == text(*SAID, *SAID[:4]).find(0) == ((), ())


def test_it_is_believed_as_far_as_it_came_true() -> None:
    true, false = text(*SAID, *SAID[:3]), text(*SAID, *SAID[:3])
    for _ in range(20):
        right = true.find(1)
        true.extend(right.token_ids)
    for i in range(20):
        false.find(1)
        false.extend([100 + i, *SAID[:3]])
    assert true.find(1).survivals > (0.9,)
    assert false.find(8).survivals < (0.2,)


def test_what_is_hardly_likely_is_not_offered() -> None:
    bad = text(*SAID, *SAID[:3])
    for i in range(60):
        bad.find(8)
        bad.extend([100 + i, *SAID[:3]])
    assert bad.find(8) == ((), ())


def test_what_others_have_shown_counts() -> None:
    experience = LookupHistory()
    fresh = text(*SAID, *SAID[:3], experience=experience).find(1).survivals
    other = text(*SAID, *SAID[:3], experience=experience)
    for _ in range(200):
        other.extend(other.find(1).token_ids)
    assert text(*SAID, *SAID[:3], experience=experience).find(1).survivals > fresh


def test_ones_own_text_goes_before_ones_own_earlier_responses() -> None:
    experience = LookupHistory(earlier=EarlierTexts(100))
    experience.earlier.add("a", (1, 2, 3, 50, 51))
    for tenant, expected in (("a", (50, 51)), ("b", ()), ("", ())):
        assert text(7, 1, 2, 3, experience=experience, tenant=tenant).find(8).token_ids == expected
    assert text(1, 2, 3, 4, 1, 2, 3, experience=experience, tenant="a").find(1).token_ids == (4,)


def test_as_much_is_worth_drafting_as_has_a_step_say_most_a_second() -> None:
    rng = random.Random(4)
    for _ in range(300):
        survivals = sorted((rng.random() for _ in range(rng.randint(0, 9))), reverse=True)
        blocks, price = rng.choice([1.0, 4.0, 16.0]), rng.choice([0.0, 0.01, 0.1, 1.0])
        speeds = [(blocks + sum(survivals[:n])) / (1 + price * n) for n in range(len(survivals) + 1)]
        chosen = tokens_to_draft(survivals, blocks, price)
        if chosen:
            assert speeds[chosen] == max(speeds)
        else:
            assert max(speeds) <= (1.0 + LEAST_GAIN) * blocks
    assert tokens_to_draft([0.9, 0.8], 1.0, 0.0) == 2
    assert tokens_to_draft([0.9, 0.8], 1.0, 0.85) == 1
    assert tokens_to_draft([0.9, 0.8], 1.0, 2.0) == 0

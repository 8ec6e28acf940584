"""How much of what is found is drafted: by what came true and its price."""

from dataclasses import replace

import pytest

from outrider.contracts.cost import LinearCostModel
from outrider.contracts.requests import GenerationRequest, SamplingParams
from outrider.lookup.store import EarlierTexts
from outrider.lookup.text import LookupHistory
from outrider.rounds.lookup.ngram_drafts import ResponseLookup, lookup_tokens
from outrider.selection.situation import VerifierView

TEXT = (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12)
FREE = VerifierView(LinearCostModel(0.0, 0.0, 0.0, 0.04), 0.0, 1.0, 0.002)
DEAR = replace(FREE, cost_model=LinearCostModel(0.02, 0.0, 0.0, 0.04))


def request(*prompt: int) -> GenerationRequest:
    return GenerationRequest("g", prompt, SamplingParams(), 1000)


def said_again(lookup: ResponseLookup, tokens: int, view: VerifierView = FREE) -> list[int]:
    """A response that says its prompt's text again and again, each token looked for; what was found behind it."""
    output: list[int] = []
    for i in range(tokens):
        lookup.draft(output, 100, view)
        output.append(TEXT[(8 + i) % 12])
    return output


def never_again(lookup: ResponseLookup, tokens: int, view: VerifierView = FREE) -> list[int]:
    """One that goes on otherwise behind every match."""
    output: list[int] = []
    for i in range(tokens // 4):
        output += [1, 2, 3]
        lookup.draft(output, 100, view)
        output.append(100 + i)
    return output


def test_what_follows_is_drafted_to_the_length_that_is_allowed() -> None:
    for most, room in ((8, 100), (3, 100), (8, 2)):
        found = ResponseLookup(request(*TEXT, *TEXT[:8]), LookupHistory(), most).draft((), room, FREE)
        assert found is not None
        assert found.token_ids == (9, 10, 11, 12, 1, 2, 3, 4)[: min(most, room)]
        assert len(found.survivals) == len(found.token_ids)
    assert ResponseLookup(request(*TEXT, *TEXT[:8]), LookupHistory(), 8).draft((), 0, FREE) is None
    assert ResponseLookup(request(*TEXT), LookupHistory(), 8).draft((), 100, FREE) is None, "it never ended like this"


def test_the_dearer_a_row_the_fewer_and_what_never_comes_true_is_not_drafted() -> None:
    fresh = ResponseLookup(request(*TEXT, *TEXT[:4]), LookupHistory(), 8)
    cheap, dear = fresh.draft((), 100, FREE), fresh.draft((), 100, DEAR)
    assert cheap is not None
    assert dear is None or len(dear.token_ids) < len(cheap.token_ids)
    bad = ResponseLookup(request(*TEXT), LookupHistory(), 8)
    output = [*never_again(bad, 120), 1, 2, 3]
    assert bad.draft(output, 100, DEAR) is None
    good = ResponseLookup(request(*TEXT, *TEXT[:8]), LookupHistory(), 8)
    found = good.draft(said_again(good, 60), 100, DEAR)
    assert found is not None
    assert len(found.token_ids) == 8, "each is almost certain"


def test_a_verifier_that_goes_on_by_itself_is_told_what_a_row_costs_it() -> None:
    lookup = ResponseLookup(request(*TEXT), LookupHistory(), 8)
    alone = lookup.grant(20, 1012, DEAR)
    assert (alone.tokens, alone.until_position, alone.blocks) == (8, 1012, 1.0)
    assert alone.row_price == pytest.approx(1.25 * 0.02 / 0.06), "of a step of one row"
    together = lookup.grant(20, 1012, replace(DEAR, batch_blocks=4.0))
    assert together.blocks == 4.0
    assert together.row_price == pytest.approx(1.25 * 0.02 / 0.12)
    assert lookup.grant(20, 1012, FREE).row_price == 0.0


def test_who_fixes_what_is_drafted_has_none_unless_asked_for() -> None:
    for fixed in ({"window": 0}, {"protocol": "token_ids"}):
        wished = replace(request(1, 2, 3), **fixed)
        assert lookup_tokens(wished, 8) == 0
        assert lookup_tokens(replace(wished, lookup=4), 8) == 4
    assert lookup_tokens(request(1), 8) == 8
    assert lookup_tokens(request(1), 0) == 0
    assert lookup_tokens(replace(request(1), lookup=0), 8) == 0
    assert lookup_tokens(replace(request(1), lookup=4), 0) == 4


def test_ones_own_text_goes_before_earlier_responses() -> None:
    experience = LookupHistory(earlier=EarlierTexts(100))
    ResponseLookup(replace(request(), tenant="a"), experience, 8).over((1, 2, 3, 50, 51))
    for tenant, expected in (("a", (50, 51)), ("b", None), ("", None)):
        found = ResponseLookup(replace(request(7, 1, 2, 3), tenant=tenant), experience, 8).draft((), 100, FREE)
        assert (None if found is None else found.token_ids) == expected
    own = ResponseLookup(replace(request(1, 2, 3, 4, 1, 2, 3), tenant="a"), experience, 1).draft((), 100, FREE)
    assert own is not None
    assert own.token_ids == (4,)

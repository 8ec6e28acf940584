import pytest

from lab.bench.protocols.plan import CHEAPEST, METHODS, NO_DRAFT, Turn, cells, options, turns
from outrider.contracts.drafting import DraftPlan
from outrider.contracts.errors import ParameterError


def test_cells_are_chosen_by_the_beginning_of_their_names_and_slow_links_come_first() -> None:
    assert [cell.name for cell in cells(["20mbps-0ms", "1mbps-50ms-t1"])] == [
        "1mbps-50ms-t1",
        "20mbps-0ms-t0",
        "20mbps-0ms-t1",
    ]
    assert len(cells()) == 12
    assert [cell.rate_mbps for cell in cells()] == sorted(cell.rate_mbps for cell in cells())


def test_a_name_that_fits_no_cell_is_refused() -> None:
    with pytest.raises(ParameterError, match=r"20mbps-0ms-t0.*found '3mbps'"):
        cells(["3mbps"])


def test_a_cell_emulates_its_link_both_ways() -> None:
    profile = cells(["20mbps-50ms-t1"])[0].profile
    assert (profile.up_bps, profile.down_bps, profile.rtt_s) == (20e6, 20e6, 0.05)


def test_methods_are_asked_for_by_the_request() -> None:
    assert options(NO_DRAFT, DraftPlan("tslt", 2)) == {"window": 0}
    assert options(CHEAPEST, DraftPlan("tslt", 2)) == {}
    assert options("tslt") == {"protocol": "tslt"}
    assert options("tslt", DraftPlan("tslt", 2)) == {"protocol": "tslt", "window": 2}
    tree = DraftPlan("tslt_tree", 2, (3, 2))
    assert options("tslt_tree", tree) == {"protocol": "tslt_tree", "window": 2, "expansion": [3, 2]}


def test_every_method_answers_every_prompt_and_none_is_always_first() -> None:
    planned = list(turns(repeats=2, prompts=3))
    assert sorted(map(repr, planned)) == sorted(
        repr(Turn(repeat, prompt, method)) for repeat in range(2) for prompt in range(3) for method in METHODS
    )
    rounds = [planned[start : start + len(METHODS)] for start in range(0, len(planned), len(METHODS))]
    assert all(len({(turn.repeat, turn.prompt) for turn in one}) == 1 for one in rounds)
    assert len({one[0].method for one in rounds}) == len(rounds)

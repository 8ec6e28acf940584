import pytest

from lab.bench.protocols.plan import CHEAPEST, LINKS, METHODS, NO_DRAFT, TEMPERATURES, Turn, cells, options, turns
from outrider.contracts.drafting import DraftPlan
from outrider.contracts.errors import ParameterError
from outrider.link.profiles import PROFILES, LinkProfile


def test_cells_are_chosen_by_the_beginning_of_their_names_and_slow_links_come_first() -> None:
    assert [cell.name for cell in cells(["20mbps-0ms", "1mbps-50ms-t1"], LINKS, TEMPERATURES)] == [
        "1mbps-50ms-t1",
        "20mbps-0ms-t0",
        "20mbps-0ms-t1",
    ]
    every = cells([], LINKS, TEMPERATURES)
    assert len(every) == 12
    rates_bps = [cell.profile.up_bps for cell in every]
    assert rates_bps == sorted(rates_bps)


def test_a_name_that_fits_no_cell_is_refused() -> None:
    with pytest.raises(ParameterError, match=r"20mbps-0ms-t0.*found '3mbps'"):
        cells(["3mbps"], LINKS, TEMPERATURES)


def test_a_cell_emulates_its_link_both_ways() -> None:
    profile = cells(["20mbps-50ms-t1"], LINKS, TEMPERATURES)[0].profile
    assert (profile.up_bps, profile.down_bps, profile.rtt_s) == (20e6, 20e6, 0.05)


def test_cells_of_links_and_temperatures_of_ones_own() -> None:
    mobile = LinkProfile(10e6, 50e6, 0.025, jitter_s=0.005)
    found = cells([], [mobile, PROFILES["wifi_20m"]], [0.0, 0.7, 0.7])
    assert [cell.name for cell in found] == [
        "10/50mbps-25ms-t0",
        "10/50mbps-25ms-t0.7",
        "172mbps-12ms-t0",
        "172mbps-12ms-t0.7",
    ]
    assert found[0].profile is mobile
    assert cells(["10/50"], [mobile], [0.7]) == found[1:2]


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

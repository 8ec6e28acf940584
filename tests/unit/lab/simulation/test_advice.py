from dataclasses import replace
from itertools import pairwise

import pytest

from lab.simulation.advice import (
    Advice,
    PlanQuestion,
    Side,
    SideAnswer,
    advice_of,
    answer,
    confirmation,
    drafting_mix,
    first_look,
    lines,
    questions,
)
from lab.simulation.lengths import Lengths
from lab.simulation.mix import BrokenPromise, MixCapacity, PromiseRule
from lab.simulation.published import TABLE_12
from lab.simulation.scenario import DeviceGroup, VerifierModel
from outrider.contracts.slo import BEST_EFFORT, SloClass
from outrider.link.profiles import LinkProfile
from outrider.scheduling.policy import BatchLimits

SERVER = VerifierModel(TABLE_12, BatchLimits(512, 8192, 1024, 6_000 // 16))
RULE = PromiseRule(0.05)
DEVICES = DeviceGroup(
    name="devices",
    count=6,
    step_s=0.02,
    acceptance=(0.8,),
    prompt=Lengths(tokens=100),
    output=Lengths(tokens=40),
    slo=SloClass("fast", 8.0),
    link=LinkProfile(20e6, 20e6, 0.03),
)


def advice(*groups: DeviceGroup) -> Advice:
    mix = drafting_mix(groups, SERVER)
    return advice_of(mix, *map(answered, questions(mix, RULE, 0)))


def answered(question: PlanQuestion) -> SideAnswer:
    look = first_look(question)
    confirmed = [] if look.searched is None else [confirmation(question, look.searched.devices)]
    return answer(question, look, confirmed)


def told(found: Advice, drafting: MixCapacity | None, alone: MixCapacity | None) -> Advice:
    """The same with other answers."""
    sides = {Side.DRAFTING: drafting, Side.ALONE: alone}
    ours, theirs = (replace(one, served=sides[one.side]) for one in (found.drafting, found.autoregressive))
    return replace(found, drafting=ours, autoregressive=theirs)


@pytest.fixture(scope="module")
def good() -> Advice:
    return advice(DEVICES)


def test_good_drafters_are_worth_it_where_reading_dominates(good: Advice) -> None:
    assert good.multiple is not None
    assert good.multiple > 1.0, "memory ends both"
    assert good.better is good.drafting
    verdict, enough, *_ = lines(good, RULE)
    assert verdict.startswith("Draft: one server keeps its promises to ")
    assert enough.startswith("One server like this is enough for your 6")
    (together,) = good.drafting.by_group
    assert together.devices == 6
    assert together.achieved_tokens_per_s == pytest.approx(good.drafts[0].tokens_per_s_alone, rel=0.35)


def test_both_sides_are_simulated_under_one_rule(good: Advice) -> None:
    for side in (good.drafting, good.autoregressive):
        assert side.served is not None
        assert side.served.searched_all
        assert side.first_token_times.p99_s > 0.0
        end = side.served.broken_by
        assert end is not None
        assert end.unkept_share > RULE.epsilon or end.first_token_p99_s > RULE.first_token_s


@pytest.mark.long
def test_slow_drafters_are_not() -> None:
    found = advice(replace(DEVICES, step_s=0.3, acceptance=(0.3,)))
    assert found.better is found.autoregressive
    assert lines(found, RULE)[0].startswith(("Serve the target alone", "Nobody"))


def test_best_effort_gets_the_fastest_draft_and_no_capacity() -> None:
    found = advice(replace(DEVICES, slo=BEST_EFFORT))
    assert found.drafting.served is None
    assert found.multiple is None
    assert found.servers is None
    (said,) = lines(found, RULE)
    assert said.startswith("Do not draft: one device of devices alone gets")


def test_who_promises_too_much_is_told_what_can_be_promised() -> None:
    found = advice(replace(DEVICES, slo=SloClass("dream", 5000.0)))
    for side in (found.drafting, found.autoregressive):
        assert side.served is not None
        assert side.served.devices == 0
    said = lines(found, RULE)
    assert said[0].startswith("Nobody's promise is kept, with drafts or without")
    best = max(found.drafts[0].tokens_per_s_alone, found.autoregressive_tokens_per_s[0])
    assert said[1].startswith(f"Promise devices at most {0.9 * best:.1f} tokens/s instead of 5000")


def test_the_end_of_a_search_is_never_a_capacity(good: Advice) -> None:
    open_end = MixCapacity(300, 300, searched_all=False, broken_by=None)
    both = told(good, open_end, open_end)
    assert both.multiple is None
    assert "more than 300 (not searched further) devices" in lines(both, RULE)[0]
    assert "both serve more than you have" in lines(both, RULE)[0]
    one = told(
        good, open_end, MixCapacity(120, 125, searched_all=True, broken_by=BrokenPromise(126, "fast", 0.2, 0.0, 1.0))
    )
    assert one.multiple is None
    assert one.better is one.drafting
    assert told(good, one.autoregressive.served, open_end).better.side is Side.ALONE


def test_more_devices_need_more_servers(good: Advice) -> None:
    end = BrokenPromise(5, "", 0.0, 0.0, 7.5)
    few = told(
        good, MixCapacity(4, 5, searched_all=True, broken_by=end), MixCapacity(2, 2, searched_all=True, broken_by=end)
    )
    assert few.servers == 2
    assert "Your 6 need 2 servers like this one" in lines(few, RULE)[1]
    assert "first tokens are waited for 7.5 s" in lines(few, RULE)[2]
    assert "4 to 5 devices" in lines(few, RULE)[0]


@pytest.mark.long
def test_capacity_falls_as_promises_rise() -> None:
    served = []
    for speed in (7.0, 12.0):
        mix = drafting_mix((replace(DEVICES, slo=SloClass("one", speed)),), SERVER)
        found: SideAnswer = answered(questions(mix, RULE, 0)[0])
        assert found.served is not None
        served.append(found.served.devices)
    for slower, faster in pairwise(served):
        assert faster <= 1.05 * slower + 1, served

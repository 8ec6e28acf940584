from dataclasses import replace

import pytest

from outrider.contracts.slo import BEST_EFFORT, SloClass
from outrider.link.profiles import LinkProfile
from outrider.scheduling.policy import BatchLimits
from outrider.simulation.advice import GroupAdvice, advise
from outrider.simulation.lengths import Lengths
from outrider.simulation.published import TABLE_12
from outrider.simulation.scenario import DeviceGroup, VerifierModel

SERVER = VerifierModel(TABLE_12, BatchLimits(512, 8192, 1024, 61_035 // 16))
DEVICES = DeviceGroup(
    name="devices",
    count=6,
    step_s=0.02,
    acceptance=(0.8,),
    prompt=Lengths(tokens=400),
    output=Lengths(tokens=160),
    slo=SloClass("fast", 8.0),
    link=LinkProfile(20e6, 20e6, 0.03),
)


def advice(group: DeviceGroup, server: VerifierModel = SERVER) -> GroupAdvice:
    (found,) = advise((group,), server, 0.05, 0)
    return found


def test_good_drafters_are_worth_it_where_reading_dominates() -> None:
    found = advice(DEVICES)
    assert found.multiple is not None
    assert found.multiple > 1.5
    assert found.verdict.startswith("drafting is worth it")
    assert found.together.devices == 6
    assert found.together.achieved_tokens_per_s == pytest.approx(found.outlook.tokens_per_s_alone, rel=0.35)


def test_slow_drafters_are_not() -> None:
    found = advice(replace(DEVICES, step_s=0.3, acceptance=(0.3,)))
    assert found.verdict.startswith(("serve the target alone", "nobody"))


def test_best_effort_gets_the_fastest_draft_and_no_capacity() -> None:
    found = advice(replace(DEVICES, slo=BEST_EFFORT))
    assert found.drafting is None
    assert found.multiple is None
    assert found.verdict.startswith("drafting is not faster")

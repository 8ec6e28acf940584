from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.simulation.lengths import Lengths
from lab.simulation.planning import (
    DraftSetting,
    best_draft,
    chains,
    context_tokens,
    fastest_draft,
    link_s,
    mean_tokens,
    offered_drafts,
    outlook,
    resident_devices,
    target_alone,
    trees,
)
from lab.simulation.published import TABLE_12
from lab.simulation.roofline import HARDWARE, MODELS, RooflineCostModel
from lab.simulation.scenario import DeviceGroup, VerifierModel
from outrider.contracts.requests import ProtocolName
from outrider.link.profiles import LinkProfile
from outrider.scheduling.policy import BatchLimits

SERVER = VerifierModel(TABLE_12, BatchLimits(512, 8192, 1024, 61_035 // 16))


def devices(acceptance: float = 0.8, step_s: float = 0.02, protocol: ProtocolName = "token_ids") -> DeviceGroup:
    return DeviceGroup(
        name="devices",
        count=1,
        step_s=step_s,
        acceptance=(acceptance,),
        prompt=Lengths(tokens=500),
        output=Lengths(tokens=200),
        link=LinkProfile(20e6, 20e6, 0.05),
        protocol=protocol,
    )


def test_means_of_lengths() -> None:
    assert mean_tokens(Lengths(tokens=7)) == 7.0
    assert mean_tokens(Lengths(least=10, most=30)) == pytest.approx(20.0, abs=0.2)
    assert context_tokens(devices()) == 600.0
    assert resident_devices(devices(), SERVER) == pytest.approx(61_024 / 600)


def test_a_lone_round_is_draft_link_and_verification() -> None:
    group, draft = devices(acceptance=0.5), DraftSetting(3)
    found = outlook(group, SERVER, draft, 8.0)
    verify_s = 4 * 3.314e-5 + 604 * 4 * 3.45e-8 + 600 * 4.62e-6 + 1.486e-2
    assert found.expected_tokens == pytest.approx(1.875)
    assert found.round_s == pytest.approx(3 * 0.02 + link_s(group, draft) + verify_s + SERVER.dispatch_s)
    assert 0.05 < link_s(group, draft) < 0.051, "ids are a few hundred bits"
    assert found.tokens_per_s_alone == pytest.approx(1.875 / found.round_s)


def test_the_target_alone_serves_what_wisp_prints_for_centralized() -> None:
    served = [target_alone(devices(), SERVER, speed).devices for speed in (4.0, 6.0, 8.0)]
    assert served == pytest.approx([80, 54, 41], rel=0.1)


def test_memory_bounds_the_target_alone() -> None:
    assert target_alone(devices(), SERVER, 0.5).devices == pytest.approx(resident_devices(devices(), SERVER))


@given(st.floats(0.05, 0.95), st.floats(0.001, 0.2), st.sampled_from([1.0, 4.0, 8.0]))
def test_the_best_draft_serves_nearly_most_and_is_the_fastest_that_does(
    acceptance: float, step_s: float, speed: float
) -> None:
    group = devices(acceptance, step_s)
    best = best_draft(group, SERVER, speed, offered_drafts(group))
    others = [outlook(group, SERVER, draft, speed) for draft in offered_drafts(group)]
    assert best.devices >= 0.93 * max(other.devices for other in others)
    as_good = [other for other in others if other.devices >= best.devices]
    assert best.tokens_per_s_alone == max(other.tokens_per_s_alone for other in as_good)


def test_better_acceptance_serves_more_with_longer_drafts() -> None:
    poor, good = (best_draft(devices(acceptance), SERVER, 8.0, chains()) for acceptance in (0.4, 0.9))
    assert poor.devices < good.devices
    assert poor.draft.window < good.draft.window


def test_a_second_branch_pays_where_acceptance_is_low_and_the_prefix_read_dominates() -> None:
    group = devices(acceptance=0.3)
    chain, tree = best_draft(group, SERVER, 8.0, chains()), best_draft(group, SERVER, 8.0, trees())
    assert tree.devices > 1.1 * chain.devices


def test_windows_shrink_where_computing_dominates() -> None:
    compute_bound = VerifierModel(
        RooflineCostModel(MODELS["qwen3-32b"], HARDWARE["a100-80gb"]), BatchLimits(512, 8192, 1024)
    )
    group = devices(acceptance=0.8)
    assert (
        best_draft(group, compute_bound, 4.0, chains()).draft.window
        < best_draft(group, SERVER, 4.0, chains()).draft.window
    )


def test_a_drafter_slower_than_the_promise_serves_nobody() -> None:
    assert outlook(devices(acceptance=0.1, step_s=1.0), SERVER, DraftSetting(4), 8.0).devices == 0.0


def test_the_fastest_draft_grows_with_the_round_trip() -> None:
    group = devices()
    far = replace(group, link=LinkProfile(20e6, 20e6, 0.5))
    near_best, far_best = (fastest_draft(one, SERVER, chains()).draft.window for one in (group, far))
    assert near_best < far_best


def test_trees_are_offered_only_where_messages_carry_them() -> None:
    assert any(draft.expansion for draft in offered_drafts(devices()))
    assert not any(draft.expansion for draft in offered_drafts(devices(protocol="dssd")))

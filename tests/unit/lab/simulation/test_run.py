"""Timelines that can be followed by hand, and what holds for every run."""

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from lab.simulation.acceptance_models import SimPredictor
from lab.simulation.chance import link_seed
from lab.simulation.drafted_rounds import GroupDrafts
from lab.simulation.lengths import Lengths
from lab.simulation.results import SimulationResults
from lab.simulation.run import simulate
from lab.simulation.scenario import Scenario, System
from outrider.contracts.cost import LinearCostModel, VerifyCost
from outrider.contracts.errors import ParameterError
from outrider.contracts.link import Direction
from outrider.link.emulator import LinkEmulator
from outrider.link.profiles import LinkProfile
from tests.unit.lab.simulation.scenarios import LINK, TABLE_12, TENTH, WIDE, crowd, group, scenario, verifier


def timeline(results: SimulationResults) -> list[tuple[float, float, tuple[int, ...]]]:
    """When each step's members were planned, when it began, and its members."""
    return [
        (round(entry.planned_at_s, 6), round(entry.starts_at_s, 6), tuple(device for device, _ in entry.members))
        for entry in results.batch_log
    ]


def test_one_device_takes_draft_link_and_pass() -> None:
    results = simulate(scenario(group(link=LINK, exchange_s=0.001)))
    down_bits, up_bits = GroupDrafts(group()).bits[3]
    round_s = 0.02 + down_bits / 2e6 + up_bits / 1e6 + 3 * 0.05 + 0.001 + 0.1
    assert results.round_times.count == 2  # 1 + 4 + 4 tokens
    assert (results.round_times.p50_s, results.round_times.p99_s) == pytest.approx((round_s, round_s))
    assert results.first_token_times.mean_s == pytest.approx(0.1)
    assert results.measured_s == pytest.approx(0.1 + 2 * round_s)
    assert results.devices[0].speeds_tokens_per_s == pytest.approx((8 / (2 * round_s),))
    parts = results.draft_times, results.link_times, results.queue_times, results.verify_times
    assert sum(part.mean_s for part in parts) == pytest.approx(round_s)
    assert [(entry.new_tokens, entry.cached_tokens) for entry in results.batch_log] == [(10, 0), (4, 10), (4, 14)]


def test_two_devices_take_turns() -> None:
    first = group(step_s=0.03, window=1, output=Lengths(tokens=5))
    second = group(step_s=0.05, window=1, output=Lengths(tokens=3))
    results = simulate(scenario(first, second))
    assert timeline(results) == [
        (0.0, 0.0, (0,)),  # the first asks an instant before the second
        (0.0, 0.1, (1,)),  # joins at the next step
        (0.13, 0.2, (0,)),
        (0.25, 0.3, (1,)),
        (0.33, 0.4, (0,)),
    ]
    assert results.measured_s == pytest.approx(0.5)
    assert results.round_times.mean_s == pytest.approx(0.2)
    assert results.busy_share == pytest.approx(1.0)


def test_who_arrives_during_a_step_joins_the_next_one_and_nobody_who_decodes_alone_waits_for_it() -> None:
    early, late = (group(step_s=step_s, window=1, output=Lengths(tokens=3)) for step_s in (0.099, 0.101))
    results = simulate(scenario(group(window=0), early, late, duration_s=0.45))
    # The second and third device get their first token at 0.2; one drafts until 0.299, the other until 0.301.
    assert [members for _, _, members in timeline(results)] == [(0,), (0, 1, 2), (0,), (0, 1), (0, 2)]
    assert [begins for _, begins, _ in timeline(results)] == [0.0, 0.1, 0.2, 0.3, 0.4]


def test_a_decision_takes_a_while_to_reach_the_verifier() -> None:
    joins, misses = (group(step_s=step_s, window=1, output=Lengths(tokens=3)) for step_s in (0.097, 0.099))
    results = simulate(scenario(group(window=0), joins, misses, verifier=verifier(dispatch_s=0.002), duration_s=0.45))
    # As above, 2 ms later: drafted by 0.299 and 0.301, known to the verifier by 0.301 and 0.303.
    assert [members for _, _, members in timeline(results)][2:] == [(0,), (0, 1), (0, 2)]


def test_overheads_move_batches() -> None:
    results = simulate(scenario(verifier=verifier(dispatch_s=0.002, reply_s=0.01)))
    assert results.round_times.mean_s == pytest.approx(3 * 0.05 + 0.002 + 0.1 + 0.01)


def test_a_prompt_is_computed_in_chunks_shared_by_the_pass() -> None:
    limits = replace(WIDE, prefill_chunk_tokens=8)
    results = simulate(scenario(group(prompt=Lengths(tokens=20), window=0), verifier=verifier(limits=limits)))
    # The prompt's last position is the block's own row: it goes with the chunk that completes the prefix.
    assert [(e.new_tokens, e.cached_tokens) for e in results.batch_log[:4]] == [(8, 0), (8, 8), (4, 16), (1, 20)]
    assert results.first_token_times.mean_s == pytest.approx(0.3)
    three = simulate(scenario(group(count=3, prompt=Lengths(tokens=20), window=0), verifier=verifier(limits=limits)))
    assert [entry.new_tokens for entry in three.batch_log[1:4]] == [8, 9, 9]  # the first one decodes from the third on
    assert all(device.committed_tokens == 9 for device in three.devices)


def test_jitter_and_loss_are_the_product_links() -> None:
    rough = LinkProfile(1e6, 1e6, 0.05, 0.2, 0.2, 0.01)
    results = simulate(scenario(group(link=rough), seed=5))
    emulator, bits = LinkEmulator(rough, link_seed(5, 0)), GroupDrafts(group()).bits[3]
    now_s, times_s = 0.1, []
    for _ in range(2):
        arrives_at_s = emulator.deliver(Direction.UP, bits[1], emulator.deliver(Direction.DOWN, bits[0], now_s) + 0.15)
        times_s.append(arrives_at_s + 0.1 - now_s)
        now_s = arrives_at_s + 0.1
    assert results.round_times.mean_s == pytest.approx(sum(times_s) / 2)
    assert times_s[0] != pytest.approx(times_s[1], abs=1e-6)


MIXED = (crowd(6, 8.0), crowd(6, 4.0, predictor=SimPredictor()), crowd(6, 2.0, expansion=(2, 2, 1)))


def mixed(system: System, **changes: Any) -> Scenario:
    tight = replace(WIDE, prefill_chunk_tokens=256, max_memory_blocks=600)
    served = verifier(cost_model=TABLE_12, limits=tight, dispatch_s=0.002)
    return replace(scenario(*MIXED, system=system, verifier=served, responses_per_device=2, seed=3), **changes)


@pytest.mark.parametrize("system", System)
def test_nothing_is_lost_and_nothing_comes_from_nowhere(system: System) -> None:
    results = simulate(mixed(system))
    expected = simulate(mixed(System.SLED_KV))
    for device, same in zip(results.devices, expected.devices, strict=True):
        assert (device.responses, device.unfinished, device.starved) == (2, False, False)
        assert device.committed_tokens == same.committed_tokens  # two responses of the same lengths
        assert device.committed_tokens == device.accepted_tokens + device.rounds + device.responses
        assert device.timed_tokens == device.committed_tokens - device.responses
        assert device.accepted_tokens <= device.drafted_tokens
        if system is not System.CENTRALIZED:  # the same draws, whoever planned the batches
            assert (device.drafted_tokens, device.accepted_tokens) == (same.drafted_tokens, same.accepted_tokens)
    assert results.simulated_rounds == results.rounds + 2 * 18
    assert results.round_times.count == results.rounds
    assert sum(size * count for size, count in results.batch_sizes) >= results.simulated_rounds
    assert sum(count for _, count in results.stop_reasons) == results.batches == len(results.batch_log)


@pytest.mark.parametrize("system", System)
def test_passes_follow_one_another_in_time(system: System) -> None:
    log = simulate(mixed(system)).batch_log
    for before, after in pairwise(log):
        assert after.starts_at_s >= before.starts_at_s + before.took_s - 1e-12
        assert after.planned_at_s >= before.planned_at_s
        assert after.members
    assert all(entry.planned_at_s <= entry.starts_at_s for entry in log)


@pytest.mark.parametrize("system", System)
def test_identical_inputs_give_identical_batches(system: System) -> None:
    first = simulate(mixed(system))
    assert simulate(mixed(system)) == first
    assert simulate(mixed(system, seed=4)).batch_log != first.batch_log


def test_noise_is_seeded_and_leaves_the_median() -> None:
    noisy = verifier(noise=0.2)
    results = simulate(scenario(group(output=Lengths(tokens=2000)), verifier=noisy))
    took_s = sorted(entry.took_s for entry in results.batch_log)
    assert took_s[len(took_s) // 2] == pytest.approx(0.1, rel=0.05)
    assert took_s[-1] > 0.13
    assert simulate(scenario(group(output=Lengths(tokens=2000)), verifier=noisy)) == results


def test_a_full_memory_evicts_and_computes_again() -> None:
    limits = replace(WIDE, max_memory_blocks=4)  # of 16 tokens: two devices of 10 + 9 tokens and their drafts
    full = simulate(scenario(group(count=5), verifier=verifier(limits=limits)))
    assert full.evictions > 0
    assert full.recomputed_tokens > 0
    assert all(device.committed_tokens == 9 for device in full.devices)
    roomy = simulate(scenario(group(count=3), verifier=verifier(limits=replace(WIDE, max_memory_blocks=6))))
    assert (roomy.evictions, roomy.recomputed_tokens) == (0, 0)
    with pytest.raises(ParameterError, match="at least 2, as responses are long, found 1"):
        simulate(scenario(verifier=verifier(limits=replace(WIDE, max_memory_blocks=1))))


def test_an_evicted_block_is_known_to_be_cold() -> None:
    limits = replace(WIDE, max_memory_blocks=4)
    cost = LinearCostModel(0.01, 0.0, 0.0, 0.0)
    log = simulate(scenario(group(count=6), verifier=verifier(limits=limits, cost_model=cost))).batch_log
    assert max(entry.new_tokens for entry in log[3:]) > 8  # a prefix, not a draft
    assert sum(entry.predicted_s for entry in log) == pytest.approx(sum(entry.took_s for entry in log))


def test_the_parts_of_rounds_add_up_over_several_passes() -> None:
    limits = replace(WIDE, max_memory_blocks=8, prefill_chunk_tokens=16)
    long = group(count=6, prompt=Lengths(tokens=40), link=LINK)
    results = simulate(scenario(long, verifier=verifier(limits=limits)))
    assert results.recomputed_tokens > 0
    parts = results.draft_times, results.link_times, results.queue_times, results.verify_times
    assert sum(part.mean_s for part in parts) == pytest.approx(results.round_times.mean_s)


def test_the_next_response_of_a_device_begins_cold() -> None:
    log = simulate(scenario(responses_per_device=2)).batch_log
    assert [(e.new_tokens, e.cached_tokens) for e in log] == 2 * [(10, 0), (4, 10), (4, 14)]


def test_a_warm_up_changes_no_steady_speed() -> None:
    long = group(output=Lengths(tokens=401), link=LINK)
    whole, part = simulate(scenario(long)), simulate(scenario(long, warmup_s=5.0))
    assert part.devices[0].achieved_tokens_per_s == pytest.approx(whole.devices[0].achieved_tokens_per_s)
    assert part.devices[0].rounds < whole.devices[0].rounds
    assert part.measured_s == pytest.approx(whole.measured_s - 5.0)
    assert part.devices[0].responses == 1
    assert simulate(scenario(warmup_s=900.0)).devices[0].committed_tokens == 0


def test_pauses_and_staggering_spread_devices() -> None:
    busy = group(count=50, stagger_s=10.0, pause_s=3.0, output=Lengths(tokens=5))
    log = simulate(scenario(busy, responses_per_device=20, verifier=verifier(cost_model=TABLE_12))).batch_log
    first = [min(e.planned_at_s for e in log if (device, 1) in e.members) for device in range(50)]
    assert 0.0 < min(first) < 2.0
    assert 8.0 < max(first) < 10.1
    assert 70.0 < log[-1].starts_at_s < 130.0  # 19 pauses of 3 s are 57 s and deviate by 13 s; the longest of 50


def test_rates_that_depend_on_nothing_else_scale_with_speed() -> None:
    slow = scenario(group(count=4, link=LINK, acceptance=(0.7,), output=Lengths(tokens=60)), seed=9)
    link = LinkProfile(LINK.up_bps * 2, LINK.down_bps * 2, LINK.rtt_s / 2)
    halved = LinearCostModel(0.0, 0.0, 0.0, TENTH.seconds_per_batch / 2)
    fast = replace(
        slow,
        groups=(replace(slow.groups[0], step_s=0.025, link=link),),
        verifier=replace(slow.verifier, cost_model=halved),
    )
    assert simulate(fast).goodput_tokens_per_s == pytest.approx(2 * simulate(slow).goodput_tokens_per_s)
    costs = [VerifyCost(entry.new_tokens, entry.cached_tokens) for entry in simulate(slow).batch_log]
    assert costs == [VerifyCost(entry.new_tokens, entry.cached_tokens) for entry in simulate(fast).batch_log]

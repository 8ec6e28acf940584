"""What makes one system differ from another."""

from dataclasses import replace

import pytest

from lab.simulation.lengths import Lengths
from lab.simulation.run import simulate
from lab.simulation.scenario import System, rules_of
from outrider.contracts.cost import LinearCostModel
from outrider.link.profiles import LinkProfile
from outrider.scheduling.ledger import DeadlineRule
from outrider.scheduling.registry import SCHEDULING, Scheduling
from outrider.scheduling.slo_aware import SloAware
from tests.unit.lab.simulation.scenarios import (
    LINK,
    TABLE_12,
    TENTH,
    WIDE,
    crowd,
    group,
    scenario,
    verifier,
)


def test_a_scenario_replaces_single_rules() -> None:
    rules = rules_of(scenario(system=System.OUTRIDER, scheduling=SCHEDULING["fcfs"]))
    assert (rules.scheduling, rules.keeps_kv) == (SCHEDULING["fcfs"], True)
    assert rules_of(scenario(system=System.SLED)).keeps_kv is False
    assert rules_of(scenario(system=System.WISP)).scheduling.deadlines is DeadlineRule.ROUND


def test_sled_computes_the_whole_prefix_every_time() -> None:
    tiny_chunks = verifier(limits=replace(WIDE, prefill_chunk_tokens=2))
    results = simulate(scenario(system=System.SLED, verifier=tiny_chunks))
    assert [(e.new_tokens, e.cached_tokens) for e in results.batch_log] == [(10, 0), (14, 0), (18, 0)]
    assert results.recomputed_tokens == 10 + 14
    kept = simulate(scenario(system=System.SLED_KV))
    assert kept.recomputed_tokens == 0
    cost = LinearCostModel(0.01, 0.0, 0.0, 0.0)
    assert simulate(scenario(system=System.SLED, verifier=verifier(cost_model=cost))).busy_s == pytest.approx(0.42)


@pytest.mark.parametrize("devices", [1, 16, 64])
def test_centralized_decodes_a_token_of_everybody_in_each_pass(devices: int) -> None:
    costs = LinearCostModel(0.001, 0.0, 0.0, 0.05)
    endless = group(count=devices, prompt=Lengths(tokens=1), output=Lengths(tokens=5000), link=LINK)
    results = simulate(
        scenario(endless, system=System.CENTRALIZED, verifier=verifier(cost_model=costs), duration_s=30, warmup_s=5)
    )
    assert results.goodput_tokens_per_s == pytest.approx(devices / (0.05 + 0.001 * devices), rel=0.01)  # B / T(B)
    assert results.batch_sizes == ((devices, results.batches),)
    assert results.link_times.p99_s == results.draft_times.p99_s == 0.0


@pytest.mark.long
def test_kept_kv_beats_recomputing_and_drafts_beat_decoding_with_the_papers_costs() -> None:
    served = verifier(cost_model=TABLE_12, dispatch_s=0.002)
    goodput = {
        system: simulate(
            scenario(crowd(40), system=system, verifier=served, duration_s=40, warmup_s=10, responses_per_device=None)
        ).goodput_tokens_per_s
        for system in System
    }
    assert goodput[System.SLED_KV] > 2.0 * goodput[System.SLED]
    assert goodput[System.SLED_KV] > goodput[System.CENTRALIZED]


def test_round_deadlines_and_ledger_deadlines_reach_the_policy() -> None:
    late = crowd(30, 8.0, step_s=0.05)
    served = verifier(cost_model=TENTH, limits=replace(WIDE, max_blocks=8))
    rules = [Scheduling(SloAware(), rule) for rule in DeadlineRule]
    runs = [
        simulate(scenario(late, scheduling=one, verifier=served, responses_per_device=3)).batch_log for one in rules
    ]
    assert runs[0] != runs[1]


def test_planning_late_makes_the_same_batches() -> None:
    """With drafts that nobody cuts and prompts that go in one piece; in another order inside a batch."""
    jitters = LinkProfile(500e6, 500e6, 0.05, jitter_s=0.01)  # or blocks come together, and the order decides
    lasting = replace(crowd(40), output=Lengths(tokens=60), prompt=Lengths(tokens=30), link=jitters, step_spread=0.1)
    served = verifier(cost_model=TABLE_12, dispatch_s=0.002)
    logs = [
        simulate(scenario(lasting, verifier=served, plans_late=late, duration_s=8.0)).batch_log
        for late in (False, True)
    ]
    at_once, late = ([(entry.starts_at_s, sorted(entry.members)) for entry in log] for log in logs)
    assert len(at_once) > 100
    assert at_once == late


def test_first_tokens_are_due_where_a_scenario_says() -> None:
    """A prompt comes to a verifier that is busy with others, whose deadlines are before its own or behind it."""
    busy = crowd(60, name="busy", output=Lengths(tokens=200), stagger_s=0.5)
    comes = crowd(
        1, 2.0, name="comes", from_s=4.0, until_s=4.1, prompt=Lengths(tokens=1500), stagger_s=0.0, pause_s=0.0
    )
    served = verifier(cost_model=TABLE_12)

    def first_token_s(due_s: float) -> float:
        made = scenario(
            busy, comes, system=System.OUTRIDER, verifier=served, duration_s=9.0, warmup_s=3.9, plans_late=True
        )
        return simulate(replace(made, first_token_s=due_s)).first_token_times.p99_s

    assert first_token_s(0.05) < 0.5 * first_token_s(3.0)

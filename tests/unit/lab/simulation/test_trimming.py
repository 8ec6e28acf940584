"""Cutting drafts and holding passes in the simulator: what they bring, and that they cost nothing where they do not."""

from dataclasses import replace

import pytest

from lab.simulation.drafted_rounds import SimResponse, Workload
from lab.simulation.lengths import Lengths
from lab.simulation.run import EventLoop, RunTally, modelled_devices, simulate
from lab.simulation.scenario import Scenario, System, rules_of
from lab.simulation.server import SimulatedServer
from outrider.contracts.cost import LinearCostModel
from outrider.rounds.present_load import PresentLoad
from outrider.scheduling.steps import StepRules
from tests.unit.lab.simulation.scenarios import group, scenario, verifier

ROWS_COST = LinearCostModel(4.5e-3, 2e-7, 8e-6, 45e-3)
ROWS_FREE = LinearCostModel(2e-5, 2e-9, 2e-7, 27e-3)
NEITHER, TRIMS, HOLDS = StepRules(trims=False, holds=False), StepRules(holds=False), StepRules(trims=False)


def crowd(model: LinearCostModel, clients: int, window: int, steps: StepRules, step_s: float = 0.004) -> Scenario:
    drafting = group(
        count=clients,
        acceptance=(0.7,),
        window=window,
        step_s=step_s,
        exchange_s=0.002,
        step_spread=0.1,
        prompt=Lengths(tokens=100),
        output=Lengths(least=100, most=300),
        protocol="token_ids",
    )
    server = verifier(cost_model=model, dispatch_s=0.001, reply_s=0.001)
    return scenario(
        drafting,
        verifier=server,
        system=System.OUTRIDER,
        steps=steps,
        responses_per_device=None,
        duration_s=12.0,
        keep_batch_log=False,
    )


class Later:
    """A device that begins so much later."""

    def __init__(self, workload: Workload, after_s: float) -> None:
        self._workload, self._after_s = workload, after_s

    def __getattr__(self, name: str) -> object:
        """All else is the device's."""
        return getattr(self._workload, name)

    def begin(self) -> SimResponse | None:
        response, after_s = self._workload.begin(), self._after_s
        self._after_s = 0.0
        return None if response is None else response._replace(pause_s=response.pause_s + after_s)


def tokens_of_a_load_step(window: int, steps: StepRules) -> int:
    """Four clients, and sixteen from the middle on."""
    of = crowd(ROWS_COST, 16, window, steps)
    rules, load = rules_of(of), PresentLoad()
    devices = modelled_devices(of, rules, load)
    for device in devices[4:]:
        device.workload = Later(device.workload, 6.0)  # type: ignore[assignment]  # it is one by delegation
    server, tally = SimulatedServer(of.verifier, rules, of.seed), RunTally(0.0, keep_batch_log=False)
    loop = EventLoop(devices, server, tally, load)
    loop.run(of.duration_s)
    return sum(one.committed_tokens for one in loop.results("step", "outrider", 0).devices)


def tokens(of: Scenario) -> int:
    return sum(one.committed_tokens for one in simulate(of).devices)


@pytest.mark.parametrize(("window", "least"), [(4, 1.0), (8, 1.05)])
def test_a_step_of_the_load_is_met_by_cutting_drafts(window: int, least: float) -> None:
    assert tokens_of_a_load_step(window, TRIMS) >= least * tokens_of_a_load_step(window, NEITHER)


@pytest.mark.parametrize("clients", [1, 8])
@pytest.mark.parametrize("model", [ROWS_COST, ROWS_FREE], ids=["rows cost", "rows are free"])
def test_nowhere_worse(model: LinearCostModel, clients: int) -> None:
    assert tokens(crowd(model, clients, 4, StepRules())) >= 0.99 * tokens(crowd(model, clients, 4, NEITHER))


def test_who_comes_back_within_a_hold_shares_a_pass() -> None:
    """They begin at once and are nearly as quick as one another: without a hold the first has a pass for itself."""
    runs = []
    for steps in (HOLDS, NEITHER):
        of = crowd(ROWS_FREE, 4, 4, steps, step_s=0.01)
        (alike,) = of.groups
        alike = replace(alike, step_spread=0.02, output=Lengths(tokens=2000))
        runs.append(simulate(replace(of, groups=(alike,), duration_s=6.0)))
    held, split = runs
    assert held.batches < 0.9 * split.batches
    assert sum(one.committed_tokens for one in held.devices) > 1.05 * sum(one.committed_tokens for one in split.devices)

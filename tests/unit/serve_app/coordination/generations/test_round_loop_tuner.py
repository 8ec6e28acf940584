"""Responses under a verifier's speculation tuner: what is drafted follows the mode, what is answered never does."""

import asyncio
from dataclasses import replace
from itertools import pairwise

import pytest

from outrider.contracts.requests import SamplingParams
from outrider.selection.modes import DRAFT, NONE, SpeculationMode
from outrider.selection.tuning.speculation_tuner import SpeculationTuner
from tests.unit.engines.conftest import tiny_llama, torch_drafter
from tests.unit.serve_app.api.in_memory_service import Service, request_for, tokens_of, truth_of
from tests.unit.serve_app.coordination.in_memory import GREEDY, SAMPLED, EngineTransport
from tests.unit.virtual_clock import now_s, on_loop

PERIOD_S = 0.02


class Alternating(SpeculationTuner):
    """Changes modes again and again."""

    @property
    def mode(self) -> SpeculationMode:
        """In use now."""
        return (NONE, DRAFT)[int(now_s() / PERIOD_S) % 2]


def service_under(tuner: SpeculationTuner) -> Service:
    """Whose drafter is always right, and asked in each round of a drafting mode."""
    service = Service(EngineTransport(torch_drafter(tiny_llama())), tuner=tuner)
    speculation = replace(service.rules.speculation, window=None, k_max=4)
    service.rules = replace(service.rules, speculation=speculation)
    return service


@on_loop
async def test_without_a_drafting_mode_no_drafter_is_asked_for() -> None:
    service = service_under(SpeculationTuner((NONE,), now_s()))
    request = request_for()
    assert tokens_of(await service.response(request)) == truth_of(request)
    assert (service.generations["g"].stats.drafted_tokens, service.fleet.excluded) == (0, [])
    own = replace(request_for("own", window=2))
    assert tokens_of(await service.response(own)) == truth_of(own)
    assert service.generations["own"].stats.drafted_tokens > 0, "a request's own window is its own"
    await service.idle()


@pytest.mark.parametrize("params", [GREEDY, SAMPLED], ids=["greedy", "sampled"])
@on_loop
async def test_changing_modes_changes_no_token_and_drafts_are_as_good_as_before(params: SamplingParams) -> None:
    service = service_under(tuner := Alternating((NONE, DRAFT), now_s()))
    request = replace(request_for(params=params), max_tokens=200, ignore_eos=True)
    assert tokens_of(await service.response(request)) == truth_of(request)
    arms = [timing.mode for timing in service.timings]
    changes = sum(one is not other for one, other in pairwise(arms))
    assert changes >= 4
    drafted = [timing for timing in service.timings if timing.drafted_tokens]
    assert {timing.mode for timing in drafted} == {DRAFT}
    right = [
        timing.accepted_tokens + timing.trimmed_tokens for timing in drafted
    ]  # some beside an autonomous run, and late
    assert right == [timing.drafted_tokens for timing in drafted], "also behind a stretch"
    assert len(service.fleet.excluded) == 1, "one drafter is leased, once"
    assert tuner.report(now_s()).active_s > 0.0
    await service.idle()


@on_loop
async def test_a_tuner_hears_of_all_that_is_active_and_of_nobody_else() -> None:
    heard = list[str]()

    class Hearing(SpeculationTuner):
        def began(self, generation: str, now_s: float, *, counts: bool = True) -> None:
            heard.append(f"began {generation} {counts}")
            super().began(generation, now_s, counts=counts)

        def asked(self, generation: str) -> None:
            heard.append(f"asked {generation}")
            super().asked(generation)

        def ended(self, generation: str, now_s: float) -> None:
            heard.append(f"ended {generation}")
            super().ended(generation, now_s)

    service = service_under(Hearing((NONE, DRAFT), now_s()))
    leaving = asyncio.create_task(service.make(request_for("left"), lambda _: None))
    await asyncio.sleep(0.0005)
    leaving.cancel()
    await asyncio.gather(leaving, return_exceptions=True)
    assert heard == ["asked left", "ended left"], "it was never active"
    heard.clear()
    await asyncio.gather(service.response(request_for("a")), service.response(request_for("b", window=0)))
    assert sorted(heard) == ["asked a", "asked b", "began a True", "began b False", "ended a", "ended b"]
    await service.idle()

from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from outrider.contracts.cost import VerifyCost
from outrider.contracts.prefix import EMPTY_PREFIX_HASH, extend_prefix_hash
from outrider.contracts.verifying import Block
from outrider.engines.emulated_speed import EmulatedSpeed, PassTimer, slowed_drafter, slowed_verifier
from outrider.engines.limits import EngineLimits
from outrider.engines.torch.verifier import TorchVerifier
from tests.unit.engines.conftest import BLOCK_TOKENS, loaded, tiny_llama, torch_drafter
from tests.unit.engines.drafter_device import GREEDY, TERMS, Device, draft_of


@dataclass
class Time:
    """Passes by sleeping alone."""

    now_s: float = 0.0
    slept_s: list[float] = field(default_factory=list)

    def clock(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.slept_s.append(seconds)
        self.now_s += seconds


def test_a_draft_step_takes_its_time_and_drafts_the_same() -> None:
    time, device = Time(), Device("a", GREEDY)
    paced = slowed_drafter(torch_drafter(tiny_llama()), PassTimer(EmulatedSpeed(0.1), time.clock, time.sleep))
    whole = torch_drafter(tiny_llama())
    for engine in (paced, whole):
        engine.open(device.opening(), TERMS)
    request = device.request(4)
    assert draft_of(paced, request) == draft_of(whole, request)
    assert time.slept_s == pytest.approx([0.1] * 4)


def test_a_slow_pass_is_not_made_slower() -> None:
    time = Time()
    waiting = PassTimer(EmulatedSpeed(0.1, row_s=0.01), time.clock, time.sleep)
    began_at_s = waiting.begun()
    time.now_s += 0.08
    waiting.until_over(began_at_s, rows=1)
    time.now_s += 5.0
    waiting.until_over(began_at_s, rows=1)
    assert [round(seconds, 6) for seconds in time.slept_s] == [0.03]


def test_a_pass_takes_more_for_each_position_it_computes() -> None:
    time, device = Time(), Device("a", GREEDY)
    limits = EngineLimits(2**22, BLOCK_TOKENS)
    engine = slowed_verifier(
        TorchVerifier(loaded(tiny_llama()), limits), PassTimer(EmulatedSpeed(1.0, 0.5), time.clock, time.sleep)
    )
    opening = device.opening()
    engine.open(opening)
    prefix = (*opening.prompt_ids, *opening.output_ids)
    engine.verify([Block("a", 0, len(prefix), extend_prefix_hash(EMPTY_PREFIX_HASH, prefix))])
    assert time.slept_s == pytest.approx([1.0 + 0.5 * rows_of(engine.last_pass())])
    assert not EmulatedSpeed()


def rows_of(computed: Sequence[VerifyCost]) -> int:
    return sum(cost.new_tokens for cost in computed)

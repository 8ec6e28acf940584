"""Small scenarios, with numbers that can be followed by hand."""

from typing import Any

from lab.simulation.lengths import Lengths
from lab.simulation.scenario import DeviceGroup, Scenario, System, VerifierModel
from outrider.contracts.cost import LinearCostModel
from outrider.contracts.slo import SloClass
from outrider.link.profiles import LinkProfile
from outrider.scheduling.policy import BatchLimits

TABLE_12 = LinearCostModel(3.314e-5, 3.45e-8, 4.62e-6, 1.486e-2)  # WISP
TENTH = LinearCostModel(0.0, 0.0, 0.0, 0.1)  # every pass takes 0.1 s
LINK = LinkProfile(up_bps=1e6, down_bps=2e6, rtt_s=0.02)
WIDE = BatchLimits(max_blocks=256, max_new_tokens=8192, prefill_chunk_tokens=2048)


def group(**changes: Any) -> DeviceGroup:
    """One device, 10 tokens of prompt, 9 of response, 4 drafted at 50 ms each, all accepted, no link."""
    fields: dict[str, Any] = {
        "name": "group",
        "count": 1,
        "step_s": 0.05,
        "acceptance": (1.0,),
        "prompt": Lengths(tokens=10),
        "output": Lengths(tokens=9),
        "window": 3,
    }
    return DeviceGroup(**(fields | changes))


def verifier(**changes: Any) -> VerifierModel:
    """0.1 s a pass, no overheads."""
    fields: dict[str, Any] = {"cost_model": TENTH, "limits": WIDE, "dispatch_s": 0.0}
    return VerifierModel(**(fields | changes))


def scenario(*groups: DeviceGroup, **changes: Any) -> Scenario:
    """``sled_kv`` for at most 1000 s, one response per device, with a batch log."""
    fields: dict[str, Any] = {
        "name": "test",
        "system": System.SLED_KV,
        "groups": groups or (group(),),
        "verifier": verifier(),
        "duration_s": 1000.0,
        "responses_per_device": 1,
        "keep_batch_log": True,
    }
    return Scenario(**(fields | changes))


def crowd(count: int, tokens_per_s: float = 8.0, **changes: Any) -> DeviceGroup:
    """Devices as in the papers: 500 tokens of prompt, a link of 50 ms, 0.8 of the tokens accepted."""
    fields: dict[str, Any] = {
        "name": f"speed_{tokens_per_s:g}",
        "count": count,
        "step_s": 0.02,
        "acceptance": (0.8,),
        "prompt": Lengths(least=300, most=700),
        "output": Lengths(least=20, most=100),
        "slo": SloClass(f"speed_{tokens_per_s:g}", tokens_per_s),
        "window": 4,
        "link": LinkProfile(500e6, 500e6, 0.05),
        "pause_s": 0.5,
        "stagger_s": 2.0,
    }
    return DeviceGroup(**(fields | changes))

"""Small fleets, with numbers that can be followed by hand."""

from typing import Any

from lab.simulation.fleet.scenario import DrafterGroup, FleetScenario, SystemPrompts, Traffic
from lab.simulation.lengths import Lengths
from outrider.contracts.slo import SloClass
from outrider.scheduling.policy import BatchLimits
from tests.unit.lab.simulation.scenarios import LINK, TABLE_12, verifier

LIMITS = BatchLimits(256, 8192, 1024, 4000)


def drafters(**changes: Any) -> DrafterGroup:
    """Eight devices that draft four tokens at 20 ms each, over a link."""
    fields: dict[str, Any] = {
        "name": "phones",
        "count": 8,
        "step_s": 0.02,
        "acceptance": (0.8,),
        "window": 4,
        "link": LINK,
        "max_generations": 4,
    }
    return DrafterGroup(**(fields | changes))


def traffic(**changes: Any) -> Traffic:
    """Eight users at 4 tokens/s; one question each time, and no pause."""
    fields: dict[str, Any] = {
        "name": "users",
        "slo": SloClass("steady", 4.0),
        "users": 8,
        "prompt": Lengths(least=50, most=150),
        "output": Lengths(least=10, most=40),
        "pause_s": 0.5,
    }
    return Traffic(**(fields | changes))


def talks(**changes: Any) -> Traffic:
    """The same users in conversations of three to six turns, which begin with one of two system prompts."""
    fields: dict[str, Any] = {
        "message": Lengths(least=10, most=30),
        "turns": Lengths(least=3, most=6),
        "think_s": 0.5,
        "system_prompts": SystemPrompts(2, 200),
        "max_context_tokens": 4000,
    }
    return traffic(**(fields | changes))


def fleet(**changes: Any) -> FleetScenario:
    """Three verifiers at WISP's costs, for 20 s."""
    fields: dict[str, Any] = {
        "name": "fleet",
        "verifiers": 3,
        "verifier": verifier(cost_model=TABLE_12, limits=LIMITS, dispatch_s=0.002),
        "drafters": (drafters(),),
        "traffic": (talks(),),
        "duration_s": 20.0,
    }
    return FleetScenario(**(fields | changes))

import pytest

from outrider.contracts.errors import ParameterError
from outrider.selection.cheapest import Cheapest
from outrider.simulation.acceptance_models import Predictor
from outrider.simulation.scenario import Scenario, System
from tests.unit.simulation.scenarios import group, scenario, verifier


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"count": 0}, "count needs a number of at least 1, found 0"),
        ({"step_s": -1.0}, "step_s"),
        ({"expansion": (2, 0)}, "expansion"),
        ({"expansion": (2,), "predictor": Predictor()}, "predictor needs a chain"),
        ({"selection": Cheapest(), "predictor": Predictor()}, "selection needs neither"),
    ],
)
def test_groups_that_cannot_be(changes: dict[str, object], message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        group(**changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"groups": ()}, "at least one group"),
        ({"warmup_s": 1000.0}, "below duration_s = 1000"),
        ({"duration_s": float("inf"), "responses_per_device": None}, "duration_s needs a finite number"),
        ({"responses_per_device": 0}, "responses_per_device"),
        ({"system": System.COLOCATED, "verifier": verifier(draft_cost_model=None)}, "draft_cost_model"),
    ],
)
def test_scenarios_that_cannot_be(changes: dict[str, object], message: str) -> None:
    fields = {name: getattr(scenario(), name) for name in Scenario.__slots__} | changes
    with pytest.raises(ParameterError, match=message):
        Scenario(**fields)


def test_verifiers_that_cannot_be() -> None:
    with pytest.raises(ParameterError, match="noise"):
        verifier(noise=-0.1)
    with pytest.raises(ParameterError, match="kv_block_tokens"):
        verifier(kv_block_tokens=0)
    assert scenario(group(count=3), group(count=2)).device_count == 5

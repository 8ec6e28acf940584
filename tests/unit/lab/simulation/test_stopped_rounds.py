from dataclasses import replace

import pytest

from lab.simulation.acceptance_models import SimPredictor
from lab.simulation.drafted_rounds import GroupDrafts, SimDraft
from lab.simulation.lengths import Lengths
from lab.simulation.run import simulate
from lab.simulation.scenario import DeviceGroup
from lab.simulation.stopped_rounds import GroupPrices, StoppingDevice
from lab.simulation.stopping import UNCHANGED, Calibrated, Flags, SimStopSetting, flagging
from outrider.contracts.cost import LinearCostModel
from outrider.contracts.errors import ParameterError
from outrider.contracts.price import PRICE_BITS, DraftPrice
from outrider.drafting.cost_aware import CostAwareStop
from outrider.drafting.stops import NeverStop, SendAndStop, StopBefore, StopRule
from outrider.rounds.present_load import PresentLoad
from tests.unit.lab.simulation.long_response import mean_tokens, rounds_of
from tests.unit.lab.simulation.scenarios import TABLE_12, TENTH, crowd, group, scenario, verifier

TOKENS = 40_000
FREE = LinearCostModel(0.0, 0.0, 0.0, 1e-3)


def rounds(
    drafting: DeviceGroup, stopping: SimStopSetting | None = None, costs: LinearCostModel = TENTH
) -> list[SimDraft]:
    """Every round of one long response."""
    drafts = GroupDrafts(drafting)
    if stopping is None:
        assert drafting.predictor is not None
        stopping = flagging(drafting.predictor)
    prices = GroupPrices(drafts, costs, PresentLoad())
    return rounds_of(StoppingDevice(drafts, stopping, prices, 0, 1, None))


def long(**changes: object) -> DeviceGroup:
    return group(**({"acceptance": (0.8,), "window": 6, "output": Lengths(tokens=TOKENS)} | changes))


@pytest.mark.parametrize("sends_flagged", [True, False])
def test_a_predictor_stops_drafts_as_its_rates_say(*, sends_flagged: bool) -> None:
    chance, recall, window = 0.8, 0.8, 6
    predictor = SimPredictor(recall, 0.425, sends_flagged=sends_flagged)
    made = rounds(long(predictor=predictor))
    both = chance * recall  # good and let pass; the last good one may be flagged if it is sent
    accepted = sum(both**k * (1.0 if not sends_flagged else chance / both) for k in range(1, window + 1))
    assert mean_tokens(made) == pytest.approx(1.0 + accepted, rel=0.02)
    assert mean_tokens(made) == pytest.approx(sum(draft.expected_tokens for draft in made) / len(made), rel=0.02)


class NoTable:
    """Hides that a predictor says only yes or no."""

    def __init__(self, flags: Flags) -> None:
        self.predict, self.believed = flags.predict, flags.believed


@pytest.mark.parametrize("rule", [StopBefore, SendAndStop])
@pytest.mark.parametrize("acceptance", [(0.8,), (0.9, 0.7, 0.4)])
def test_tables_of_flagged_chains_are_the_rule_token_by_token(
    rule: type[StopBefore | SendAndStop], acceptance: tuple[float, ...]
) -> None:
    flags, drafting = Flags(SimPredictor(0.8, 0.425)), long(acceptance=acceptance, output=Lengths(tokens=4_000))
    tabled = rounds(drafting, SimStopSetting(flags, rule(UNCHANGED, 0.5)))
    assert len({draft.nodes for draft in tabled}) > 3
    assert tabled == rounds(drafting, SimStopSetting(NoTable(flags), rule(UNCHANGED, 0.5)))


def test_a_withheld_token_was_drafted_all_the_same() -> None:
    made = rounds(group(acceptance=(0.8,), predictor=SimPredictor(sends_flagged=False), window=4))
    assert all(draft.draft_s >= 0.05 * draft.nodes for draft in made)
    assert all(draft.bits is not None for draft in made if draft.draft_s > 0.0)
    never = SimPredictor(recall=0.0, false_positive_rate=0.0, sends_flagged=False)
    first = rounds(group(predictor=never))[0]
    assert (first.nodes, first.draft_s) == (0, 0.05)


@pytest.mark.parametrize("rule", [None, StopBefore(UNCHANGED, 0.7), SendAndStop(UNCHANGED, 0.7)])
def test_a_block_that_came_brings_what_its_predictor_told(rule: StopRule | None) -> None:
    made = rounds(long(), SimStopSetting(Calibrated(0.8), rule))
    assert len({draft.nodes for draft in made}) > 3, "drafts stop here and there"
    assert mean_tokens(made) == pytest.approx(sum(draft.expected_tokens for draft in made) / len(made), rel=0.02)


def test_who_never_stops_drafts_whole_windows() -> None:
    """The same rounds as a device without a rule, pass by pass."""
    plain = crowd(6, stagger_s=0.5)
    never = replace(plain, stopping=SimStopSetting(Calibrated(0.8), NeverStop()))
    runs = [simulate(scenario(one, responses_per_device=2)) for one in (plain, never)]
    assert runs[0].batch_log == runs[1].batch_log


def test_a_price_is_in_the_order() -> None:
    whole, priced = (rounds(long(), SimStopSetting(Calibrated(0.8), rule), FREE)[0] for rule in (NeverStop(), None))
    assert whole.bits is not None
    assert priced.bits is not None
    assert priced.bits[0] == whole.bits[0] + PRICE_BITS


def test_a_slow_device_stops_earlier() -> None:
    fast, slow = (rounds(long(step_s=step_s), SimStopSetting(Calibrated(0.8))) for step_s in (0.001, 0.2))
    assert sum(draft.depth for draft in fast) / len(fast) > 1.5 * sum(draft.depth for draft in slow) / len(slow)


@pytest.mark.parametrize("step_s", [0.005, 0.05, 0.2])
@pytest.mark.parametrize(
    "costs", [TENTH, LinearCostModel(0.05, 0.0, 0.0, 0.1), FREE], ids=["free rows", "dear", "fast"]
)
def test_alone_nothing_fixed_is_faster(step_s: float, costs: LinearCostModel) -> None:
    """One device on an idle verifier, against each window and each threshold with the same predictor."""
    foreteller = Calibrated(0.85)

    def tokens_per_s(window: int, stopping: SimStopSetting | None) -> float:
        drafting = long(window=window, step_s=step_s, output=Lengths(tokens=2000), stopping=stopping)
        found = simulate(scenario(drafting, verifier=verifier(cost_model=costs), duration_s=1e6))
        return 2000 / found.measured_s

    priced = tokens_per_s(12, SimStopSetting(foreteller))
    windows = [tokens_per_s(window, None) for window in (1, 2, 4, 8, 12)]
    flagged = [
        tokens_per_s(12, SimStopSetting(foreteller, rule(UNCHANGED, least)))
        for rule in (StopBefore, SendAndStop)
        for least in (0.3, 0.6)
    ]
    assert priced >= 0.97 * max(windows + flagged)


def test_a_price_of_its_own_may_be_fixed() -> None:
    made = rounds(long(), SimStopSetting(Calibrated(0.8), CostAwareStop(UNCHANGED, DraftPrice(1.0, 1.0))))
    assert {draft.nodes for draft in made} == {0}


def test_two_cannot_decide_on_one_draft() -> None:
    for other in ({"predictor": SimPredictor()}, {"expansion": (2, 1)}):
        with pytest.raises(ParameterError, match="stopping needs neither expansion nor predictor"):
            group(stopping=SimStopSetting(Calibrated(0.8)), **other)


def test_a_whole_service_at_published_costs_commits_everything() -> None:
    stopping = SimStopSetting(Calibrated(0.8))
    found = simulate(scenario(crowd(8, stopping=stopping), verifier=verifier(cost_model=TABLE_12)))
    assert not any(device.unfinished for device in found.devices)
    assert all(device.drafted_tokens > 0 for device in found.devices)

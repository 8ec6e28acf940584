import pytest

from lab.simulation.drafted_rounds import NO_DRAFT, GroupDrafts, ModelledDevice, SimDraft
from lab.simulation.lengths import Lengths
from lab.simulation.scenario import DeviceGroup
from tests.unit.lab.simulation.long_response import mean_tokens, rounds_of
from tests.unit.lab.simulation.scenarios import group

TOKENS = 60_000


def rounds(drafting: DeviceGroup, seed: int = 1) -> list[SimDraft]:
    """Every round of one long response."""
    return rounds_of(ModelledDevice(GroupDrafts(drafting), 0, seed, None))


@pytest.mark.parametrize(("chance", "window"), [(0.5, 2), (0.8, 4), (0.95, 8)])
def test_chains_commit_the_closed_form(chance: float, window: int) -> None:
    made = rounds(group(acceptance=(chance,), window=window, output=Lengths(tokens=TOKENS)))
    assert mean_tokens(made) == pytest.approx((1 - chance ** (window + 1)) / (1 - chance), rel=0.02)
    assert {draft.depth for draft in made[:-9]} == {window}


def test_positions_and_trees_commit_what_their_shape_expects() -> None:
    for changes in ({"acceptance": (0.9, 0.6, 0.3)}, {"expansion": (3, 2, 1)}):
        drafting = group(**({"acceptance": (0.7,), "output": Lengths(tokens=TOKENS)} | changes))
        expected = GroupDrafts(drafting).shape.expected_tokens
        assert mean_tokens(rounds(drafting)) == pytest.approx(expected, rel=0.02)


def test_chance_belongs_to_the_position() -> None:
    short, long, tree = (
        rounds(group(acceptance=(0.8,), output=Lengths(tokens=500), **changes))
        for changes in ({"window": 2}, {"window": 6}, {"expansion": (2, 1)})
    )
    # The first window and the first tree begin at the same place, so what the short chain got the others get too.
    assert long[0].accepted >= short[0].accepted
    assert tree[0].accepted >= short[0].accepted
    again = rounds(group(acceptance=(0.8,), output=Lengths(tokens=500), window=2))
    other = rounds(group(acceptance=(0.8,), output=Lengths(tokens=500), window=2), seed=2)
    assert again == short != other


def test_devices_differ_in_speed_and_every_response_in_length() -> None:
    drafting = GroupDrafts(group(count=200, step_spread=0.3, output=Lengths(median=50, sigma=0.5)))
    devices = [ModelledDevice(drafting, number, 1, 1) for number in range(200)]
    steps = sorted(device.step_s for device in devices)
    assert steps[100] == pytest.approx(0.05, rel=0.1)
    assert steps[168] / steps[100] == pytest.approx(1.35, rel=0.15)  # one standard deviation
    assert len({response.output_tokens for device in devices if (response := device.begin())}) > 20
    assert all(device.begin() is None for device in devices)


def test_without_drafts_rounds_are_the_verifiers_alone() -> None:
    device = ModelledDevice(GroupDrafts(group()), 0, 1, None, speculative=False)
    device.begin()
    assert device.draft(1, 8, None) == NO_DRAFT

"""What a policy serves beside first come first served: searches on small settings, and what is made of them."""

from dataclasses import replace

import pytest

from lab.reports.aims import show_aims
from lab.simulation.aims import AimResult, AimRun, PolicyCapacity, aims, run_aim, summaries
from outrider.contracts.cost import LinearCostModel

DEAR = LinearCostModel(4.5e-3, 2e-7, 8e-6, 0.2)


def small() -> AimRun:
    """A dear pass and two promises, for a few devices and a few seconds."""
    embedded = next(aim for aim in aims() if aim.name == "embedded")
    short = replace(embedded.settings, output_tokens=12, prompt_tokens=20)
    aim = replace(embedded, settings=short, cost_model=DEAR, speeds_tokens_per_s=(1.0, 2.0), guess=12)
    return AimRun(aim, responses=1.0, resolution=0.1)


def test_a_search_keeps_the_promise_and_says_what_it_tried() -> None:
    found = run_aim(small())
    assert found == run_aim(small()), "the same seed, the same figures"
    for served in (found.fcfs, found.ours):
        tried = dict(served.tried)
        assert tried[served.devices] <= 0.1
        assert all(rate > 0.1 for devices, rate in tried.items() if devices > served.devices)
        assert any(devices > served.devices for devices in tried), "it went on until the promise broke"
    assert found.multiple == found.ours.devices / found.fcfs.devices
    assert 0.3 < found.bound_share <= 1.1
    assert found.same_load_first_token_p99_s > 0.0
    assert run_aim(replace(small(), seed=1)) != found


def test_the_last_setting_asks_not_to_lose_and_the_others_for_more() -> None:
    *others, last = aims()
    assert last.multiple == 1.0
    assert all(aim.multiple >= 1.45 for aim in others)
    assert all(aim.settings.epsilon == 0.1 and aim.settings.kv_tokens >= 10**8 for aim in aims())
    assert aims()[0].tokens_per_s == 5.0


def served(devices: int, first_token_p99_s: float) -> PolicyCapacity:
    return PolicyCapacity(devices, first_token_p99_s, ((devices, 0.05),))


def results() -> list[AimResult]:
    """Two settings, the first with two seeds."""
    return [
        AimResult("one", 1.5, 0, served(100, 2.0), served(150, 1.0), 0.5, 200.0),
        AimResult("one", 1.5, 1, served(100, 4.0), served(170, 3.0), 1.5, 200.0),
        AimResult("two", 1.5, 0, served(0, 9.0), served(10, 2.0), 1.0, 20.0),
    ]


def test_seeds_are_put_together_by_setting() -> None:
    one, two = summaries(results())
    assert (one.name, one.fcfs_devices, one.devices, one.multiples) == ("one", (100, 100), (150, 170), (1.5, 1.7))
    assert one.multiple == pytest.approx(1.6)
    assert one.reached
    assert not replace(one, aim=1.61).reached
    assert one.bound_share == pytest.approx(0.8)
    times_s = (one.fcfs_first_token_p99_s, one.first_token_p99_s, one.same_load_first_token_p99_s)
    assert times_s == pytest.approx((3.0, 2.0, 1.0))
    assert two.multiple == float("inf"), "nobody is served otherwise"


def test_the_table_says_what_was_reached(capsys: pytest.CaptureFixture[str]) -> None:
    show_aims(summaries(results()[:2]), (0, 1))
    printed = " ".join(capsys.readouterr().out.split())
    assert "one 100 100 150 170 1.60 (1.50-1.70) 1.5 yes 80" in printed
    assert "2.00 s (3.00 s) 1.00 s" in printed
    assert "Seeds 0, 1." in printed

from dataclasses import replace
from pathlib import Path

import pytest

from lab.bench.stops.measure import arms, figures, served_by
from lab.bench.stops.tables import is_fixed, plot_waste, show
from outrider.config.reading import load_config
from outrider.drafting.stopping import STOP_KINDS
from outrider.rounds.timing import RoundTiming

DRAFTED = RoundTiming("dssd", 3, 1, 2, 0.3, 0.1, 0.0, 0.2, 0.6, ordered_tokens=8)
ALONE = RoundTiming(None, 0, 0, 1, 0.0, 0.0, 0.0, 0.2, 0.2)
STOPPED = replace(DRAFTED, protocol=None, drafted_tokens=0, accepted_tokens=0, committed_tokens=1)


def test_each_rule_has_an_mode_and_each_mode_a_service() -> None:
    made = arms([0, 4], longest=8)
    assert [arm.name for arm in made if is_fixed(arm.name)] == ["target alone", "window 4"]
    assert {arm.rule for arm in made} == set(STOP_KINDS)
    for arm in made:
        (group,) = served_by(load_config(), arm.rule).drafters
        assert group.stopping.rule == arm.rule


def test_figures_are_of_all_rounds_and_of_those_with_a_draft(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    found = figures("window 4", 1, 0, [DRAFTED, ALONE, STOPPED], took_s=2.0)
    assert found.tokens_per_s == 2.0
    assert found.tokens_per_round == pytest.approx(4 / 3)
    assert (found.sent_tokens, found.ordered_tokens) == (1.5, 8.0)
    assert found.accepted_fraction == pytest.approx(1 / 3)
    assert found.drafting_s_per_s == pytest.approx(0.3)
    assert found.wasted_s_per_s == pytest.approx((0.3 * 2 / 3 + 0.3) / 2.0)
    show([found, replace(found, arm="while it pays", tokens_per_s=3.0)])
    plot_waste(tmp_path / "waste.png", [found, replace(found, arm="while it pays")])
    assert (tmp_path / "waste.png").stat().st_size > 0
    assert "1.500" in capsys.readouterr().out, "times the best fixed window's"

from dataclasses import replace

import pytest

from lab.bench.capacity.figures import Stretch, rates, time_slices
from lab.bench.capacity.log import CellLog
from tests.unit.lab.bench.capacity.test_figures import log, made, response


def steady(tokens: int, *, repeat: int = 0, seconds: int = 40) -> CellLog:
    """A response every second, of one first token and ``tokens`` half a second later; the fastest are promised 4/s."""
    responses = [
        response(0, (made(at + 0.25, 1, 0.25), made(at + 0.75, tokens, 0.5)), ended=True, asked_at_s=at, number=at)
        for at in range(seconds)
    ]
    found = log(*responses, ended_at_s=float(seconds))
    return replace(found, cell=replace(found.cell, repeat=repeat))


def test_autonomous_runs_are_equal_and_lose_nothing() -> None:
    assert time_slices(steady(4)) == [Stretch(5.0, 25, 5, 5, 0)] * 8
    assert time_slices(steady(1)) == [Stretch(5.0, 10, 0, 5, 0)] * 8
    assert [piece.seconds for piece in time_slices(replace(steady(4), warmup_s=3.0))] == pytest.approx([37.0 / 7] * 7)
    whole = time_slices(replace(steady(4), warmup_s=37.0))
    assert (len(whole), whole[0].tokens) == (1, 15)


def test_rates_without_chance_have_intervals_without_width() -> None:
    found = rates([steady(4), steady(4, repeat=1)], [steady(3), steady(9, repeat=1)])
    assert (found.goodput.low, found.goodput.mean, found.goodput.high) == pytest.approx((5.0, 5.0, 5.0))
    assert found.kept_per_s.mean == pytest.approx(1.0)
    assert found.kept_share.mean == 1.0
    assert found.against is not None
    assert found.against.mean == pytest.approx(5.0 / 7.0)
    assert found.against.low < 5.0 / 7.0 < found.against.high  # of the others, which differ
    assert found.each_against == pytest.approx((5.0 / 4.0, 5.0 / 10.0))
    assert rates([steady(4)]).against is None


def test_a_refused_response_is_asked_for_and_not_kept() -> None:
    refused = replace(response(1, (), ended=False), refused_at_s=7.0)
    found = replace(steady(4), responses=(*steady(4).responses, refused))
    assert sum(piece.refused for piece in time_slices(found)) == 1
    assert rates([found]).kept_share.mean == pytest.approx(40 / 41)

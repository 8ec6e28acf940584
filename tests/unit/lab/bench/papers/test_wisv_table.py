from itertools import pairwise

import pytest

from lab.bench.papers.wisv.acceptance import fitted_step_s, reproduce, worst
from lab.bench.papers.wisv.published import METHODS, RATES_BPS, TABLE_1, WINDOWS, printed
from lab.bench.papers.wisv.rounds import Method


def test_table_1_is_whole_and_agrees_with_itself() -> None:
    """In all its rows AAL * rounds = throughput * latency (WISV eq. 20)."""
    assert len({(row.rate_bps, row.window, row.method) for row in TABLE_1}) == len(TABLE_1) == 30
    for row in TABLE_1:
        assert row.aal_tokens * row.rounds == pytest.approx(row.tokens_per_s * row.latency_s, rel=6e-4)
    for method in METHODS:
        for rate_bps in RATES_BPS:
            assert tuple(row.window for row in printed(method, rate_bps)) == WINDOWS


def test_latencies_of_sd_are_within_the_aim_and_wisvs_are_not() -> None:
    found = reproduce()
    assert worst(found, Method.SD_GREEDY) < 0.002
    assert worst(found, Method.SD_REJECT) < 0.002
    missed = [one for one in found if one.latency_error is not None and abs(one.latency_error) > 0.02]
    assert {(one.row.rate_bps, one.row.window, one.method) for one in missed} == {
        (20e6, 32, Method.WISV_FULL),
        (20e6, 64, Method.WISV_FULL),
    }
    assert worst(found, Method.WISV_FULL) < 0.06


def test_a_row_by_hand() -> None:
    first = reproduce()[0]
    assert (first.row.rate_bps, first.row.window, first.method) == (500e6, 10, Method.SD_GREEDY)
    seconds = 10 * 0.01889 + 0.05 + (10 * 17 + 17 + 4) / 500e6
    assert first.latency_s == pytest.approx(31.912 * seconds)
    assert first.tokens_per_s == pytest.approx(6.607 / seconds)
    assert first.latency_error == pytest.approx(31.912 * seconds / 7.616 - 1.0)


def test_the_selective_upload_stands_beside_every_full_one() -> None:
    found = reproduce()
    assert len(found) == 40
    for full, selective in pairwise(found):
        if full.method is Method.WISV_FULL:
            assert (selective.row, selective.method) == (full.row, Method.WISV_SELECTIVE)
            assert selective.latency_error is selective.throughput_error is None


def test_nothing_is_left_for_verification() -> None:
    assert fitted_step_s() == pytest.approx(0.01889, rel=1e-3)

import numpy as np
import pytest

from bench.coupling import Scheme
from bench.dssd_reconstruction import implied_llm_s, reconstruct_table_2, table_1_max_difference_ms, table_1_ms
from bench.dssd_results import Condition, Sampling, conditions, results
from bench.measured import Measured, Series
from bench.pair_rows import StepTimes
from bench.paper_published import DSSD_COMM_MS

STEPS = StepTimes(target_s={1: 0.1, 9: 0.12}, drafter_s={1: 0.01})


def sampling(acceptance: float, support: int) -> Sampling:
    responses = (np.full(40, acceptance),)
    series = {(scheme, 1024): Series(responses, responses) for scheme in (Scheme.SINGLE, Scheme.SHARED_NOISE)}
    return Sampling(Measured(series, (), responses), 1024, support)


def test_table_1_is_eq_9_up_to_its_rounding() -> None:
    assert table_1_max_difference_ms() < 0.0051
    assert table_1_ms().keys() == DSSD_COMM_MS.keys()
    assert table_1_ms()[2][0] == pytest.approx(26.0)


def test_the_dsd_column_of_table_2_follows_from_31_rounds_of_fp32_rows() -> None:
    """Within 2 %, on every row, the impossible one included; its DSSD column is those rounds' NTT alone."""
    for row in reconstruct_table_2():
        assert row.dsd_comm_s == pytest.approx(row.row.dsd_comm_s, rel=0.021)
        assert row.rounds == pytest.approx(31.0 if row.possible else 8.0)
        assert row.rounds * row.row.ntt_s == pytest.approx(row.row.dssd_comm_s, abs=0.011)
        assert row.dssd_comm_s > 1.15 * row.row.dssd_comm_s  # the row is not charged


def test_the_last_row_of_table_2_cannot_commit_its_response() -> None:
    assert [row.possible for row in reconstruct_table_2()] == [True] * 5 + [False]


def test_one_step_time_explains_the_speed_ups_of_table_2() -> None:
    assert 0.13 < implied_llm_s() < 0.18
    for row in reconstruct_table_2():
        if row.possible:
            assert row.dsd_speed_up == pytest.approx(row.row.dsd_speed_up, rel=0.10)
            assert row.dssd_speed_up_uncharged == pytest.approx(row.row.dssd_speed_up, rel=0.12)
            assert row.dssd_speed_up < row.dssd_speed_up_uncharged


def test_conditions_are_those_of_both_tables_once() -> None:
    found = conditions()
    assert len(found) == len(set(found)) == 8
    assert str(found[1]) == "20 ms, 100 Mb/s, 8"


def test_protocols_under_a_condition() -> None:
    found = {
        result.protocol: result
        for result in results(sampling(0.5, 1024), Condition(0.02, 1e6, 8), STEPS, paper_llm_s=0.2)
    }
    tokens = (1 - 0.5**9) / 0.5
    rounds = 128 / tokens
    row_s = 1024 * 32 / 1e6
    assert found["dsd"].comm_s == pytest.approx(rounds * (8 * row_s + 0.02))
    assert found["dssd"].comm_s == pytest.approx(rounds * ((1 - 0.5**8) * row_s + 0.02))
    assert found["dssd, row not charged"].comm_s == pytest.approx(rounds * 0.02)
    assert found["ours: token_ids"].comm_s == pytest.approx(rounds * ((9 * 10 + 4) / 1e6 + 0.02))
    drawn = found["ours: dssd_candidates"].comm_s
    assert found["dssd, row not charged"].comm_s < drawn < found["dssd"].comm_s
    assert found["dsd"].speed_up == pytest.approx(tokens * 0.1 / (8 * 0.01 + 8 * row_s + 0.02 + 0.12))
    assert found["dsd"].speed_up_paper == pytest.approx(tokens * 0.2 / (8 * 0.02 + 8 * row_s + 0.02 + 0.2))


def test_a_request_that_truncates_sends_its_few_tokens_in_place_of_the_row() -> None:
    found = {result.protocol: result for result in results(sampling(0.5, 10), Condition(0.0, 1e6, 8), STEPS, 0.2)}
    bits = 8 * (10 + 24) + 10 + 4 + (1 - 0.5**8) * 10 * (10 + 32)
    assert found["ours: dssd, sparse row"].comm_s == pytest.approx(found["ours: dssd, sparse row"].rounds * bits / 1e6)
    assert "ours: dssd_candidates" not in found

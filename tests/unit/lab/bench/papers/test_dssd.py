import numpy as np
import pytest

from lab.bench.papers.dssd import Sampling, results
from lab.bench.papers.measured import Series
from lab.bench.papers.published import DSSD_ROWS, DssdRow


def sampling(acceptance: float, support: int) -> Sampling:
    responses = (np.full(40, acceptance),)
    return Sampling(Series(responses, responses), Series(responses, responses), 1024, support)


def row(ntt_s: float) -> DssdRow:
    return DssdRow(ntt_s, 1e6, 8, None, None, None)


def test_conditions_are_those_of_both_tables_once() -> None:
    assert len({str(one) for one in DSSD_ROWS}) == len(DSSD_ROWS) == 8
    assert str(DSSD_ROWS[1]) == "20 ms, 100 Mb/s, 8"


def test_protocols_under_a_condition() -> None:
    found = {result.protocol: result for result in results(sampling(0.5, 1024), row(0.02))}
    tokens = (1 - 0.5**9) / 0.5
    rounds = 128 / tokens
    row_s = 1024 * 32 / 1e6
    assert found["dsd"].comm_s == pytest.approx(rounds * (8 * row_s + 0.02))
    assert found["dssd"].comm_s == pytest.approx(rounds * ((1 - 0.5**8) * row_s + 0.02))
    assert found["dssd, row not charged"].comm_s == pytest.approx(rounds * 0.02)
    assert found["ours: token_ids"].comm_s == pytest.approx(rounds * ((9 * 10 + 4) / 1e6 + 0.02))
    drawn = found["ours: dssd_candidates"].comm_s
    assert found["dssd, row not charged"].comm_s < drawn < found["dssd"].comm_s
    assert found["dsd"].speed_up == pytest.approx(tokens * 0.152 / (8 * 0.0152 + 8 * row_s + 0.02 + 0.152))


def test_a_request_that_truncates_sends_its_few_tokens_in_place_of_the_row() -> None:
    found = {result.protocol: result for result in results(sampling(0.5, 10), row(0.0))}
    bits = 8 * (10 + 24) + 10 + 4 + (1 - 0.5**8) * 10 * (10 + 32)
    assert found["ours: dssd, sparse row"].comm_s == pytest.approx(found["ours: dssd, sparse row"].rounds * bits / 1e6)
    assert "ours: dssd_candidates" not in found

"""Log-probabilities against float64 numpy, ties included."""

from collections.abc import Iterator
from contextlib import nullcontext

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from outrider.contracts.requests import TokenLogprobs
from outrider.sampling.device_tensors import Readback, everywhere_at_once
from outrider.verification.logprobs import LogprobsQuery, launch_logprobs

VOCAB = 9


@pytest.fixture(scope="module", params=[False, True], ids=["on a processor", "at once"], autouse=True)
def both_ways(request: pytest.FixtureRequest) -> Iterator[None]:
    with everywhere_at_once() if request.param else nullcontext():
        yield


ROWS = 4

# Few different values: most rows have ties, at the cut as well.
logits_of_rows = st.lists(
    st.lists(st.sampled_from([-50.0, -1.0, 0.0, 0.5, 2.0]), min_size=VOCAB, max_size=VOCAB),
    min_size=ROWS,
    max_size=ROWS,
)
queries_of_rows = st.lists(
    st.builds(LogprobsQuery, st.integers(0, ROWS - 1), st.integers(0, VOCAB - 1), st.integers(0, VOCAB + 3)), max_size=8
)


def token_logprobs(logits: torch.Tensor, queries: list[LogprobsQuery]) -> list[TokenLogprobs]:
    answers = launch_logprobs(logits, queries, readback := Readback())
    readback.read()
    return answers()


def reference(row: npt.NDArray[np.float64], query: LogprobsQuery) -> TokenLogprobs:
    """One entry, by sorting the whole vocabulary."""
    values = row - np.log(np.exp(row - row.max()).sum()) - row.max()
    best = sorted(range(VOCAB), key=lambda token_id: (-values[token_id], token_id))[: query.top]
    return TokenLogprobs(
        query.token_id, float(values[query.token_id]), tuple((token_id, float(values[token_id])) for token_id in best)
    )


@given(logits_of_rows, queries_of_rows)
def test_values_and_order_equal_the_reference(rows: list[list[float]], queries: list[LogprobsQuery]) -> None:
    found = token_logprobs(torch.tensor(rows), queries)
    assert len(found) == len(queries)
    for entry, query in zip(found, queries, strict=True):
        expected = reference(np.array(rows[query.row]), query)
        assert (entry.token_id, [i for i, _ in entry.top]) == (expected.token_id, [i for i, _ in expected.top])
        assert entry.logprob == pytest.approx(expected.logprob, abs=1e-5)
        assert [value for _, value in entry.top] == pytest.approx([value for _, value in expected.top], abs=1e-5)


@given(st.integers(0, 2**32), queries_of_rows)
def test_company_changes_no_bit(seed: int, queries: list[LogprobsQuery]) -> None:
    logits = torch.randn(ROWS, 3001, generator=torch.Generator().manual_seed(seed)) * 5
    alone = [token_logprobs(logits[query.row : query.row + 1], [_alone(query)])[0] for query in queries]
    assert token_logprobs(logits, queries) == alone


def _alone(query: LogprobsQuery) -> LogprobsQuery:
    return LogprobsQuery(0, query.token_id, query.top)


def test_a_tokens_own_value_is_the_one_among_the_alternatives() -> None:
    logits = torch.randn(1, 500, generator=torch.Generator().manual_seed(3)).bfloat16()
    (entry,) = token_logprobs(logits, [LogprobsQuery(0, 7, 500)])
    assert dict(entry.top)[7] == entry.logprob
    assert sum(np.exp(value) for _, value in entry.top) == pytest.approx(1.0, abs=1e-5)
    values = [value for _, value in entry.top]
    assert values == sorted(values, reverse=True)


def test_logits_the_model_removed_have_no_probability() -> None:
    (entry,) = token_logprobs(torch.tensor([[0.0, -torch.inf, 0.0]]), [LogprobsQuery(0, 1, 3)])
    assert entry.logprob == -np.inf
    assert [token_id for token_id, _ in entry.top] == [0, 2, 1]
    assert [value for _, value in entry.top] == pytest.approx([np.log(0.5), np.log(0.5), -np.inf], abs=1e-6)


def test_logits_are_not_written_to_and_nothing_is_answered_to_nobody() -> None:
    logits = torch.randn(2, VOCAB)
    before = logits.clone()
    token_logprobs(logits, [LogprobsQuery(0, 1, 2), LogprobsQuery(1, 1, 0)])
    assert torch.equal(logits, before)
    assert token_logprobs(torch.empty(0, VOCAB), []) == []


def test_more_rows_than_are_taken_at_once_keep_their_order() -> None:
    logits = torch.randn(50, VOCAB, generator=torch.Generator().manual_seed(4))
    queries = [LogprobsQuery(row, row % VOCAB, row % 3) for row in reversed(range(50))]
    assert token_logprobs(logits, queries) == [token_logprobs(logits, [query])[0] for query in queries]

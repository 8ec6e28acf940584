"""Which rows of a pass's logits are handed over, whatever order the runner computed them in."""

import pytest

from outrider.engines.vllm.worker import kept_rows


@pytest.mark.parametrize(
    ("order", "wanted", "kept"),
    [
        (["a", "b"], {"a": 2, "b": 1}, None),
        (["b", "a"], {"a": 2, "b": 1}, [1, 2, 0]),
        (["a", "b", "c"], {"a": 2, "b": 0, "c": 1}, [0, 1, 3]),  # a request has a row at least, wanted or not
        (["c", "b", "a"], {"a": 0, "b": 0, "c": 2}, [0, 1]),
        (["a"], {"a": 0}, []),
    ],
)
def test_rows_come_in_our_order(order: list[str], wanted: dict[str, int], kept: list[int] | None) -> None:
    assert kept_rows(order, wanted) == kept

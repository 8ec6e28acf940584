"""Rows that wait for a correction: bounded, the least recently used given up first."""

import torch

from outrider.engines.verifier.kept_rows import KeptRows

ROW_BYTES = 40


def row(value: float) -> torch.Tensor:
    return torch.full((10,), value, dtype=torch.float32)


def test_the_least_recently_used_row_makes_room() -> None:
    rows = KeptRows(budget_bytes=2 * ROW_BYTES)
    rows.keep("a", row(1))
    rows.keep("b", row(2))
    assert rows.get("a") is not None
    rows.keep("c", row(3))
    assert rows.get("b") is None
    assert [float(kept[0]) for name in "ac" if (kept := rows.get(name)) is not None] == [1, 3]
    assert rows.kept_bytes == 2 * ROW_BYTES


def test_a_row_replaces_the_one_before_and_is_dropped_once() -> None:
    rows = KeptRows(budget_bytes=2 * ROW_BYTES)
    for value in (1.0, 2.0):
        rows.keep("a", row(value))
    assert rows.kept_bytes == ROW_BYTES
    assert rows.get("a") is not None
    rows.drop("a")
    rows.drop("a")
    assert (rows.get("a"), rows.kept_bytes) == (None, 0)


def test_the_last_row_is_kept_however_small_the_budget() -> None:
    rows = KeptRows(budget_bytes=1)
    rows.keep("a", row(1))
    rows.keep("b", row(2))
    assert rows.get("a") is None
    assert rows.get("b") is not None

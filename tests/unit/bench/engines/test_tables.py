from pathlib import Path

import pytest

from bench.engines.plan import QUICK, WHOLE, AloneCell, RoundCell
from bench.engines.plots import plot_rounds, plot_served
from bench.engines.rounds import BARE
from bench.engines.tables import show_alone, show_rounds, show_served
from bench.harness.samples import Sample

CELL = RoundCell(4, 8, 500, warm=True)
ROUNDS = [
    Sample(CELL, "vllm greedy", {"ms": 120.0}),
    Sample(CELL, BARE, {"ms": 100.0}),
    Sample(CELL, "torch greedy", {}, "RuntimeError: no"),
    Sample(RoundCell(4, 8, 500, warm=False), "torch greedy", {"ms": 2000.0}),
]
SERVED = [Sample(2, "vllm", {}, "did not start"), Sample(2, "torch", {"tokens_per_s": 3.5, "acceptance": 0.75})]


def test_tables_show_what_was_measured_and_what_failed(capsys: pytest.CaptureFixture[str]) -> None:
    show_rounds(ROUNDS)
    alone = [
        Sample(AloneCell(1, 2), "torch", {"tokens_per_s": speed, "exact": exact}) for speed, exact in ((10, 1), (12, 0))
    ]
    show_alone(alone)
    show_served(SERVED)
    shown = capsys.readouterr().out
    assert "120.0 [120.0-120.0]" in shown
    assert "vllm greedy over bare vllm: median 1.200, largest 1.200 of 1 cells" in shown
    assert "11.0 [10.0-12.0]" in shown
    assert "no" in shown.split("as recorded")[1].split("service")[0].split(), "one repeat said something else"
    assert "FAILED torch greedy: RuntimeError: no" in shown
    assert "FAILED vllm: did not start" in shown
    assert "0.75" in shown


def test_plots_are_drawn(tmp_path: Path) -> None:
    plot_rounds(tmp_path / "rounds.png", ROUNDS)
    plot_served(tmp_path / "served.png", SERVED)
    assert len(list(tmp_path.glob("*.png"))) == 2


def test_the_whole_grid_has_every_size_and_leaves_out_only_what_takes_minutes() -> None:
    warm = WHOLE.warm()
    assert len(warm) == len(set(warm)) == 4 * 4 * 3
    assert {(cell.generations, cell.prefix) for cell in WHOLE.cold()} == {
        *((generations, 100) for generations in (1, 4, 8, 16)),
        *((generations, 500) for generations in (1, 4)),
        (1, 2000),
    }
    assert len(QUICK.warm()) < len(warm) / 4
    assert {cell.draft for cell in QUICK.cold()} == {16}

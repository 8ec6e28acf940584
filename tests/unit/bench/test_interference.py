"""Figures of trials, and trials of a real engine with a tiny target."""

import json
from pathlib import Path

import pytest

from bench.interference import Bed, Trial, figures, measured, report
from bench.interference_plot import plot
from bench.json_file import write_json
from tests.unit.engines.conftest import TinyModel, tiny_llama

WHOLE = [Trial(512, None, short_s, 2.0, (shared_s,)) for short_s, shared_s in ((0.1, 2.0), (0.2, 2.2), (0.1, 2.4))]
CHUNKED = [Trial(512, 64, 0.1, 2.4, (0.4, 0.45, 0.5, slowest_s)) for slowest_s in (0.45, 0.5, 0.45)]


def test_a_short_round_lasts_as_long_as_the_pass_it_is_in() -> None:
    whole, chunked = figures([*WHOLE, *CHUNKED])
    assert (whole.chunk_tokens, whole.passes, chunked.chunk_tokens, chunked.passes) == (None, 1, 64, 4)
    assert whole.shared_ms.median == pytest.approx(2200.0)
    assert whole.slowdown.median == pytest.approx(20.0), "trial by trial: 20, 11, 24"
    assert chunked.shared_ms.median == pytest.approx(450.0)
    assert chunked.long_shared_ms.median == pytest.approx(1800.0)
    assert whole.shared_ms.low == pytest.approx(2000.0)
    assert whole.shared_ms.high == pytest.approx(2400.0)


def test_promises_a_shared_round_keeps() -> None:
    whole, chunked = figures([*WHOLE, *CHUNKED])
    assert (whole.fastest_promise, chunked.fastest_promise) == (None, "speed_2")
    (quick,) = figures([Trial(128, 64, 0.05, 0.2, (0.12,))])
    assert quick.fastest_promise == "speed_8"


def test_chunks_take_passes_and_a_whole_prompt_one() -> None:
    model = TinyModel(tiny_llama())
    beds = [Bed(model, chunk, prefix_tokens=12, window=3) for chunk in (8,)]
    beds.append(Bed(TinyModel(tiny_llama()), None, prefix_tokens=12, window=3))
    trials = list(measured(beds, [20, 40], repeats=2))
    assert [(trial.long_tokens, trial.chunk_tokens) for trial in trials[:4]] == [
        (20, 8),
        (20, None),
        (40, 8),
        (40, None),
    ]
    assert len(trials) == 8
    # The last prompt token and the draft are the block's own rows: 19 and 39 prompt tokens in chunks of 8.
    assert [len(trial.together_s) for trial in trials[:4]] == [3, 1, 5, 1]
    assert all(trial.short_s > 0.0 and trial.long_s > 0.0 for trial in trials)


def test_figures_are_shown_drawn_and_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = figures([*WHOLE, *CHUNKED])
    report(found)
    shown = capsys.readouterr().out
    assert "2200 [2000, 2400]" in shown
    assert "speed_2" in shown
    plot(tmp_path / "interference.png", found)
    assert (tmp_path / "interference.png").read_bytes().startswith(b"\x89PNG")
    write_json(tmp_path / "interference.json", {"figures": found})
    written = json.loads((tmp_path / "interference.json").read_text(encoding="utf-8"))
    assert written["figures"][1]["shared_ms"]["median"] == pytest.approx(450.0)

"""The campaign for cards, on this processor at small shapes: every part runs, and what must not be is told."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from lab.bench.gpu import command, conformance, exactness, noise, passes, vllm_engine
from lab.bench.gpu import engines as whole_engines
from lab.bench.gpu.command import main, markdown
from lab.bench.gpu.machine import left_pins
from lab.bench.gpu.noise import Compared, compare
from lab.bench.gpu.setting import Setting
from outrider.sampling.device_noise import device_words, gumbel_of
from outrider.sampling.noise import Purpose

SMALL = Setting(torch.device("cpu"), small=True)


def test_passes_are_beside_their_bound_and_plain_transformers() -> None:
    found: Any = passes.run(SMALL)
    points = found.figures["points"]
    assert len(found.rows) == len(points) == 6
    assert all(point["ms"] > 0 and point["bound_ms"] > 0 and point["plain_ms"] > 0 for point in points)
    assert [point["over_one_row"] is not None for point in points] == [True, True, False] * 2


def test_exactness_is_counted_by_kind() -> None:
    found: Any = exactness.run(SMALL)
    assert found.faults == []
    assert found.figures["float32"]["differences"] == 0
    assert {name: kind["requests"] for name, kind in found.figures.items()} == {
        "float32": 6,
        "bfloat16": 6,
        "bfloat16, fixed sizes": 6,
    }


def test_noise_that_differs_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    assert noise.run(SMALL).faults == []
    monkeypatch.setattr(noise, "compare", lambda *_: Compared(8, 1, 2))
    assert noise.run(SMALL).faults == ["1 words and 2 values differ from numpy's"]


def test_a_word_and_a_value_that_differ_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    def words(
        seeds: list[int], positions: list[int], purpose: Purpose, count: int, device: torch.device
    ) -> torch.Tensor:
        made = device_words(seeds, positions, purpose, count, device).clone()
        made[0, 9] ^= 1 << 63
        return made

    def values_of(made: torch.Tensor) -> torch.Tensor:
        values = gumbel_of(made)
        values[0, 5:7] = values[0, 5:7].nextafter(torch.tensor(9.0))
        return values

    monkeypatch.setattr(noise, "device_words", words)
    monkeypatch.setattr(noise, "gumbel_of", values_of)
    assert compare(torch.device("cpu"), 16, 64) == Compared(16, 1, 3)


def test_engines_are_measured() -> None:
    found: Any = whole_engines.run(SMALL)
    assert {step["engine"] for step in found.figures["steps"]} == {"verifier, a draft of 8", "drafter, a token"}
    assert all(step["ms"] > 0 for step in found.figures["steps"])


def test_a_part_that_ends_is_told_and_the_others_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "PARTS", (*command.PARTS, "nothing"))
    file, tables = tmp_path / "gpu.json", tmp_path / "gpu.md"
    given = ["--device", "cpu", "--small", "--json", str(file), "--markdown", str(tables)]
    with pytest.raises(SystemExit, match="nothing: ended with status 2"):
        main([*given, "--parts", "nothing", "noise"])
    parts = json.loads(file.read_text())["parts"]
    assert parts["noise"]["rows"]
    assert "### noise" in tables.read_text()
    assert tables.read_text() in capsys.readouterr().out


def test_tables_say_what_they_were_measured_on() -> None:
    machine = {"card": "H100", "date": "today", "driver": "1.2", "pins left": ["torch 2.11, pinned 2.13"]}
    found = {"header": ["a", "b"], "rows": [[1, 2]], "faults": ["no"]}
    assert markdown(machine, {"noise": found}).splitlines() == [
        "## H100, today",
        "",
        "- driver: 1.2",
        "- pins left: torch 2.11, pinned 2.13",
        "",
        "### noise",
        "",
        "| a | b |",
        "| --- | --- |",
        "| 1 | 2 |",
        "",
        "FAULT: no",
    ]


def test_pins_that_were_left_are_named() -> None:
    constraints = "torch==2.13.0\nnumpy==2.3.5 ; python_version > '3'\nray==2.60.0\n"
    found = {"torch": "2.11.0+cu128", "numpy": "2.3.5", "safetensors": "1"}
    assert left_pins(constraints, found) == ["torch 2.11.0+cu128, pinned 2.13.0"]


@pytest.mark.long
@pytest.mark.xdist_group("vllm")
def test_vllm_is_held_to_what_it_says_alone() -> None:
    found: Any = vllm_engine.run(SMALL)
    assert found.figures["float32"]["differences"] == 0
    assert found.faults == []


@pytest.mark.long
def test_the_suites_run_on_the_device_that_is_named() -> None:
    found: Any = conformance.run(SMALL)
    assert found.faults == []
    assert found.figures["passed"] > 100

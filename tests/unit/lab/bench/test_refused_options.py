"""Mistakes in the options of benchmarks and simulations: one line says what is needed, before anything runs."""

import shlex
from pathlib import Path

import pytest

from cluster.cli import main

MISTAKES = (
    "bench bookkeeping --sequences 0",
    "bench bookkeeping --contexts 500 many",
    "bench capacity --users 0",
    "bench capacity --rates 0",
    "bench capacity --speeds -1",
    "bench capacity --seed -1",
    "bench clients --json .",
    "bench engine --repeats 0",
    "bench gateway --devices 0",
    "bench gateway --rate 0",
    "bench engines --clients 0",
    "bench engines --windows -1",
    "bench exactness --requests 0",
    "bench exactness --seed -1",
    "bench load --dataset-name sharegpt --dataset-path missing.json",
    "bench load --window -1",
    "bench load --random-range-ratio much",
    "bench load --rate 0",
    "bench overhead --config missing.yaml",
    "bench overhead --generations 0",
    "bench paper dssd --tokens 7",
    "bench paper dssd --prompts 0",
    "bench paper dssd --prompts 17",
    "bench paper dssd --json file/record.json",
    "bench paper tslt --tokens 2",
    "bench paper tslt --seed -1",
    "bench paper wisv --json .",
    "bench paper wisv --plots file",
    "bench paper wisv --parts frontier --thresholds 2",
    "bench paper wisv --parts frontier --unaware missing.safetensors",
    "bench paper wisv --parts cluster --windows 0",
    "bench protocols --prompts 17",
    "bench protocols --repeats 0",
    "bench stops --windows -1",
    "bench stops --bound --thresholds 1.1",
    "bench stops --temperature nan",
    "simulate capacity --workers 0",
    "simulate capacity --seed -1",
    "simulate stops --acceptances 1.5",
    "simulate stops --promises 0",
    "simulate stops --auc 0.4",
    "train head --target embedded --drafter embedded --out head.safetensors --tasks embedded --most-training-tasks 0",
)


@pytest.mark.parametrize("line", MISTAKES)
def test_a_mistake_is_one_line_of_what_was_needed_and_found(
    line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("file").touch()
    with pytest.raises(SystemExit) as ended:
        main(shlex.split(line))
    assert ended.value.code == 2
    *usage, said = capsys.readouterr().err.splitlines()
    assert usage[0].startswith("usage: outrider ")
    option = [word for word in line.split() if word.startswith("--")][-1]
    assert f"argument {option}" in said
    assert "needs " in said
    assert ", found " in said
    assert not [path for path in tmp_path.iterdir() if path.name != "file"]

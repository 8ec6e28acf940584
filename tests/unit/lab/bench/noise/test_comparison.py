"""The bench that compares a device's noise with numpy's finds what differs, and nothing where nothing does."""

import pytest
import torch

from lab.bench.noise import comparison
from lab.bench.noise.command import main
from lab.bench.noise.comparison import Compared, compare
from outrider.sampling.device_noise import device_words, gumbel_of
from outrider.sampling.noise import Purpose


def test_a_word_and_a_value_that_differ_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    def words(
        seeds: list[int], positions: list[int], purpose: Purpose, count: int, device: torch.device
    ) -> torch.Tensor:
        made = device_words(seeds, positions, purpose, count, device).clone()
        made[0, 9] ^= 1 << 63
        return made

    def noise(made: torch.Tensor) -> torch.Tensor:
        values = gumbel_of(made)
        values[0, 5:7] = values[0, 5:7].nextafter(torch.tensor(9.0))
        return values

    monkeypatch.setattr(comparison, "device_words", words)
    monkeypatch.setattr(comparison, "gumbel_of", noise)
    assert compare(torch.device("cpu"), 16, 64) == Compared(16, 1, 3)


def test_the_command_says_what_was_compared(capsys: pytest.CaptureFixture[str]) -> None:
    main(["--counters", "100", "--vocab", "40", "--rows", "2", "--repeats", "1"])
    said = capsys.readouterr().out.splitlines()
    assert said[0] == "100 counters on cpu: 0 words and 0 values of noise differ from numpy's"
    assert [line.rpartition(":")[0] for line in said[1:]] == ["a row by numpy", "1 on cpu", "2 on cpu"]

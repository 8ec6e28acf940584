"""Input and result of a campaign's part."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from lab.bench.harness.timing import Call, seconds_of


@dataclass(frozen=True, slots=True)
class Setting:
    device: torch.device  # of torch
    small: bool = False  # shapes that a CPU computes in seconds, to test that the campaign runs
    seed: int = 0  # of everything random

    @property
    def dtype(self) -> torch.dtype:
        return torch.bfloat16 if self.device.type == "cuda" else torch.float32


@dataclass(frozen=True, slots=True)
class Found:
    header: Sequence[str]  # of its table
    rows: Sequence[Sequence[object]]  # of its table
    figures: Mapping[str, object]  # all of them, for JSON
    faults: Sequence[str] = ()  # violations


def repeated_s(run: Call, repeats: int, warmups: int = 2) -> list[float]:
    return [seconds_of(run) for _ in range(warmups + repeats)][warmups:]

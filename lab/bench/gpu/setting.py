"""Input and result of a campaign's part."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from lab.bench.harness.timing import Call, seconds_of


@dataclass(frozen=True, slots=True)
class Setting:
    """Device and extent.

    Attributes:
        device: of torch.
        small: shapes that a CPU computes in seconds, to test that the campaign runs.
        seed: of everything random.
    """

    device: torch.device
    small: bool = False
    seed: int = 0

    @property
    def dtype(self) -> torch.dtype:
        """Default dtype of engines on the device."""
        return torch.bfloat16 if self.device.type == "cuda" else torch.float32


@dataclass(frozen=True, slots=True)
class Found:
    """Result of a part.

    Attributes:
        header: of its table.
        rows: of its table.
        figures: all of them, for JSON.
        faults: violations.
    """

    header: Sequence[str]
    rows: Sequence[Sequence[object]]
    figures: Mapping[str, object]
    faults: Sequence[str] = ()


def repeated_s(run: Call, repeats: int, warmups: int = 2) -> list[float]:
    """Wall seconds of ``repeats`` calls, after some warm-ups."""
    return [seconds_of(run) for _ in range(warmups + repeats)][warmups:]

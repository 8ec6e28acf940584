"""What a part of the campaign is told, and what it tells."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from lab.bench.harness.timing import Call, seconds_of


@dataclass(frozen=True, slots=True)
class Setting:
    """On which device, and how much.

    Attributes:
        device: of torch.
        small: shapes that a processor computes in seconds: to see that the campaign runs.
        seed: of all that is random.
    """

    device: torch.device
    small: bool = False
    seed: int = 0

    @property
    def dtype(self) -> torch.dtype:
        """What engines compute in there by default."""
        return torch.bfloat16 if self.device.type == "cuda" else torch.float32


@dataclass(frozen=True, slots=True)
class Found:
    """What a part has found.

    Attributes:
        header: of its table.
        rows: of its table.
        figures: all there are, for JSON.
        faults: what must not be.
    """

    header: Sequence[str]
    rows: Sequence[Sequence[object]]
    figures: Mapping[str, object]
    faults: Sequence[str] = ()


def repeated_s(run: Call, repeats: int, warmups: int = 2) -> list[float]:
    """Wall seconds of so many calls, behind some that do not count."""
    return [seconds_of(run) for _ in range(warmups + repeats)][warmups:]

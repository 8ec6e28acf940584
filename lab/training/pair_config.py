"""Configuration common to all trainings on a pair of models."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import ClassVar

from lab.training.head.pair import PairSpec
from outrider.contracts.errors import ParameterError


@dataclass(frozen=True, slots=True, kw_only=True)
class PairConfig:
    """A training that writes a file. Subclasses add their settings and name those that are counts."""

    counts: ClassVar[tuple[str, ...]] = ()
    target: str  # name or path
    drafter: str  # name, path, or a file made by ``outrider distill``
    out: Path  # file to write, ``*.safetensors``; training data and report are kept beside it under its name
    seed: int = 0
    dtype: str = "auto"  # the target's
    drafter_dtype: str = "auto"
    device: str = "cpu"  # a torch device
    threads: int | None = None  # CPU threads of torch; None: unchanged

    def __post_init__(self) -> None:
        for field in self.counts:
            if (count := getattr(self, field)) is not None and count < 1:
                raise ParameterError(field, "an integer >= 1", count)
        if self.out.suffix != ".safetensors":
            raise ParameterError("out", "a file name ending in .safetensors", str(self.out))

    @property
    def pair(self) -> PairSpec:
        return PairSpec(self.target, self.drafter, self.dtype, self.drafter_dtype, self.device)

    def plain(self) -> dict[str, object]:
        return {name: _plain(value) for name, value in asdict(self).items()}


def _plain(value: object) -> object:
    if isinstance(value, tuple | list):
        return [_plain(each) for each in value]
    return str(value) if isinstance(value, Path) else value

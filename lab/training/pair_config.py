"""What every training on a pair of models can be told."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import ClassVar

from lab.training.head.pair import PairSpec
from outrider.contracts.errors import ParameterError


@dataclass(frozen=True, slots=True, kw_only=True)
class PairConfig:
    """A training whose result is a file. Its own settings, and which of them are counts, are a subclass's."""

    counts: ClassVar[tuple[str, ...]] = ()
    target: str  # name or path
    drafter: str  # name, path, or a file made by ``outrider distill``
    out: Path  # file to write, ``*.safetensors``. What it was made of and the report lie beside it under its name
    seed: int = 0
    dtype: str = "auto"  # of the target
    drafter_dtype: str = "auto"
    device: str = "cpu"  # a torch device
    threads: int | None = None  # CPU threads of torch; None leaves them

    def __post_init__(self) -> None:
        """Refuse what cannot be run."""
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

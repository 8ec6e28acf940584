"""Configuration common to all trainings on a pair of models, and the flags that set it."""

from argparse import SUPPRESS, ArgumentParser
from dataclasses import MISSING, asdict, dataclass, fields
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin, get_type_hints

from lab.training.head.pair import PairSpec
from outrider.contracts.errors import ParameterError


@dataclass(frozen=True, slots=True, kw_only=True)
class PairConfig:
    """A training that writes a file. Every field is a flag, with its annotation's text as help."""

    target: Annotated[str, "the embedded target's name, or a directory in Hugging Face format"]
    drafter: Annotated[str, "its drafter: a name, a file of `outrider distill`, or a directory"]
    out: Annotated[Path, "file to write, ending in .safetensors; training data and report are kept beside it"]
    seed: Annotated[int, "of all random draws"] = 0
    dtype: Annotated[str, "of the target: float32, bfloat16, float16 or auto"] = "auto"
    drafter_dtype: Annotated[str, "of the drafter: int8 as well"] = "auto"
    device: Annotated[str, "cpu, cuda or another torch device"] = "cpu"
    threads: Annotated[int | None, "CPU threads"] = None

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            if isinstance(value, int) and value < 1 and each.name != "seed":
                raise ParameterError(each.name, "an integer >= 1", value)
        if self.out.suffix != ".safetensors":
            raise ParameterError("out", "a file name ending in .safetensors", str(self.out))

    @property
    def pair(self) -> PairSpec:
        return PairSpec(self.target, self.drafter, self.dtype, self.drafter_dtype, self.device)

    def plain(self) -> dict[str, object]:
        return {name: _plain(value) for name, value in asdict(self).items()}


def add_flags(parser: ArgumentParser, config: type[PairConfig]) -> None:
    """Add a flag for each field; those that are not given set nothing, as ``config`` has the defaults."""
    hints = get_type_hints(config, include_extras=True)
    for each in fields(config):
        kind, text, *parse = get_args(hints[each.name])
        several = get_origin(kind) is tuple
        one: Any = get_args(kind)[0] if get_args(kind) else kind
        parser.add_argument(
            f"--{each.name.replace('_', '-')}",
            type=parse[0] if parse else one,
            nargs="+" if several and not parse else None,
            required=each.default is MISSING,
            default=SUPPRESS,
            help=text,
        )


def numbers(text: str) -> tuple[float, ...]:
    """Parse numbers separated by commas."""
    return tuple(map(float, text.split(",")))


def _plain(value: object) -> object:
    if isinstance(value, tuple | list):
        return [_plain(each) for each in value]
    return str(value) if isinstance(value, Path) else value

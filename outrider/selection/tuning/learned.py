"""What a speculation tuner learned, for the next one on the same machine: as data, and as the text of a small file.

A file is of one key: model pair, engine, processor, and whatever else the speed of a mode depends on. One that is
damaged, of another version or of another key is worth nothing, and is refused whole.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Annotated, Literal

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass as checked

from outrider.contracts.errors import ParameterError
from outrider.selection.tuning.rewards import Reward

MAX_LEARNED_BYTES = 64 * 1024
_Name = Annotated[str, Field(strict=True, max_length=64)]
_Cell = tuple[  # load, tokens/s, epochs, variance
    Annotated[float, Field(ge=0.1, le=1e5)],
    Annotated[float, Field(ge=1e-6, le=1e6)],
    Annotated[float, Field(ge=0.01, le=100.0)],
    Annotated[float, Field(ge=1e-6, le=10.0)],
]


@dataclass(frozen=True, slots=True)
class LearnedChoice:
    kept: str = ""  # the mode kept last
    rewards: Mapping[str, tuple[Reward, ...]] = field(default_factory=dict)  # of each mode, by load
    pauses_s: Mapping[str, float] = field(default_factory=dict)  # of modes that were tried in vain (``TrialBudget``)


@checked(frozen=True, slots=True, config=ConfigDict(extra="forbid", allow_inf_nan=False))
class _LearnedFields:
    key: _Name
    kept: _Name
    rewards: Annotated[dict[_Name, Annotated[tuple[_Cell, ...], Field(max_length=64)]], Field(max_length=8)]
    pauses_s: Annotated[dict[_Name, Annotated[float, Field(ge=0.0, le=300.0)]], Field(max_length=8)]
    version: Literal[1] = 1


_ADAPTER = TypeAdapter(_LearnedFields)


def learned_key(*parts: object) -> str:
    """Return the key of what the parts name: a hash of their representations."""
    return sha256(repr(parts).encode()).hexdigest()[:32]


def written(learned: LearnedChoice, key: str) -> str:
    cells = {mode: tuple(one.measured() for one in rewards[:64]) for mode, rewards in learned.rewards.items()}
    return _ADAPTER.dump_json(_LearnedFields(key, learned.kept, cells, dict(learned.pauses_s))).decode()


def parsed(text: str, key: str) -> LearnedChoice:
    """Read what ``written`` wrote under the same key; anything else is a ``ParameterError``."""
    try:
        found = _ADAPTER.validate_json(text)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"]))[:100]
        raise ParameterError("learned", "a whole file of version 1", f"{where}: {first['msg']:.200}") from None
    if found.key != key:
        raise ParameterError("learned", f"key {key}", found.key)
    rewards = {mode: tuple(Reward(*cell) for cell in cells) for mode, cells in found.rewards.items()}
    return LearnedChoice(found.kept, rewards, found.pauses_s)

"""Read and write cost profiles: coefficients measured by ``outrider profile`` and the machine they are for, as JSON.

A profile is used only where it was made: same model, dtype, engine, kind of device and hardware, and on a CPU the same
number of threads. Otherwise it is refused with the reason, and the online estimator starts from the built-in model.
``wisp_table_12`` is published, for comparison, and matches no machine.
"""

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass

from outrider.contracts.cost import EXACT_ROWS, ROW_BUCKETS, LinearCostModel, bucket_rows
from outrider.contracts.errors import ConfigError
from outrider.documents.problems import ConfigFileError, explain
from outrider.documents.text_file import read_text

SCHEMA_VERSION = 1
WISP_TABLE_12 = "wisp_table_12"
_FORBID = ConfigDict(extra="forbid")

Text = Annotated[str, Field(strict=True, min_length=1)]
Slope = Annotated[float, Field(ge=0, le=1_000)]
Offset = Annotated[float, Field(ge=-1_000, le=1_000)]
Guard = Annotated[float, Field(ge=0, le=100)]
Count = Annotated[int, Field(strict=True, ge=0, le=1_000_000)]


@dataclass(frozen=True, slots=True, config=_FORBID)
class ProfiledOn:
    """Machine, engine and model that a profile is for."""

    hardware: Text  # name of the CPU or GPU
    device: Text  # ``cpu`` or ``cuda``
    threads: Count  # of the engine; ``cores``: of the machine; 0 if not known
    engine: Text  # name; ``engine_version`` is informative only and never compared
    model: Text  # short name; ``dtype``: of weights and KV
    dtype: Text
    cores: Count = 0
    engine_version: Text = "unknown"


@dataclass(frozen=True, slots=True, config=_FORBID)
class CostProfile:
    """Coefficients of eq. 19 with row offsets, in seconds, and their origin."""

    name: Text
    profiled_on: ProfiledOn
    date: Text
    seconds_per_token: Slope
    seconds_per_interaction: Slope
    seconds_per_cached_token: Slope
    seconds_per_batch: Slope
    # by numbers of new positions, ``7`` or ``17-32``; 0 for those left out
    row_offsets_s: Mapping[Text, Offset] = Field(default_factory=dict)
    guard: Guard = 0.0  # share of a prediction to keep free behind it
    figures: Mapping[Text, float | None] = Field(default_factory=dict)  # of the fit, by name; informative only
    published: bool = False  # taken from a paper, for comparison: matches no machine
    schema_version: Count = SCHEMA_VERSION

    def __post_init__(self) -> None:
        if self.schema_version != SCHEMA_VERSION:
            needed = f"{SCHEMA_VERSION}, the one this version reads; run `outrider profile` again"
            raise ConfigError("schema_version", needed, self.schema_version)
        for rows in self.row_offsets_s:
            if rows not in _ROWS:
                raise ConfigError(f"row_offsets_s.{rows}", f"rows as in 1, {EXACT_ROWS} or {_ROWS[17]}", rows)

    @property
    def model(self) -> LinearCostModel:
        offsets = [self.row_offsets_s.get(rows, 0.0) for rows in _ROWS]
        return LinearCostModel(
            self.seconds_per_token,
            self.seconds_per_interaction,
            self.seconds_per_cached_token,
            self.seconds_per_batch,
            tuple(offsets) if self.row_offsets_s else (),
            self.guard,
        )


def _rows_of(bucket: int) -> str:
    first, last = bucket_rows(bucket)
    return str(first) if first == last else f"{first}-{last}"


_ROWS = tuple(_rows_of(bucket) for bucket in range(ROW_BUCKETS))
_ADAPTER = TypeAdapter(CostProfile)


def profile_of(
    name: str, model: LinearCostModel, profiled_on: ProfiledOn, date: str, figures: Mapping[str, float | None]
) -> CostProfile:
    offsets = zip(_ROWS, model.row_offsets_s, strict=False)
    measured = {rows: offset for rows, offset in offsets if offset}
    return CostProfile(name, profiled_on, date, *model.slopes, measured, model.relative_guard, figures)


def read_profile(path: str | Path) -> CostProfile:
    """Read a profile's file; a ``ConfigError`` lists all problems with field and file."""
    return parse_profile(read_text(path, "cost profile", "JSON"), str(path))


def parse_profile(text: str, source: str) -> CostProfile:
    try:
        return _ADAPTER.validate_json(text)
    except ValidationError as error:
        if any(problem["type"] == "json_invalid" for problem in error.errors()):
            invalid = ConfigError("cost profile", "valid JSON", str(error.errors()[0]["ctx"]["error"]))
            raise ConfigFileError((invalid,), source) from error
        raise ConfigFileError(explain(error, _ADAPTER.json_schema()), source) from error


def to_json(profile: CostProfile) -> str:
    return _ADAPTER.dump_json(profile, indent=1).decode() + "\n"


def matches(profile: CostProfile, machine: ProfiledOn) -> str | None:
    """Return why a profile must not be used on a machine; None if it matches."""
    if profile.published:
        return f"{profile.name} is published, for comparison; measure this machine with `outrider profile`"
    compared = ["model", "dtype", "engine", "device", "hardware"]
    if machine.device == "cpu":
        compared.append("threads")
    ours, theirs = asdict(machine), asdict(profile.profiled_on)
    for field in compared:
        if ours[field] != theirs[field]:
            return f"{profile.name} needs {field} {theirs[field]!r}, found {ours[field]!r}; run `outrider profile` here"
    return None

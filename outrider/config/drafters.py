"""Sections of the configuration on groups of drafters: their models, links, stop rules and round logs."""

from collections import ChainMap
from dataclasses import field
from fnmatch import fnmatchcase
from operator import attrgetter
from pathlib import PurePath
from typing import Annotated, Literal

from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass

from outrider.config.values import (
    FORBID,
    Device,
    DrafterDType,
    LossRate,
    Mebibytes,
    Milliseconds,
    ModelHash,
    Name,
    Number,
    PositiveNumber,
    Quantity,
    Resources,
    Share,
    Text,
    Threads,
    Trust,
    check_gpu,
)
from outrider.contracts.errors import ConfigError
from outrider.documents.names import NameIn
from outrider.drafting.stopping import STOP_KINDS
from outrider.engines.kinds import DrafterKind
from outrider.engines.registry import DRAFTERS
from outrider.link.profiles import PROFILES
from outrider.models.embedded import DRAFTER_NAME
from outrider.models.folders import EMBEDDED

AUTO = "auto"


@dataclass(frozen=True, slots=True, config=FORBID)
class LinkConfig:
    """An emulated link in one of three forms: a profile, a trace file, or figures; ``outrider.assembly.links``."""

    profile: Text | None = None
    trace: Text | None = None
    up_mbps: Quantity | None = None
    down_mbps: Quantity | None = None
    rtt_ms: Milliseconds | None = None
    per_up: LossRate | None = None
    per_down: LossRate | None = None
    jitter_ms: Milliseconds | None = None

    def __post_init__(self) -> None:
        needed_figures = {"up_mbps": self.up_mbps, "down_mbps": self.down_mbps, "rtt_ms": self.rtt_ms}
        figures = needed_figures | {"per_up": self.per_up, "per_down": self.per_down, "jitter_ms": self.jitter_ms}
        forms = {"profile": self.profile, "trace": self.trace} | figures
        given = [name for name, value in forms.items() if value is not None]
        if self.profile is not None and self.profile not in PROFILES:
            raise ConfigError("profile", f"one of {', '.join(PROFILES)}", self.profile)
        if not given:
            raise ConfigError("profile", "a name where neither trace nor up_mbps, down_mbps and rtt_ms are given", None)
        if given[0] in {"profile", "trace"}:
            if len(given) > 1:
                raise ConfigError(given[1], f"to be left out where {given[0]} is given", forms[given[1]])
            return
        for name, value in needed_figures.items():
            if value is None:
                raise ConfigError(name, f"a number where {given[0]} is given", value)


@dataclass(frozen=True, slots=True, config=FORBID)
class StoppingConfig:
    """Stop rule of a group's devices: when they end a draft before its ordered length."""

    rule: Annotated[str, NameIn(STOP_KINDS)] = "never"
    predictor: Text | None = "auto"


@dataclass(frozen=True, slots=True, config=FORBID)
class RoundLogConfig:
    """Where a group's devices log rounds for training; see ``outrider.drafting.round_log``."""

    folder: Text
    most_mib: Annotated[int, Field(strict=True, ge=1, le=1_048_576)] = 64

    def __post_init__(self) -> None:
        """Refuse a relative folder: it would depend on where each process is started."""
        if not PurePath(self.folder).is_absolute() and not self.folder.startswith("~"):
            raise ConfigError("folder", "an absolute path, or one that begins with ~", self.folder)


@dataclass(frozen=True, slots=True, config=ConfigDict(**FORBID, populate_by_name=True))
class DrafterGroupConfig:
    """Drafters of one kind of device."""

    name: Name
    # ``from`` in a file, which is a word of Python
    from_: Annotated[Literal["ray", "gateway"], Field(alias="from")] = "ray"
    # whether answers may depend on what they report of their drafts; None: decided by where they run
    trust: Trust | None = None
    engine: Annotated[str, NameIn(ChainMap({AUTO: None}, DRAFTERS))] = "torch"
    model: Text = "smollm2-135m-drafter"
    # of the model's files; None: hash the files on the machine that assembles the application
    model_hash: ModelHash | None = None
    dtype: DrafterDType = "auto"
    device: Device = "cpu"
    count: Number = 1
    max_devices: PositiveNumber = 64
    devices: Annotated[tuple[Text, ...], Field(min_length=1)] | None = None
    resources: Resources = field(default_factory=lambda: {"jetson": 1.0})
    num_cpus: Share = 0.0
    num_gpus: Share = 0.0
    threads: Threads = 1
    max_generations: PositiveNumber = 32
    kv_budget_mib: Mebibytes = 256
    decision_head: Text | None = "auto"
    stopping: StoppingConfig = field(default_factory=StoppingConfig)
    round_log: RoundLogConfig | None = None
    link: LinkConfig | None = None
    emulated_step_ms: Milliseconds = 0.0

    def __post_init__(self) -> None:
        """Refuse a CUDA device without a GPU share (Ray would hide every GPU), what engine or device cannot."""
        check_gpu(self.device, self.num_gpus)
        self.kind.check(self.device, self.dtype)
        not_told = {"engine_name": "onnx", "threads": 1, "kv_budget_mib": 256, "stopping.rule": "never"}
        dialled = {**not_told, "round_log": None, "link": None, "emulated_step_ms": 0.0}
        for name, needed in (dialled if self.dials_in else {"devices": None, "max_devices": 64}).items():
            if (found := attrgetter(name)(self)) != needed:
                wanted = f"{'null' if needed is None else needed} where from is {self.from_}"
                raise ConfigError(name.removesuffix("_name"), wanted, found)

    @property
    def dials_in(self) -> bool:
        """Whether its devices dial in to a gateway; else they are actors in the Ray cluster."""
        return self.from_ == "gateway"

    @property
    def engine_name(self) -> str:
        """Its engine; ``auto`` is onnx where devices dial in, and on CPUs for the embedded drafter and .onnx files."""
        if self.engine != AUTO:
            return self.engine
        exported = self.model in (EMBEDDED, DRAFTER_NAME) or DRAFTERS["onnx"].chains_only(self.model)
        fits = self.device == "cpu" and self.dtype in (AUTO, "int8")
        return "onnx" if self.dials_in or (exported and fits) else "torch"

    @property
    def kind(self) -> DrafterKind:
        return DRAFTERS[self.engine_name]

    @property
    def chains_only(self) -> bool:
        """Whether its devices draft nothing but chains of token ids."""
        return self.dials_in or self.kind.chains_only(self.model)

    @property
    def actors(self) -> int:
        """How many of its drafters the fleet starts; devices that dial in start themselves."""
        return 0 if self.dials_in else self.count

    @property
    def drafts(self) -> bool:
        """Whether it may have devices at all."""
        return self.dials_in or self.count > 0

    def may_join(self, device: str) -> bool:
        """Return whether a device of this name may dial in to draft for it."""
        return self.dials_in and (self.devices is None or any(fnmatchcase(device, name) for name in self.devices))

    @property
    def trusted(self) -> bool:
        """Whether it is declared as trusted; by default it is not."""
        return self.trust == "trusted"

"""Schema of simulation files: one frozen dataclass per mapping, strict types, ranges in the types.

A ``ScenarioFile`` has devices that share one server, a ``FleetFile`` many verifiers with drafters and traffic.
``lab.simulation.reading`` validates files by these and builds what is simulated.
"""

from collections.abc import Collection
from dataclasses import field, fields
from typing import Annotated, Protocol

from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass

from lab.simulation.acceptance_models import Probability
from lab.simulation.fleet.scenario import ConversationTraits, DrafterTraits, RouterRules
from lab.simulation.lengths import Spread, Tokens
from lab.simulation.roofline import HARDWARE, MODELS
from lab.simulation.scenario import Devices, SecondsOrNone, System
from outrider.admission.rules import AdmissionRules
from outrider.config.drafters import LinkConfig
from outrider.config.schema import SloClassConfig
from outrider.config.values import Name, Number, PositiveNumber, SchedulingName, Text
from outrider.contracts.errors import ConfigError
from outrider.protocols.registry import tree_protocols

Rate = Annotated[float, Field(gt=0, le=100_000)]
Seconds = Annotated[float, Field(gt=0, le=1_000_000)]
Microseconds = Annotated[float, Field(ge=0, le=1_000_000)]
Coefficient = Annotated[float, Field(ge=0, le=1_000)]

_FORBID = ConfigDict(extra="forbid")
_ADMISSION = AdmissionRules()


@dataclass(frozen=True, slots=True, kw_only=True, config=_FORBID)
class DeviceGroupConfig(Devices):
    """Devices of one kind, with their SLO class and link by name."""

    draft_tokens_per_s: Rate
    slo: Name = "best_effort"
    link: LinkConfig | None = None

    def __post_init__(self) -> None:
        if self.expansion and self.protocol not in tree_protocols():
            raise ConfigError("expansion", f"a protocol of trees ({', '.join(tree_protocols())})", self.protocol)
        if self.expansion and self.predictor is not None:
            raise ConfigError("predictor", "to be left out where expansion is given", "a predictor")


@dataclass(frozen=True, slots=True, config=_FORBID)
class CoefficientsConfig:
    """The four coefficients of WISP eq. 19, in seconds."""

    per_token_s: Coefficient
    per_interaction_s: Coefficient
    per_cached_token_s: Coefficient
    per_batch_s: Coefficient


@dataclass(frozen=True, slots=True, config=_FORBID)
class RooflineConfig:
    """A model on a GPU, from data sheets (``lab.simulation.roofline``)."""

    model: Text
    gpu: Text

    def __post_init__(self) -> None:
        if self.model not in MODELS:
            raise ConfigError("model", f"one of {', '.join(MODELS)}", self.model)
        if self.gpu not in HARDWARE:
            raise ConfigError("gpu", f"one of {', '.join(HARDWARE)}", self.gpu)


@dataclass(frozen=True, slots=True, config=_FORBID)
class CostConfig:
    """Cost model of a forward pass: coefficients, a profile (a shipped name or a file), or a roofline."""

    coefficients: CoefficientsConfig | None = None
    profile: Text | None = None
    roofline: RooflineConfig | None = None

    def __post_init__(self) -> None:
        given = [name for name in ("coefficients", "profile", "roofline") if getattr(self, name) is not None]
        if len(given) != 1:
            raise ConfigError("coefficients", "exactly one of coefficients, profile and roofline", given)


@dataclass(frozen=True, slots=True, config=_FORBID)
class HostMemoryConfig:
    """Host memory for evicted KV (``lab.simulation.scenario.HostMemory``)."""

    tokens: Tokens
    kv_bytes_per_token: PositiveNumber
    bytes_per_s: Annotated[float, Field(gt=0, le=1e15)]  # copied each way


@dataclass(frozen=True, slots=True, config=_FORBID)
class ServerConfig:
    """The verifier (``lab.simulation.scenario.VerifierModel``).

    Without ``kv_tokens`` KV memory has no limit; with a roofline it then follows from GPU and model.
    """

    cost: CostConfig
    kv_tokens: Tokens | None = None
    host: HostMemoryConfig | None = None
    kv_block_tokens: PositiveNumber = 16
    max_blocks: PositiveNumber = 512
    max_new_tokens: PositiveNumber = 8192
    prefill_chunk_tokens: PositiveNumber = 1024
    noise: Spread = 0.0
    dispatch_s: SecondsOrNone = 0.002
    reply_s: SecondsOrNone = 0.0


@dataclass(frozen=True, slots=True, kw_only=True, config=_FORBID)
class SimDrafterGroupConfig(DrafterTraits):
    draft_tokens_per_s: Rate  # at the median
    link: LinkConfig | None = None


@dataclass(frozen=True, slots=True, kw_only=True, config=_FORBID)
class TrafficConfig(ConversationTraits):
    slo: Name = "best_effort"


@dataclass(frozen=True, slots=True, config=_FORBID)
class CoordinatorConfig:
    """CPU time of each coordinator, on one core. The defaults were measured (docs/archive/fleet-and-routing.md)."""

    round_us: Microseconds = 97.0
    token_us: Microseconds = 0.0


@dataclass(frozen=True, slots=True, config=_FORBID)
class SimAdmissionConfig:
    """Admission of each coordinator (``outrider.admission.rules``), with the service's own defaults."""

    enabled: bool = True
    weighs: bool = _ADMISSION.weighs
    max_load: Annotated[float, Field(gt=0, le=1)] = _ADMISSION.max_load
    best_effort_floor: Probability = _ADMISSION.best_effort_floor
    max_active: PositiveNumber = _ADMISSION.max_active
    max_waiting: Number = _ADMISSION.max_waiting
    max_wait_s: SecondsOrNone = _ADMISSION.max_wait_s
    best_effort_max_wait_s: SecondsOrNone = _ADMISSION.best_effort_max_wait_s

    @property
    def rules(self) -> AdmissionRules | None:
        """The rules for coordinators; None where admission is disabled."""
        if not self.enabled:
            return None
        return AdmissionRules(**{one.name: getattr(self, one.name) for one in fields(AdmissionRules)})


@dataclass(frozen=True, slots=True, config=_FORBID)
class VerifiersConfig:
    count: Annotated[int, Field(strict=True, ge=1, le=100_000)]
    server: ServerConfig
    lost_every_s: Seconds | None = None  # mean time until a verifier is lost with its coordinator; None: none is lost
    reload_s: SecondsOrNone = 60.0  # time until it is back, with empty memory


class SimulationFile(Protocol):
    """What every file says of its run; files have the fields themselves, so that problems are told in their order."""

    @property
    def duration_s(self) -> float: ...

    @property
    def warmup_s(self) -> float: ...


def _check(file: SimulationFile, named: Collection[str]) -> None:
    """Refuse repeated names in the fields ``named``, and a warm-up that is not shorter than the run."""
    for name in (*named, "slo_classes"):
        names = [one.name for one in getattr(file, name)]
        if len(set(names)) < len(names):
            raise ConfigError(name, "a different name for each", names)
    if file.warmup_s >= file.duration_s:
        raise ConfigError("warmup_s", f"a number below duration_s ({file.duration_s:g})", file.warmup_s)


@dataclass(frozen=True, slots=True, kw_only=True, config=_FORBID)
class ScenarioFile:
    devices: Annotated[tuple[DeviceGroupConfig, ...], Field(min_length=1)]
    server: ServerConfig
    name: Text = "scenario"
    systems: Annotated[tuple[System, ...], Field(min_length=1)] = (System.OUTRIDER,)
    policy: SchedulingName | None = None
    slo_classes: tuple[SloClassConfig, ...] = ()
    duration_s: Seconds = 120.0
    warmup_s: SecondsOrNone = 20.0
    seed: Number = 0
    epsilon: Probability = 0.05

    def __post_init__(self) -> None:
        _check(self, ("devices",))


@dataclass(frozen=True, slots=True, kw_only=True, config=_FORBID)
class FleetFile:
    verifiers: VerifiersConfig
    drafters: Annotated[tuple[SimDrafterGroupConfig, ...], Field(min_length=1)]
    traffic: Annotated[tuple[TrafficConfig, ...], Field(min_length=1)]
    name: Text = "fleet"
    router: RouterRules = field(default_factory=RouterRules)
    coordinator: CoordinatorConfig = field(default_factory=CoordinatorConfig)
    admission: SimAdmissionConfig = field(default_factory=SimAdmissionConfig)
    policy: SchedulingName = "slo_aware"
    slo_classes: tuple[SloClassConfig, ...] = ()
    duration_s: Seconds = 120.0
    warmup_s: SecondsOrNone = 20.0
    plans_late: bool = True
    seed: Number = 0

    def __post_init__(self) -> None:
        _check(self, ("drafters", "traffic"))

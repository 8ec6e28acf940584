"""What a fleet file may say: one frozen dataclass per mapping, strict types, ranges in the types.

``outrider.simulation.fleet.reading`` reads files by it and makes a ``FleetScenario`` of what they say.
"""

from dataclasses import field
from typing import Annotated

from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass

from outrider.admission.rules import AdmissionRules
from outrider.config.schema import LinkConfig, Name, Number, PositiveNumber, SchedulingName, SloClassConfig, Text
from outrider.contracts.errors import ConfigError
from outrider.simulation.acceptance_models import Probability
from outrider.simulation.fleet.scenario import DrafterTraits, RouterRules, Talks
from outrider.simulation.scenario import SecondsOrNone
from outrider.simulation.scenario_schema import Rate, Seconds, ServerConfig

_FORBID = ConfigDict(extra="forbid")
Microseconds = Annotated[float, Field(ge=0, le=1_000_000)]
_ADMISSION = AdmissionRules()


@dataclass(frozen=True, slots=True, kw_only=True, config=_FORBID)
class DrafterGroupConfig(DrafterTraits):
    """Drafters that are alike but for chance, with their link by name."""

    draft_tokens_per_s: Rate  # at the median
    link: LinkConfig | None = None


@dataclass(frozen=True, slots=True, kw_only=True, config=_FORBID)
class TrafficConfig(Talks):
    """Conversations that are alike but for chance, with their promise by name."""

    slo: Name = "best_effort"


@dataclass(frozen=True, slots=True, config=_FORBID)
class CoordinatorConfig:
    """What each coordinator computes itself, on one core. The defaults are as measured (docs/experiments.md)."""

    round_us: Microseconds = 97.0
    token_us: Microseconds = 0.0


@dataclass(frozen=True, slots=True, config=_FORBID)
class AdmissionConfig:
    """Of each coordinator (``outrider.admission.rules``); the service's own defaults."""

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
        """As coordinators take them."""
        if not self.enabled:
            return None
        return AdmissionRules(
            self.weighs,
            self.max_load,
            self.best_effort_floor,
            self.max_active,
            self.max_waiting,
            self.max_wait_s,
            self.best_effort_max_wait_s,
        )


@dataclass(frozen=True, slots=True, config=_FORBID)
class VerifiersConfig:
    """So many servers that are alike.

    Attributes:
        lost_every_s: mean time until one is lost, with its coordinator; without it none is.
        reload_s: until it is back, with nothing in its memory.
    """

    count: Annotated[int, Field(strict=True, ge=1, le=100_000)]
    server: ServerConfig
    lost_every_s: Seconds | None = None
    reload_s: SecondsOrNone = 60.0

    def __post_init__(self) -> None:
        """Refuse what only a server that drafts itself needs."""
        if self.server.draft_cost is not None:
            raise ConfigError("server.draft_cost", "to be left out: devices draft", "a cost")


@dataclass(frozen=True, slots=True, config=_FORBID)
class FleetFile:
    """A fleet: verifiers, drafters, and who asks."""

    verifiers: VerifiersConfig
    drafters: Annotated[tuple[DrafterGroupConfig, ...], Field(min_length=1)]
    traffic: Annotated[tuple[TrafficConfig, ...], Field(min_length=1)]
    name: Text = "fleet"
    router: RouterRules = field(default_factory=RouterRules)
    coordinator: CoordinatorConfig = field(default_factory=CoordinatorConfig)
    admission: AdmissionConfig = field(default_factory=AdmissionConfig)
    policy: SchedulingName = "slo_aware"
    slo_classes: tuple[SloClassConfig, ...] = ()
    duration_s: Seconds = 120.0
    warmup_s: SecondsOrNone = 20.0
    plans_late: bool = True
    seed: Number = 0

    def __post_init__(self) -> None:
        """Refuse two of one name and a warm-up without an end."""
        for name in ("drafters", "traffic", "slo_classes"):
            names = [one.name for one in getattr(self, name)]
            if len(set(names)) < len(names):
                raise ConfigError(name, "a different name for each", names)
        if self.warmup_s >= self.duration_s:
            raise ConfigError("warmup_s", f"a number below duration_s ({self.duration_s:g})", self.warmup_s)

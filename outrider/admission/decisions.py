"""Define requests to admission and its decisions: plain data."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from math import inf

from outrider.contracts.accounts import NO_ACCOUNT, Account
from outrider.contracts.requests import GenerationId
from outrider.contracts.slo import SloClass


@dataclass(frozen=True, slots=True)
class AdmissionRequest:
    name: GenerationId
    classes: tuple[SloClass, ...]  # SLO classes it accepts, in order of preference; at least one
    prompt_tokens: int
    asked_at_s: float
    most_tokens: float = inf  # upper bound of its output, if known; not a length
    # longest time until it is begun, if the client sets one; divided evenly among its classes
    first_token_s: float | None = None
    resumed: bool = False  # whether it was begun elsewhere, so that its client has tokens
    account: Account = NO_ACCOUNT  # account that is charged
    priority: int = 0  # among waiting responses of the same account and user; a lower one goes first


class ScarceResource(StrEnum):
    """Resource that was too scarce; exported as a metric label."""

    LOAD = "load"  # verifier time for the promise
    MEMORY = "memory"  # KV
    PLACES = "places"  # responses at a time
    QUEUE = "queue"  # places to wait in


@dataclass(frozen=True, slots=True)
class Shortage:
    """``allowed`` less ``in_use`` was left, a response ``needed`` more; in the unit of the resource."""

    resource: ScarceResource
    needed: float
    in_use: float
    allowed: float


@dataclass(frozen=True, slots=True)
class Admitted:
    """A response to begin now, with the promise of this class."""

    name: GenerationId
    slo: SloClass
    waited_s: float


@dataclass(frozen=True, slots=True)
class AdmissionRefused:
    name: GenerationId
    slo: SloClass  # the last class it waited for
    shortage: Shortage
    waited_s: float
    retry_after_s: int  # when it should fit, at least 1

    @property
    def message(self) -> str:
        """Text for the client: what was needed, what was found and when to retry."""
        found = _FOUND[self.shortage.resource].format(slo=self.slo.name, **_rounded(self.shortage))
        waited = f" for {self.waited_s:.1f} s" if self.waited_s >= 0.05 else ""
        lower = "" if not self.slo.tokens_per_s else ", or list slower classes behind it in outrider.slo_class"
        return f"{found}{waited}; try again in {self.retry_after_s} s{lower}"


_FOUND = {
    ScarceResource.LOAD: (
        "{slo} needs {needed} verifier seconds per second, found {in_use} of {allowed} promised to others"
    ),
    ScarceResource.MEMORY: "{slo} needs KV for {needed} positions, found {in_use} of {allowed} expected by others",
    ScarceResource.PLACES: "{slo} needs a free place, found {in_use} of {allowed} responses being made",
    ScarceResource.QUEUE: "{slo} needs a place in the queue, found {in_use} of {allowed} taken",
}


def _rounded(shortage: Shortage) -> dict[str, str]:
    digits = 3 if shortage.resource is ScarceResource.LOAD else 0
    return {name: f"{getattr(shortage, name):.{digits}f}" for name in ("needed", "in_use", "allowed")}


@dataclass(frozen=True, slots=True)
class Decisions:
    """Changes since the last decision. A ``suspended`` response begins no round until it is ``continued``."""

    admitted: tuple[Admitted, ...] = ()
    refused: tuple[AdmissionRefused, ...] = ()
    suspended: tuple[GenerationId, ...] = ()
    continued: tuple[GenerationId, ...] = ()


@dataclass(frozen=True, slots=True)
class ClassAdmission:
    """Responses of one class: counters since the start; ``waiting`` and ``active`` are of now."""

    asked: int = 0  # preferred it
    admitted: int = 0  # begun with its promise
    lowered: int = 0  # preferred it, begun with another
    refused: int = 0  # preferred it, not begun
    left: int = 0  # client left while it waited
    kept: int = 0  # ended by itself at the promised speed; without a promise, every one that ended by itself
    late: int = 0  # ended by itself, slower than promised
    waiting: int = 0
    active: int = 0


@dataclass(frozen=True, slots=True)
class AdmissionReport:
    load: float = 0.0  # verifier seconds per second that active promises need; ``limit``: the most they may need
    limit: float = 0.0
    # positions of KV expected of active responses; ``kv_limit``: of the verifier, None if without limit or not known
    # yet
    kv_tokens: float = 0.0
    # responses that wait for a place again; ``stalled``: responses whose clients have stopped reading
    suspended: int = 0
    stalled: int = 0
    queued_load: float = 0.0  # load of responses that wait to be begun; ``queued_kv_tokens``: their positions
    queued_kv_tokens: float = 0.0
    kv_limit: int | None = None
    places: int = 0  # responses that may be active at once
    classes: Mapping[str, ClassAdmission] = field(default_factory=dict)

"""What admission is asked and what it decides: plain data."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from math import inf

from outrider.contracts.accounts import NO_ACCOUNT, Account
from outrider.contracts.requests import GenerationId
from outrider.contracts.slo import SloClass


@dataclass(frozen=True, slots=True)
class AdmissionRequest:
    """A response that is to be begun.

    Attributes:
        classes: whose promise it takes, in order of preference; at least one.
        most_tokens: of its output, as far as that is known: an upper bound, no length.
        first_token_s: in which it is to be begun, if it says so: shared by its classes.
        resumed: it was begun elsewhere, and its client has been answered.
        account: it is charged to.
    """

    name: GenerationId
    classes: tuple[SloClass, ...]
    prompt_tokens: int
    asked_at_s: float
    most_tokens: float = inf
    first_token_s: float | None = None
    resumed: bool = False
    account: Account = NO_ACCOUNT


class Lack(StrEnum):
    """What there was too little of; exported as a metric label."""

    LOAD = "load"  # verifier time for the promise
    MEMORY = "memory"  # KV
    PLACES = "places"  # responses at once
    QUEUE = "queue"  # room to wait


@dataclass(frozen=True, slots=True)
class Shortage:
    """Of what, and how much: ``needed`` beside ``held`` of ``allowed``, in the unit of the lack."""

    lack: Lack
    needed: float
    held: float
    allowed: float


@dataclass(frozen=True, slots=True)
class Admitted:
    """It is to be begun now, with the promise of this class."""

    name: GenerationId
    slo: SloClass
    waited_s: float


@dataclass(frozen=True, slots=True)
class AdmissionRefused:
    """It is not begun."""

    name: GenerationId
    slo: SloClass  # the last class it could have had
    shortage: Shortage
    waited_s: float
    retry_after_s: int  # by when there should be room, at least 1

    @property
    def message(self) -> str:
        """What was needed, what was found, what to do."""
        found = _FOUND[self.shortage.lack].format(slo=self.slo.name, **_rounded(self.shortage))
        waited = f" for {self.waited_s:.1f} s" if self.waited_s >= 0.05 else ""
        lower = "" if not self.slo.tokens_per_s else ", or list slower classes behind it in outrider.slo_class"
        return f"{found}{waited}; try again in {self.retry_after_s} s{lower}"


_FOUND = {
    Lack.LOAD: "{slo} needs {needed} verifier seconds per second, found {held} of {allowed} promised to others",
    Lack.MEMORY: "{slo} needs KV for {needed} positions, found {held} of {allowed} expected by others",
    Lack.PLACES: "{slo} needs a free place, found {held} of {allowed} responses being made",
    Lack.QUEUE: "{slo} needs a place to wait in, found {held} of {allowed} taken",
}


def _rounded(shortage: Shortage) -> dict[str, str]:
    digits = 3 if shortage.lack is Lack.LOAD else 0
    return {name: f"{getattr(shortage, name):.{digits}f}" for name in ("needed", "held", "allowed")}


@dataclass(frozen=True, slots=True)
class Decisions:
    """What changes now. Whoever was admitted and is ``suspended`` begins no round until it is ``continued``."""

    admitted: tuple[Admitted, ...] = ()
    refused: tuple[AdmissionRefused, ...] = ()
    suspended: tuple[GenerationId, ...] = ()
    continued: tuple[GenerationId, ...] = ()


@dataclass(frozen=True, slots=True)
class ClassAdmission:
    """Responses of one class; counters since the start, ``waiting`` and ``active`` aside, which are of now."""

    asked: int = 0  # that preferred it
    admitted: int = 0  # that were begun with its promise
    lowered: int = 0  # that preferred it and were begun with another
    refused: int = 0  # that preferred it and were not begun
    left: int = 0  # whose client left while they waited
    kept: int = 0  # that ended by themselves, at the promised speed; without a promise all that ended
    late: int = 0  # that ended by themselves, slower
    waiting: int = 0
    active: int = 0


@dataclass(frozen=True, slots=True)
class AdmissionReport:
    """How it stands: verifier seconds per second promised and allowed, positions of KV expected, and the classes.

    ``suspended``: responses that wait for a place again; ``stalled``: that nobody reads.
    ``queued_load``, ``queued_kv_tokens``: what those would need that wait to be begun. ``kv_limit``: positions there
    are, None is no limit or not known yet; ``places``: responses that may be made at once.
    """

    load: float = 0.0
    limit: float = 0.0
    kv_tokens: float = 0.0
    suspended: int = 0
    stalled: int = 0
    queued_load: float = 0.0
    queued_kv_tokens: float = 0.0
    kv_limit: int | None = None
    places: int = 0
    classes: Mapping[str, ClassAdmission] = field(default_factory=dict)

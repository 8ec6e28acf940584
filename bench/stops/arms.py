"""Ways to end a draft that are put side by side, and which services have to be started for them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from outrider.config.schema import Config, StoppingConfig
from outrider.drafting.stopping import STOP_KINDS

NEVER = "never"


@dataclass(frozen=True, slots=True)
class Arm:
    """One way.

    Attributes:
        rule: of the devices (``STOP_KINDS``).
        options: the request's ``outrider``.
    """

    name: str
    rule: str
    options: Mapping[str, object] = field(default_factory=dict)


def arms(windows: Sequence[int], longest: int) -> tuple[Arm, ...]:
    """Fixed windows, the service's own choice, each rule at the longest window; and the last of them by own choice."""
    fixed = [Arm("target alone" if not window else f"window {window}", NEVER, {"window": window}) for window in windows]
    stopping = [Arm(rule.replace("_", " "), rule, {"window": longest}) for rule in STOP_KINDS if rule != NEVER]
    own = [Arm("own choice" if rule == NEVER else "own choice, priced", rule) for rule in (NEVER, "while_it_pays")]
    return (*fixed, own[0], *stopping, own[1])


def served_by(config: Config, rule: str) -> Config:
    """The service for the arms of a rule. It looks nothing up: a request that says so is no evidence to a regime."""
    groups = tuple(
        replace(group, stopping=replace(group.stopping or StoppingConfig(), rule=rule)) for group in config.drafters
    )
    return replace(config, drafters=groups, speculation=replace(config.speculation, lookup_window=0))

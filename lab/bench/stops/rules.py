"""Ways to end a draft that are compared, and the services that they need."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from outrider.config.schema import Config
from outrider.drafting.stopping import STOP_KINDS

NEVER = "never"


@dataclass(frozen=True, slots=True)
class Arm:
    name: str
    rule: str  # of the devices (``STOP_KINDS``)
    options: Mapping[str, object] = field(default_factory=dict)  # the request's ``outrider``


# All by protocol token_ids; none of them is a chain.
_TREES = (
    Arm("tree 2,2,1", NEVER, {"protocol": "token_ids", "window": 3, "expansion": (2, 2, 1)}),
    Arm("tree grown to 8", NEVER, {"protocol": "token_ids", "window": 4, "rows": 8}),
    Arm("own choice of trees, too", NEVER, {"protocol": "token_ids"}),
    Arm("tree grown, priced", "while_it_pays", {"protocol": "token_ids", "window": 6, "rows": 16}),
    Arm("own choice of trees, too, priced", "while_it_pays", {"protocol": "token_ids"}),
)


def arms(windows: Sequence[int], longest: int) -> tuple[Arm, ...]:
    """Fixed windows, the service's own choice, trees, each rule at the longest window; and priced choices."""
    fixed = [Arm("target alone" if not window else f"window {window}", NEVER, {"window": window}) for window in windows]
    stopping = [Arm(rule.replace("_", " "), rule, {"window": longest}) for rule in STOP_KINDS if rule != NEVER]
    own = [Arm("own choice" if rule == NEVER else "own choice, priced", rule) for rule in (NEVER, "while_it_pays")]
    return (*fixed, own[0], *_TREES[:3], *stopping, own[1], *_TREES[3:])


def served_by(config: Config, rule: str) -> Config:
    """Configuration for a rule's arms, without prompt lookup: a request that disables it does not inform the tuner."""
    groups = tuple(replace(group, stopping=replace(group.stopping, rule=rule)) for group in config.drafters)
    return replace(config, drafters=groups, speculation=replace(config.speculation, lookup_window=0))

"""Enumerate the plans that a policy chooses from: windows of chains, shapes of trees, sizes of dynamic trees."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from outrider.contracts.drafting import DraftPlan
from outrider.contracts.requests import ProtocolName
from outrider.protocols.registry import PROTOCOLS
from outrider.wire.envelope import MAX_NODES

# Few nodes, most of them near the root: there siblings help most, as an early rejection would cost the whole path.
TREE_SHAPES: tuple[tuple[int, ...], ...] = (
    (2,),
    (3,),
    (2, 1),
    (2, 2),
    (3, 2),
    (2, 1, 1),
    (2, 2, 1),
    (3, 2, 1),
    (2, 1, 1, 1),
    (2, 2, 1, 1),
    (2, 1, 1, 1, 1, 1),
)
# Nodes and layers of dynamic trees; about the depth at which each number of nodes gets furthest.
GROWN_SHAPES: tuple[tuple[int, int], ...] = ((4, 3), (8, 4), (16, 6))


@dataclass(frozen=True, slots=True, eq=False)
class PlanSet:
    """Plans to choose from; None is a round without a draft. Compared by identity, which makes cache look-ups fast."""

    plans: tuple[DraftPlan | None, ...]
    index: dict[DraftPlan | None, int] = field(init=False)  # of each plan

    def __post_init__(self) -> None:
        object.__setattr__(self, "index", {plan: number for number, plan in enumerate(self.plans)})


NO_DRAFT = PlanSet((None,))


@lru_cache(maxsize=256)
def fixed_plan(protocol: ProtocolName, window: int, expansion: tuple[int, ...] = (), rows: int = 0) -> PlanSet:
    """Return a protocol's only plan of a depth >= 1. A fixed shape is cut to it, or lengthened by single children.

    With ``rows`` it is a dynamic tree of so many nodes, if the protocol allows these.
    """
    found = PROTOCOLS[protocol]
    if rows and found.grows:
        return PlanSet((DraftPlan(protocol, min(window, rows), rows=rows),))
    shaped = found.trees and (expansion or not found.chains)
    return PlanSet((DraftPlan(protocol, window, _fitted(expansion, window) if shaped else ()),))


@lru_cache(maxsize=256)
def candidate_plans(
    protocols: tuple[ProtocolName, ...],
    longest: int,
    fixed_window: bool,
    expansion: tuple[int, ...],
    rows: int = 0,
    most_grown: int = 0,
    *,
    chains_only: bool = False,
) -> PlanSet:
    """Return all plans to choose from, without duplicates.

    Args:
        protocols: allowed ones.
        longest: longest path of a draft, >= 1.
        fixed_window: every draft has the longest path; then there is no plan without a draft.
        expansion: the only tree shape allowed; () allows ``TREE_SHAPES``.
        rows: nodes of the dynamic tree that replaces a protocol's other plans; 0: none does.
        most_grown: largest number of nodes of dynamic trees beside other plans; 0: none.
        chains_only: leave out trees of a fixed shape.
    """
    plans: list[DraftPlan | None] = [] if fixed_window else [None]
    windows = (longest,) if fixed_window else range(1, longest + 1)
    for protocol in protocols:
        if rows and PROTOCOLS[protocol].grows:
            plans += fixed_plan(protocol, longest, rows=rows).plans
            continue
        trees = [] if chains_only else _trees(protocol, longest, fixed_window=fixed_window, expansion=expansion)
        if not PROTOCOLS[protocol].chains:
            plans += trees or fixed_plan(protocol, longest).plans
        else:
            plans += trees
            plans += () if trees and expansion else [DraftPlan(protocol, window) for window in windows]
        if PROTOCOLS[protocol].grows:
            plans += _grown(protocol, longest, most_grown)
    return PlanSet(tuple(dict.fromkeys(plans)))


def _grown(protocol: ProtocolName, longest: int, most: int) -> list[DraftPlan]:
    return [DraftPlan(protocol, min(depth, longest), rows=rows) for rows, depth in GROWN_SHAPES if rows <= most]


def _trees(protocol: ProtocolName, longest: int, *, fixed_window: bool, expansion: tuple[int, ...]) -> list[DraftPlan]:
    """Return the trees that fit into a message; none for a protocol without trees."""
    if not PROTOCOLS[protocol].trees:
        return []
    shapes = (expansion,) if expansion else TREE_SHAPES
    depths = [longest if fixed_window else min(len(shape), longest) for shape in shapes]
    trees = [DraftPlan(protocol, depth, _fitted(shape, depth)) for shape, depth in zip(shapes, depths, strict=True)]
    return [tree for tree in trees if tree.nodes <= MAX_NODES]


def _fitted(shape: Sequence[int], depth: int) -> tuple[int, ...]:
    return (*shape[:depth], *(1,) * (depth - len(shape)))

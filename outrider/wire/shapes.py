"""How many tokens a block has, and for a tree which are whose children.

Both ends know the plan, so a chain costs ``ceil(log2(window + 1))`` bits and a full tree one. Nodes go breadth first,
the children of one node side by side; a tree that is not full (siblings without replacement ran out, the context is
nearly full) tells each node's number of children in ``ceil(log2(k + 1))`` bits.
"""

from collections.abc import Callable

from outrider.contracts.drafting import Draft, DraftPlan
from outrider.contracts.errors import MessageError
from outrider.wire.bits import BitReader, BitWriter

Parents = tuple[int, ...]


def shape_bits(plan: DraftPlan) -> int:
    """Bits that the shape of a full block takes."""
    return 1 if plan.expansion else plan.window.bit_length()


def write_shape(writer: BitWriter, draft: Draft, plan: DraftPlan) -> None:
    """Tell length or shape of a block; one that is not of this plan, breadth first, is a ``MessageError``."""
    nodes, parents = len(draft.token_ids), draft.parents
    if not plan.expansion:
        if parents is not None or nodes > plan.window:
            raise MessageError(f"needs a chain of at most {plan.window} tokens, found {nodes} with parents {parents}")
        writer.uint(nodes, plan.window.bit_length())
        return
    known: Parents = parents or ()
    full = nodes == plan.nodes
    writer.flag(value=full)

    def count(node: int, most: int) -> int:
        children = known.count(node)
        if children > most:
            raise MessageError(f"needs at most {most} children of node {node}, found {children}")
        if not full:
            writer.uint(children, most.bit_length())
        return children

    if _grown(plan.expansion, count) != known or len(known) != nodes:
        raise MessageError(
            f"needs a tree of expansion {plan.expansion} breadth first, found {nodes} nodes with parents {parents}"
        )


def read_shape(reader: BitReader, plan: DraftPlan) -> tuple[int, Parents | None]:
    """Nodes of a block and their parents (None for a chain)."""
    if not plan.expansion:
        nodes = reader.uint(plan.window.bit_length())
        if nodes > plan.window:
            raise MessageError(f"needs a chain of at most {plan.window} tokens, found {nodes}")
        return nodes, None
    full = reader.flag()

    def count(node: int, most: int) -> int:
        children = most if full else reader.uint(most.bit_length())
        if children > most:
            raise MessageError(f"needs at most {most} children of node {node}, found {children}")
        return children

    parents = _grown(plan.expansion, count)
    if not full and len(parents) == plan.nodes:
        raise MessageError("a full tree needs to be sent as one; the message is damaged")
    return len(parents), parents


def children_of(parents: Parents | None, nodes: int) -> list[list[int]]:
    """Nodes with a common parent, group by group in the order of the parents; childless ones have no group."""
    if parents is None:
        return [[node] for node in range(nodes)]
    groups: dict[int, list[int]] = {}
    for node, parent in enumerate(parents):
        groups.setdefault(parent, []).append(node)
    return list(groups.values())


def _grown(expansion: tuple[int, ...], children: Callable[[int, int], int]) -> Parents:
    """Parents of a tree's nodes, grown from what ``children(node, most)`` says."""
    parents: list[int] = []
    depths: list[int] = []
    node, depth = -1, 0
    while True:
        if depth < len(expansion):
            count = children(node, expansion[depth])
            parents += [node] * count
            depths += [depth + 1] * count
        node += 1
        if node == len(parents):
            return tuple(parents)
        depth = depths[node]

"""Encode the number of tokens of a block and, for a tree, the parent of each.

Both ends know the plan, so a chain costs ``ceil(log2(window + 1))`` bits and a full tree one. Nodes are sent breadth
first, the children of one node side by side. A tree that is not full (siblings without replacement ran out, the context
is nearly full) has each node's number of children in ``ceil(log2(k + 1))`` bits.

For a tree that a device grew, the plan bounds only the number of nodes. Each node's number of children is in unary, a 1
for each child and a 0: ``2 n + 1`` bits for n nodes (level-order unary degree sequence, Jacobson 1989). About
``4^n / n^1.5`` such trees exist, so no code takes much less.
"""

from collections.abc import Callable

from outrider.contracts.drafting import Draft, DraftPlan
from outrider.contracts.errors import MessageError
from outrider.wire.bits import BitReader, BitWriter

Parents = tuple[int, ...]


def shape_bits(plan: DraftPlan) -> int:
    """Return the bits that the shape of a full block takes."""
    if plan.rows:
        return 2 * plan.rows + 1
    return 1 if plan.expansion else plan.window.bit_length()


def write_shape(writer: BitWriter, draft: Draft, plan: DraftPlan) -> None:
    """Write length or shape of a block; a ``MessageError`` if it is not breadth first or not of this plan."""
    nodes, parents = len(draft.token_ids), draft.parents
    if plan.rows:
        _write_grown(writer, parents, nodes, plan)
        return
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

    if _tree_of(plan.expansion, count) != known or len(known) != nodes:
        raise MessageError(
            f"needs a tree of expansion {plan.expansion} breadth first, found {nodes} nodes with parents {parents}"
        )


def read_shape(reader: BitReader, plan: DraftPlan) -> tuple[int, Parents | None]:
    """Return the number of nodes of a block and their parents (None for a chain)."""
    if plan.rows:
        parents = _read_grown(reader, plan)
        return len(parents), parents
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

    parents = _tree_of(plan.expansion, count)
    if not full and len(parents) == plan.nodes:
        raise MessageError("a full tree needs to be sent as one; the message is damaged")
    return len(parents), parents


def children_of(parents: Parents | None, nodes: int) -> list[list[int]]:
    """Return nodes grouped by parent, in the order of the parents; childless nodes have no group."""
    if parents is None:
        return [[node] for node in range(nodes)]
    groups: dict[int, list[int]] = {}
    for node, parent in enumerate(parents):
        groups.setdefault(parent, []).append(node)
    return list(groups.values())


def _write_grown(writer: BitWriter, parents: Parents | None, nodes: int, plan: DraftPlan) -> None:
    known: Parents = parents or ()

    def count(node: int, most: int) -> int:
        children = known.count(node)
        if children > most:
            raise MessageError(f"needs at most {most} children of node {node}, found {children}")
        for _ in range(children):
            writer.flag(value=True)
        writer.flag(value=False)
        return children

    if nodes > plan.rows or len(known) != nodes or _tree_of(_room(plan), count) != known:
        raise MessageError(
            f"needs a tree of at most {plan.rows} nodes, breadth first and {plan.window} deep, found {nodes} nodes "
            f"with parents {parents}"
        )


def _read_grown(reader: BitReader, plan: DraftPlan) -> Parents:
    left = plan.rows

    def count(node: int, most: int) -> int:
        nonlocal left
        children = 0
        while reader.flag():
            children += 1
            if children > min(most, left):
                raise MessageError(
                    f"needs a tree of at most {plan.rows} nodes, {plan.window} deep, found more behind node {node}"
                )
        left -= children
        return children

    return _tree_of(_room(plan), count)


def _room(plan: DraftPlan) -> tuple[int, ...]:
    """Return the most children of a node by its depth; the last layer has none, which is sent as well."""
    return (*(plan.rows,) * plan.window, 0)


def _tree_of(expansion: tuple[int, ...], children: Callable[[int, int], int]) -> Parents:
    """Return the parents of a tree's nodes, from the number of children that ``children(node, most)`` returns."""
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

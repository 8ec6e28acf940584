"""Tree of the nodes drafted after a sequence, layer by layer; a chain is a tree without branches.

Nodes are numbered in drafting order: parents first, siblings adjacent (TSLT definition 4.5).
"""

from collections.abc import Sequence

from outrider.contracts.drafting import DraftPlan

ROOT = -1  # the sequence itself, as a parent


class DraftTree:
    """Tokens and parents of the nodes, and the nodes that get children next."""

    def __init__(self) -> None:
        self.token_ids: list[int] = []
        self.parents: list[int] = []
        self.growing: list[int] = [ROOT]  # the last layer, in order

    @property
    def branches(self) -> bool:
        """Whether any node is not the only child of the one before it."""
        return any(parent != node - 1 for node, parent in enumerate(self.parents))

    def add_layer(self, children: Sequence[Sequence[int]]) -> None:
        """Append the children's tokens of each node of the last layer, in order."""
        first = len(self.token_ids)
        for parent, token_ids in zip(self.growing, children, strict=True):
            self.token_ids += token_ids
            self.parents += [parent] * len(token_ids)
        self.growing = list(range(first, len(self.token_ids)))

    def tokens_to(self, node: int) -> list[int]:
        token_ids = []
        while node != ROOT:
            token_ids.append(self.token_ids[node])
            node = self.parents[node]
        return token_ids[::-1]

    def follow(self, token_ids: Sequence[int]) -> list[int]:
        """Return the nodes along ``token_ids``, as far as there are any.

        Siblings with the same token have the same subtree (same logits, same noise), so the first one is taken.
        """
        path: list[int] = []
        node = ROOT
        for token_id in token_ids:
            found = [n for n, parent in enumerate(self.parents) if parent == node and self.token_ids[n] == token_id]
            if not found:
                break
            node = found[0]
            path.append(node)
        return path


def shape_that_fits(plan: DraftPlan, positions: int, slots: int) -> tuple[int, ...]:
    """Return the number of children per node by depth, with as many layers of the plan as memory allows.

    For a dynamic tree these are upper bounds.

    Args:
        plan: of a chain or a tree.
        positions: of the context that are left for the longest path.
        slots: KV positions for the nodes that have children; the last layer needs none.
    """
    if plan.rows:  # all nodes but the last may have children, ``rows - 1`` in a layer at most
        passes = min(plan.window, positions, 1 + slots // max(1, plan.rows - 1))
        return (plan.rows,) * passes
    shape = plan.expansion or (1,) * plan.window
    # ``nodes`` of the present layer; ``inner`` nodes of all layers so far, which need slots if another layer follows.
    fitting, nodes, inner = 0, 1, 0
    for children in shape[: max(0, positions)]:
        if inner > slots:
            break
        fitting += 1
        nodes *= children
        inner += nodes
    return shape[:fitting]

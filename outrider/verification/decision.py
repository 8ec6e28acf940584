"""What a block of draft tokens came to, and how the nodes of a block hang together.

Chains and trees number their target rows alike: row 0 predicts what follows the prefix, row 1 + n what follows node n
(for a chain, row i predicts ``draft[i]`` and row K the bonus token).
"""

from collections.abc import Sequence
from dataclasses import dataclass

from outrider.contracts.errors import ShapeError
from outrider.contracts.exchanged import CorrectionSource


@dataclass(frozen=True, slots=True)
class BlockDecision:
    """The outcome of one block.

    Attributes:
        path: accepted nodes, indices into the draft, root first.
        token_after: correction or bonus token; None if no bonus was wanted, or the device draws the correction.
        deferred: from what the device draws it.
    """

    path: tuple[int, ...]
    token_after: int | None
    deferred: CorrectionSource | None = None

    @property
    def accepted_len(self) -> int:
        """Accepted draft tokens, 0..K."""
        return len(self.path)


def children_by_row(nodes: int, parents: Sequence[int] | None) -> list[list[int]]:
    """The draft's nodes by the target row that predicts them, siblings in the order they were drawn.

    Args:
        nodes: K, tokens in the draft.
        parents: None for a chain; else ``[K]``, -1 for a child of the prefix.

    Returns:
        ``K + 1`` lists.

    Raises:
        ShapeError: ``parents`` has another length, or a parent does not come before its child.
    """
    if parents is None:
        return [*([node] for node in range(nodes)), []]
    if len(parents) != nodes or any(not -1 <= parent < node for node, parent in enumerate(parents)):
        raise ShapeError(
            f"a tree of {nodes} nodes needs one parent each, -1 or an earlier node; found {tuple(parents)}"
        )
    children: list[list[int]] = [[] for _ in range(nodes + 1)]
    for node, parent in enumerate(parents):
        children[1 + parent].append(node)
    return children

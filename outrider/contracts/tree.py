"""The shape of a token tree, given as each node's parent (``Block.parents``): parents first, -1 for a root."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt


def node_depths(parents: Sequence[int]) -> list[int]:
    """Return each node's depth: tokens on the path from the prefix to it, itself included; >= 1."""
    depths: list[int] = []
    for parent in parents:
        depths.append(1 if parent < 0 else depths[parent] + 1)
    return depths


def node_paths(parents: Sequence[int]) -> list[tuple[int, ...]]:
    """Return each node's path: the nodes from the prefix to it, root first, itself included."""
    paths: list[tuple[int, ...]] = []
    for node, parent in enumerate(parents):
        paths.append((node,) if parent < 0 else (*paths[parent], node))
    return paths


def ancestors(parents: Sequence[int]) -> npt.NDArray[np.bool_]:
    """``[T, T]``: whether the column's node is the row's node or an ancestor of it."""
    seen = np.eye(len(parents), dtype=np.bool_)
    for node, parent in enumerate(parents):
        if parent >= 0:
            seen[node] |= seen[parent]
    return seen

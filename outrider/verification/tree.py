"""The ratio rule along a chain or a token tree: which nodes are accepted, and what the correction is drawn from.

TSLT algorithms 5 and 8 with their errata (the rows after the last layer are the target's; a rejection draws from the
residual, only a node without children from the target). The candidates of a node are tested in the order in which they
were drawn:

    accept x_i  iff  u_i < min(1, p_i(x_i) / q_i(x_i));   else  p_(i+1) = norm(max(0, p_i - q_i))           TSLT eq. 25

With replacement all q_i are one q. A repeated candidate is tested again, with its own uniform, and is rejected again:
its first rejection means p(x) < q(x), so its residual is 0. Without replacement, q_(i+1) is q_i without x_i,
renormalised. A chain has one candidate at each node: Leviathan et al. 2023, algorithm 1.

Both are exact: the accepted token or the draw from the residual is distributed as the target's row, given the path to
it. Of all nodes of one depth only the children of one parent are tested, so they may be drawn with the same uniforms.
"""

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass

import numpy as np

from outrider.contracts.exchanged import FloatRow
from outrider.sampling.distributions import Probs, acceptance_probability, residual, without
from outrider.verification.draft_rows import DraftRows


@dataclass(frozen=True, slots=True)
class Halt:
    """Where the accepted path of a block ends."""

    path: tuple[int, ...]  # accepted nodes, root first
    row: int  # the target row that predicts what follows
    rejected: bool  # whether all its children were rejected; False if it has none
    # the residual that the correction is drawn from, in the layout of the row; None if nothing was rejected, or the
    # device computes it
    remaining: Probs | None = None


def walk(
    draft: Sequence[int],
    children: Sequence[Sequence[int]],
    first_probs: Sequence[float],
    draft_rows: DraftRows,
    accept_uniforms: Callable[[int, int], Probs],
    *,
    distinct: bool = False,
    deferred: bool = False,
) -> Generator[int, FloatRow | Probs, Halt]:
    """Accept along the block. Yields the index of a target row when it needs one, and is sent that row.

    A row is over the vocabulary, or in the layout of ``draft_rows``.

    Args:
        draft: ``[K]`` tokens.
        children: ``[K + 1]``, nodes by row.
        first_probs: ``[K]``, the target's probability of each node's token at the row that predicts it.
        draft_rows: distributions that the nodes were drawn from.
        accept_uniforms: uniforms of the tests, by depth (0: children of the prefix) and number of candidates.
        distinct: whether siblings were drawn without replacement.
        deferred: end the walk at the first rejection, without asking for a row.
    """
    path: list[int] = []
    row = 0
    while siblings := children[row]:
        tests = accept_uniforms(len(path), len(siblings))
        left: tuple[Probs, Probs] | None = None  # p_i and q_i after a rejection; before, single numbers suffice
        for node, uniform in zip(siblings, tests, strict=True):
            token_id = draft[node]
            if left is None:
                probs = first_probs[node], draft_rows.prob(row, node, token_id)
            else:
                place = draft_rows.place(row, token_id)
                probs = float(left[0][place]), float(left[1][place])
            if uniform < acceptance_probability(*probs):
                break
            if deferred:
                return Halt(tuple(path), row, rejected=True)
            target, drawn_from = left or ((yield row).astype(np.float64), draft_rows.dense(row))
            rest = without(drawn_from, draft_rows.place(row, token_id)) if distinct else drawn_from
            left = residual(target, drawn_from), rest
        else:
            return Halt(tuple(path), row, rejected=True, remaining=None if left is None else left[0])
        path.append(node)
        row = 1 + node
    return Halt(tuple(path), row, rejected=False)

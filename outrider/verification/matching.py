"""Acceptance by equality: a draft token is accepted iff it is the target's own choice at its position.

The target chooses a token at each row, with or without a draft. The draft only decides how many of these choices a
forward pass commits, so the output cannot depend on the drafter. Two rules have this form.

Greedy: the target's choice is its argmax, and so is the correction; the output is token for token the target's own
greedy output (temperature 0, after bias and penalties; lowest id on ties). Source: speculative sampling at temperature
0 (Leviathan et al. 2023; WISP eq. 1).

Shared noise: with ``g`` the Gumbel noise of (request seed, absolute position), the target's choice is
``argmax(log p + g)``, which is distributed exactly as ``p``. A drafter that takes ``argmax(log q + g)`` with the same
``g`` agrees with probability

    sum over x of 1 / sum over y of max(p(y) / p(x), q(y) / q(x))

which is at least ``(1 - TV(p, q)) / (1 + TV(p, q))`` and at most ``1 - TV(p, q)``, the acceptance of ratio sampling.
The output is a function of target and seed for any drafter; the drafter only affects the speed. No probability crosses
the link, and windows, batches, retries and resumes cannot change a token. Source: Daliri, Musco, Suresh 2024
(arXiv 2408.07978).

The two rules differ only in ``choices`` (``outrider.sampling.choosing.choose_tokens``); a batch may mix them.
"""

from collections.abc import Sequence

from outrider.contracts.errors import ShapeError
from outrider.verification.decision import BlockDecision, DraftShape, shape_of


def match(
    choices: Sequence[int], draft: Sequence[int], shape: DraftShape | None = None, *, bonus: bool = True
) -> BlockDecision:
    """Follow the draft from the prefix while a child is the target's choice; the first one, if several are.

    Args:
        choices: the target's token at each row (see ``decision``): K or K + 1 for a chain, K + 1 for a tree.
        draft: K tokens.
        shape: of the draft; None for a chain.
        bonus: whether to return the choice after a node without children. A chain with K rows has none there.
    """
    nodes = len(draft)
    shape = shape or shape_of(nodes, None)
    if len(choices) != nodes + 1 and (shape.parents is not None or len(choices) != nodes):
        rows = f"{nodes + 1} rows" if shape.parents is not None else f"{nodes} rows, or {nodes + 1} with a bonus token"
        raise ShapeError(f"a draft of {nodes} tokens needs {rows}; found {len(choices)}")
    path: list[int] = []
    row = 0
    while (node := _agreed(shape.children[row], draft, choices, row)) is not None:
        path.append(node)
        row = 1 + node
    wanted = row < len(choices) and (bonus or bool(shape.children[row]))
    return BlockDecision(tuple(path), choices[row] if wanted else None)


def _agreed(children: Sequence[int], draft: Sequence[int], choices: Sequence[int], row: int) -> int | None:
    """Return the first of a row's children that is the target's choice there; None if there is none."""
    for node in children:
        if draft[node] == choices[row]:
            return node
    return None

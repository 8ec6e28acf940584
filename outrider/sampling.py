"""The target's choice at every row of a ragged batch: argmax, or a draw with noise keyed by position.

A request's token at a position is a function of its logits, its parameters and its seed alone. Verifier and drafter
both choose with ``choose_tokens``; drawing with the same noise is what makes their choices agree so often.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from outrider.logits import RowGroup, TokenCounts, adjust_logits, check_rows, edits, per_row
from outrider.noise import Purpose, gumbel_noise

__all__ = ["Purpose", "RowGroup", "TokenCounts", "adjust_logits", "choose_tokens", "gumbel_noise", "target_probs"]


def target_probs(logits: Tensor, groups: Sequence[RowGroup]) -> Tensor:
    """The distribution each row's token is drawn from; one-hot at the argmax for greedy groups.

    Args:
        logits: ``[R, vocab]``, any float type; never written to.
        groups: describe the rows in order.

    Returns:
        ``[R, vocab]`` float32, rows sum to 1.

    Raises:
        ShapeError: the groups' rows do not add up to R.
    """
    adjusted = adjust_logits(logits, groups)
    probs = adjusted.softmax(dim=-1)
    greedy = [row for row, group in enumerate(per_row(groups)) if group.params.greedy]
    if greedy:
        index = torch.tensor(greedy, device=probs.device)
        best = adjusted[index].argmax(dim=-1, keepdim=True)
        probs[index] = torch.zeros_like(probs[index]).scatter_(1, best, 1.0)
    return probs


def choose_tokens(logits: Tensor, groups: Sequence[RowGroup], purpose: Purpose = Purpose.TARGET_TOKEN) -> Tensor:
    """One token per row: the argmax (lowest id on ties) if greedy, else ``argmax(adjusted + gumbel)``.

    The latter is distributed exactly as ``target_probs`` over seeds, and fixed by (seed, position) for given logits.

    Args:
        logits: ``[R, vocab]``, any float type; never written to.
        groups: describe the rows in order; row i of a group draws with the noise of ``position + i``.
        purpose: what the draw is for.

    Returns:
        ``[R]`` int64 on the device of ``logits``; reading it is the only wait for that device.

    Raises:
        ShapeError: the groups' rows do not add up to R.
    """
    check_rows(logits, groups)
    if not any(edits(group.params) for group in groups) and all(group.params.greedy for group in groups):
        return logits.argmax(dim=-1)
    adjusted = adjust_logits(logits, groups)
    vocab = logits.shape[1]
    choices = adjusted.new_empty(adjusted.shape[0], dtype=torch.int64)
    row = 0
    for group in groups:
        for i in range(group.rows):
            scores = adjusted[row]
            if not group.params.greedy:
                noise = torch.from_numpy(gumbel_noise(group.params.seed, group.position + i, purpose, vocab))
                scores = scores + noise.to(adjusted.device, non_blocking=True)
            choices[row] = scores.argmax()
            row += 1
    return choices

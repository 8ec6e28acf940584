"""The target's choice at every row of a ragged batch: argmax, or a draw with noise keyed by position.

A request's token at a position is a function of its logits, its parameters and its seed alone. Verifier and drafter
both draw by ``noisy_scores``; drawing with the same noise is what makes their choices agree so often.

Noise is added to a row whose largest logit was moved to 0. Float32 keeps 2**-24 of a number: of logits around 300 it
would keep 3e-5, and exchange the first two tokens in one of 1e5 draws.
"""

from collections.abc import Callable, Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple

import torch
from torch import Tensor

from outrider.sampling.device_noise import device_gumbel_noise
from outrider.sampling.device_tensors import Readback, at_once, index_tensor
from outrider.sampling.logits import RowGroup, adjust_logits, check_rows, edits, per_row
from outrider.sampling.noise import Purpose, noisy_scores


class TokenColumns(NamedTuple):
    """Which tokens' logits the columns of some rows are.

    ``token_ids`` ``[n]`` int64 ascending, on the device of the rows, out of ``vocab_size``.
    """

    token_ids: Tensor
    vocab_size: int

    def on_host(self) -> "TokenColumns":
        """The same for rows in the host's memory."""
        return TokenColumns(self.token_ids.cpu(), self.vocab_size)


def target_probs(logits: Tensor, groups: Sequence[RowGroup]) -> Tensor:
    """The distribution each row's token is drawn from; one-hot at the argmax for greedy groups.

    Args:
        logits: ``[R, vocab]``, any float type; never written to.
        groups: describe the rows in order.

    Returns:
        ``[R, vocab]`` float32, rows sum to 1.
    """
    adjusted = adjust_logits(logits, groups)
    probs = adjusted.softmax(dim=-1)
    greedy = [row for row, group in enumerate(per_row(groups)) if group.params.greedy]
    if greedy:
        index = index_tensor(greedy, probs.device)
        best = adjusted[index].argmax(dim=-1, keepdim=True)
        probs[index] = torch.zeros_like(probs[index]).scatter_(1, best, 1.0)
    return probs


def choose_tokens(logits: Tensor, groups: Sequence[RowGroup], columns: TokenColumns | None = None) -> Tensor:
    """One token per row: the argmax (lowest id on ties) if greedy, else that of ``noisy_scores``.

    The latter is distributed exactly as ``target_probs`` over seeds, and fixed by (seed, position) for given logits.

    Args:
        logits: ``[R, vocab]``, any float type; never written to.
        groups: describe the rows in order; row i of a group draws with the noise of ``position + i``.
        columns: where ``logits`` are ``[R, n]``, of some tokens alone; then no group may name tokens
            (``RowGroup.names_tokens``).

    Returns:
        ``[R]`` int64 on the device of ``logits``; reading it is the only wait for that device.
    """
    check_rows(logits, groups)
    chosen = _choose_columns(logits, groups, columns)
    return chosen if columns is None else columns.token_ids[chosen]


def _choose_columns(logits: Tensor, groups: Sequence[RowGroup], columns: TokenColumns | None) -> Tensor:
    draws = _draws(groups)
    if not draws:
        return _argmax(adjust_logits(logits, groups) if any(map(edits, groups)) else logits)
    if not at_once(logits.device):
        adjusted = adjust_logits(logits, groups).detach()
        choices, on_host = _argmax(adjusted), adjusted.numpy()
        token_ids = None if columns is None else columns.token_ids.numpy()
        for row, seed, position in draws:  # row by row: the noise stays in the processor's cache
            choices[row] = int(noisy_scores(on_host[row], seed, position, token_ids=token_ids).argmax())
        return choices
    adjusted = adjust_logits(logits, groups)
    seeds, positions = [seed for _, seed, _ in draws], [position for _, _, position in draws]
    wanted, vocab_size = (None, logits.shape[1]) if columns is None else columns
    purpose, device = Purpose.TARGET_TOKEN, logits.device
    scores = device_gumbel_noise(seeds, positions, purpose, vocab_size, device, token_ids=wanted)
    if len(draws) == logits.shape[0]:
        return _argmax(scores.add_(adjusted - adjusted.amax(dim=-1, keepdim=True)))  # ``noisy_scores``, to the last bit
    rows = index_tensor([row for row, _, _ in draws], logits.device)
    drawn = adjusted[rows]
    scores.add_(drawn.sub_(drawn.amax(dim=-1, keepdim=True)))
    return _argmax(adjusted).index_copy_(0, rows, _argmax(scores))


def choose_along(logits: Tensor, groups: Sequence[RowGroup]) -> list[list[int]]:
    """``choose_tokens`` as far as a chain of draft tokens can be accepted: what lies behind a mismatch is not needed.

    On a CPU, where drawing takes a good part of a row's time, sampled groups are drawn row by row: all groups' first
    rows, then the second rows of those that agreed, and so on. A GPU draws all rows at once and is waited for once.

    Args:
        logits: ``[R, vocab]``, any float type; never written to.
        groups: describe the rows in order; ``path`` is the draft.

    Returns:
        For each group its rows' choices, those behind the first that is not on the path replaced by -1 or not.
    """
    readback = Readback()
    choices = ask_choices_along(logits, groups, readback)
    readback.read()
    return choices()


def ask_choices_along(logits: Tensor, groups: Sequence[RowGroup], readback: Readback) -> Callable[[], list[list[int]]]:
    """``choose_along`` whose choices come with what else is read of the device."""
    check_rows(logits, groups)
    if at_once(logits.device):
        fetched = readback.ask(choose_tokens(logits, groups))
        return lambda: _by_group(fetched().tolist(), groups)
    chosen = _choose_lazily(logits, groups)
    return lambda: chosen


def _by_group(choices: list[int], groups: Sequence[RowGroup]) -> list[list[int]]:
    starts = accumulate((group.rows for group in groups), initial=0)
    return [choices[start:stop] for start, stop in pairwise(starts)]


def _choose_lazily(logits: Tensor, groups: Sequence[RowGroup]) -> list[list[int]]:
    starts = [0, *accumulate(group.rows for group in groups)]
    lazy = [i for i, group in enumerate(groups) if group.rows > 1 and not group.params.greedy]
    lazy = [i for i in lazy if not groups[i].params.penalised]
    if not lazy:
        return _by_group(choose_tokens(logits, groups).tolist(), groups)
    chosen: list[list[int]] = [[] for _ in groups]
    eager = sorted(set(range(len(groups))) - set(lazy))
    if eager:
        at = index_tensor([row for i in eager for row in range(starts[i], starts[i + 1])], logits.device)
        rest = iter(choose_tokens(logits[at], [groups[i] for i in eager]).tolist())
        for i in eager:
            chosen[i] = [next(rest) for _ in range(groups[i].rows)]
    depth = 0
    while lazy:
        rows = [_row_of(groups[i], depth) for i in lazy]
        at = index_tensor([starts[i] + depth for i in lazy], logits.device)
        for i, token_id in zip(lazy, choose_tokens(logits[at], rows).tolist(), strict=True):
            chosen[i].append(token_id)
        depth += 1
        lazy = [i for i in lazy if depth < groups[i].rows and chosen[i][-1] == groups[i].path[depth - 1]]
    return [one + [-1] * (group.rows - len(one)) for one, group in zip(chosen, groups, strict=True)]


def _row_of(group: RowGroup, depth: int) -> RowGroup:
    """One row of a group without penalties."""
    allowed = None if group.allowed is None else group.allowed[depth : depth + 1]
    return RowGroup(group.params, group.position + depth, None, (), 1, allowed)


def _draws(groups: Sequence[RowGroup]) -> list[tuple[int, int, int]]:
    """Row, seed and position of every row that is drawn and not an argmax."""
    if all(group.params.greedy for group in groups):
        return []
    offsets = (i for group in groups for i in range(group.rows))
    return [
        (row, group.params.seed, group.position + offset)
        for row, (group, offset) in enumerate(zip(per_row(groups), offsets, strict=True))
        if not group.params.greedy
    ]


def _argmax(scores: Tensor) -> Tensor:
    """``[R]`` int64, the lowest id on ties."""
    if at_once(scores.device):
        return scores.argmax(dim=-1)
    # numpy compares whole vectors at a time: a tenth of torch's time on a CPU.
    return torch.from_numpy(scores.detach().float().numpy().argmax(axis=-1))

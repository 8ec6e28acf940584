"""The target's choice at every row of a ragged batch: argmax, or a draw with noise keyed by position.

A request's token at a position is a function of its logits, its parameters and its seed alone. Verifier and drafter
both draw by ``noisy_scores``, with the same noise: that makes their choices agree so often.

Noise is added to rows whose largest logit is shifted to 0. A float32 keeps a relative 2**-24: of logits around 300 it
would keep 3e-5, which would exchange the first two tokens in one of 1e5 draws.
"""

from collections.abc import Callable, Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple

import torch
from torch import Tensor

from outrider.sampling.device_noise import device_gumbel_noise
from outrider.sampling.device_tensors import Readback, at_once, index_tensor
from outrider.sampling.logits import adjust_logits, edits
from outrider.sampling.noise import Purpose, noisy_scores
from outrider.sampling.row_groups import RowGroup, check_rows, per_row


class TokenColumns(NamedTuple):
    """Tokens that the columns of some rows stand for.

    ``token_ids`` ``[n]`` int64 ascending, on the device of the rows, out of ``vocab_size``.
    """

    token_ids: Tensor
    vocab_size: int

    def on_host(self) -> "TokenColumns":
        return TokenColumns(self.token_ids.cpu(), self.vocab_size)


def target_probs(logits: Tensor, groups: Sequence[RowGroup]) -> Tensor:
    """Return the distribution that each row's token is drawn from; one-hot at the argmax for greedy groups.

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
    """Choose one token per row: the argmax (lowest id on ties) if greedy, else that of ``noisy_scores``.

    Over seeds the latter is distributed exactly as ``target_probs``; for given logits (seed, position) fixes it.

    Args:
        logits: ``[R, vocab]``, any float type; never written to.
        groups: describe the rows in order; row i of a group draws with the noise of ``position + i``.
        columns: set if ``logits`` are ``[R, n]``, of some tokens only; then no group may name tokens
            (``RowGroup.names_tokens``).

    Returns:
        ``[R]`` int64 on the device of ``logits``; nothing here waits for the device.
    """
    check_rows(logits.shape, groups)
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
        for row, seed, position in draws:  # row by row, so that the noise stays in the CPU's cache
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


def launch_choices(logits: Tensor, groups: Sequence[RowGroup], readback: Readback) -> Callable[[], list[list[int]]]:
    """Choose tokens as ``choose_tokens``, but only as far as a chain of draft tokens can be accepted.

    On a CPU, where drawing takes a good part of a row's time, sampled groups are drawn row by row: the first rows of
    all groups, then the second rows of those that agreed, and so on. An accelerator draws all rows at once.

    Args:
        logits: ``[R, vocab]``, any float type; never written to.
        groups: describe the rows in order; ``path`` is the draft.
        readback: the next read of the device.

    Returns:
        The choices of each group's rows, once ``readback`` is read; those after the first that leaves the path may be
        -1 instead.
    """
    check_rows(logits.shape, groups)
    if at_once(logits.device):
        fetched = readback.add(choose_tokens(logits, groups))
        return lambda: _by_group(fetched().tolist(), groups)
    chosen = _choose_lazily(logits, groups)
    return lambda: chosen


def _by_group(choices: list[int], groups: Sequence[RowGroup]) -> list[list[int]]:
    starts = accumulate((group.rows for group in groups), initial=0)
    return [choices[start:stop] for start, stop in pairwise(starts)]


def _choose_lazily(logits: Tensor, groups: Sequence[RowGroup]) -> list[list[int]]:
    starts = [0, *accumulate(group.rows for group in groups)]
    lazy = [i for i, group in enumerate(groups) if group.rows > 1 and not group.params.greedy]
    # With penalties a row depends on the path before it, so these groups are edited and drawn as a whole.
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
    """Return one row of a group without penalties, as a separate group."""
    allowed = None if group.allowed is None else group.allowed[depth : depth + 1]
    return RowGroup(group.params, group.position + depth, None, (), 1, allowed)


def _draws(groups: Sequence[RowGroup]) -> list[tuple[int, int, int]]:
    """Return row, seed and position of every row that is not greedy."""
    if all(group.params.greedy for group in groups):
        return []
    offsets = (i for group in groups for i in range(group.rows))
    return [
        (row, group.params.seed, group.position + offset)
        for row, (group, offset) in enumerate(zip(per_row(groups), offsets, strict=True))
        if not group.params.greedy
    ]


def _argmax(scores: Tensor) -> Tensor:
    """Return ``[R]`` int64 argmax, the lowest id on ties."""
    if at_once(scores.device):
        return scores.argmax(dim=-1)
    # numpy compares whole vectors, in a tenth of torch's time on a CPU.
    return torch.from_numpy(scores.detach().float().numpy().argmax(axis=-1))

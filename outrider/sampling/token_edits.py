"""Edits of single logits for all requests of a batch at once: bias, penalties, withheld tokens, grammar masks.

The host computes indices and amounts; one operation per kind of edit applies them on the logits' device.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from outrider.contracts.errors import ParameterError
from outrider.contracts.exchanged import FloatRow, IntRow
from outrider.sampling.device_tensors import at_once, index_tensor, on_device
from outrider.sampling.row_groups import RowGroup, TokenCounts, TokenMask

_REMOVED = float("-inf")
_Bools = npt.NDArray[np.bool_]


def edit_tokens(logits: Tensor, placed: Sequence[tuple[int, RowGroup]]) -> None:
    """Apply, in place, each group's bias, then its penalties, its withheld tokens and its grammar masks.

    ``logits``: ``[R, vocab]`` float32, contiguous; ``placed``: groups with their first rows. A bias of a token outside
    the vocabulary is a ``ParameterError``.
    """
    vocab, flat = logits.shape[1], logits.view(-1)
    if biased := [_bias(start, group, vocab) for start, group in placed if group.params.logit_bias]:
        index, bias = (on_device(np.concatenate(parts), flat.device) for parts in zip(*biased, strict=True))
        flat[index] = flat[index] + bias
    penalised = [
        _penalties(start, group, group.counts, vocab)
        for start, group in placed
        if group.counts is not None and group.params.penalised
    ]
    if penalised:
        index, seen, penalty, repetition = (
            on_device(np.concatenate(parts), flat.device) for parts in zip(*penalised, strict=True)
        )
        values = flat[index]
        repeated = torch.where(values > 0, values / repetition, values * repetition)
        values = torch.where(seen, repeated, values)
        flat[index] = values - penalty
    if withheld := [_withheld(start, group, vocab) for start, group in placed if group.withheld_rows]:
        flat.index_fill_(0, on_device(np.concatenate(withheld), flat.device), _REMOVED)
    masked = [(start, group.allowed) for start, group in placed if group.allowed is not None and group.rows]
    if masked:
        _mask(logits, masked)


def _mask(logits: Tensor, masked: Sequence[tuple[int, TokenMask]]) -> None:
    """Set tokens to -inf that a row's mask does not allow."""
    vocab = logits.shape[1]
    if not at_once(logits.device):
        on_host = logits.numpy()
        for start, allowed in masked:
            removed = np.unpackbits(_octets(~allowed), axis=1, count=vocab, bitorder="little").view(np.bool_)
            np.copyto(on_host[start : start + len(allowed)], _REMOVED, where=removed)
        return
    rows = index_tensor([row for start, allowed in masked for row in range(start, start + len(allowed))], logits.device)
    octets = on_device(_octets(~np.concatenate([allowed for _, allowed in masked])), logits.device)
    places = torch.arange(8, dtype=torch.uint8, device=logits.device)
    bits = ((octets[:, :, None] >> places) & 1).flatten(1)[:, :vocab].bool()
    logits.index_copy_(0, rows, logits[rows].masked_fill_(bits, _REMOVED))


def _octets(masks: TokenMask) -> npt.NDArray[np.uint8]:
    """View masks as ``[rows, 4 * words]`` octets, token ``i`` in bit ``i % 8`` of octet ``i // 8``."""
    return np.ascontiguousarray(masks).astype("<u4", copy=False).view(np.uint8)


def _bias(start: int, group: RowGroup, vocab: int) -> tuple[IntRow, FloatRow]:
    """Return indices of logits, each once, and the bias added to each; biases of one token are summed."""
    ids, biases = zip(*group.params.logit_bias, strict=True)
    if max(ids) >= vocab:
        raise ParameterError("logit_bias", f"token ids below the vocabulary's size {vocab}", max(ids))
    token_ids, place = np.unique(np.asarray(ids, dtype=np.int64), return_inverse=True)
    total = np.zeros(token_ids.size, dtype=np.float32)
    np.add.at(total, place, np.asarray(biases, dtype=np.float32))
    return _index(start, group.rows, token_ids, vocab), np.tile(total, group.rows)


def _penalties(
    start: int, group: RowGroup, counts: TokenCounts, vocab: int
) -> tuple[IntRow, _Bools, FloatRow, FloatRow]:
    """Compute penalties of tokens that occurred; row i counts prompt, output and ``path[:i]``.

    Returns:
        Indices of logits; whether their tokens occurred; the amounts to subtract; the repetition penalties.
    """
    conditioned_on = np.asarray(group.path[: max(group.rows - 1, 0)], dtype=np.int64)
    ids = np.union1d(np.flatnonzero(counts.seen), conditioned_on)  # [n], sorted
    drafted = np.zeros((group.rows, ids.size), dtype=np.int32)
    drafted[np.arange(1, conditioned_on.size + 1), np.searchsorted(ids, conditioned_on)] = 1
    drafted = drafted.cumsum(axis=0, dtype=np.int32)  # [rows, n]: row i counts path[:i]
    output, params = counts.output[ids] + drafted, group.params
    penalty = params.frequency_penalty * output + params.presence_penalty * (output > 0)
    index = _index(start, group.rows, ids, vocab)
    return (
        index,
        (counts.seen[ids] | (drafted > 0)).ravel(),
        penalty.astype(np.float32).ravel(),
        np.full(index.size, params.repetition_penalty, dtype=np.float32),
    )


def _withheld(start: int, group: RowGroup, vocab: int) -> IntRow:
    """Return indices of withheld tokens. Ids outside the vocabulary are skipped: a model's end tokens may be."""
    ids = [token_id for token_id in group.params.withheld_ids if 0 <= token_id < vocab]
    return _index(start, group.withheld_rows, np.asarray(ids, dtype=np.int64), vocab)


def _index(start: int, rows: int, token_ids: IntRow, vocab: int) -> IntRow:
    """Return the tokens' indices in each of the rows, in the flattened logits."""
    index: IntRow = (np.arange(start, start + rows, dtype=np.int64)[:, None] * vocab + token_ids).ravel()
    return index

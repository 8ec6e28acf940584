"""The noise of ``outrider.sampling.noise`` in tensor operations on the logits' device, equal to the last bit.

Words are unsigned 64-bit numbers in int64 tensors: sums and products wrap alike; after a right shift the sign bits are
masked. The 128-bit products of Philox are composed of 32-bit halves. All rows are computed at once, as far as memory
allows. Nothing here waits for the device.
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from outrider.sampling.device_tensors import index_tensor
from outrider.sampling.gumbel import (
    BELOW_ONE,
    COEFFICIENTS,
    EXPONENT_BITS,
    MINUS_LOG_2,
    ONE_BITS,
    ONE_BITS_64,
    SQRT_HALF_BITS,
    WORD_SHIFT,
)
from outrider.sampling.noise import BLOCK_WORDS, Purpose

_HALF, _LOW = 32, 0xFFFFFFFF
_WORDS_AT_ONCE = {"cpu": 1 << 17}  # fits into a core's caches
_WORDS_AT_ONCE_ELSEWHERE = 1 << 23  # takes about 0.5 GiB of memory


def device_words(
    seeds: Sequence[int], positions: Sequence[int], purpose: Purpose, count: int, device: torch.device
) -> Tensor:
    """Return the random words of R keys, ``[R, count]`` int64: the bits of numpy's unsigned words."""
    blocks = -(-count // BLOCK_WORDS)
    key, at = index_tensor([*map(_signed, seeds), *map(_signed, positions)], device).view(2, -1, 1)
    block = torch.arange(1, blocks + 1, device=device)[None]  # numpy increments the counter before making a block
    low, high = _rounds(key, at, int(purpose), block)
    # low holds the words 0 and 2 of a block, high 1 and 3.
    words = torch.stack([low[0], high[0], low[1], high[1]], dim=-1)
    return words.view(len(seeds), -1)[:, :count]


def device_gumbel_noise(
    seeds: Sequence[int],
    positions: Sequence[int],
    purpose: Purpose,
    vocab_size: int,
    device: torch.device,
    *,
    token_ids: Tensor | None = None,
) -> Tensor:
    """Return ``gumbel_noise`` of R keys, ``[R, vocab_size]`` float32 on ``device``; arguments as ``device_words``.

    With ``token_ids`` (``[n]`` int64 on ``device``) return ``[R, n]``, the noise of these tokens.
    """
    at_once = max(1, _WORDS_AT_ONCE.get(device.type, _WORDS_AT_ONCE_ELSEWHERE) // max(vocab_size, 1))
    parts = list[Tensor]()
    for start in range(0, len(seeds), at_once):
        rows = slice(start, start + at_once)
        words = device_words(seeds[rows], positions[rows], purpose, vocab_size, device)
        parts.append(gumbel_of(words if token_ids is None else words[:, token_ids]))
    width = vocab_size if token_ids is None else len(token_ids)
    return torch.cat(parts) if parts else torch.empty(0, width, device=device)


def gumbel_of(words: Tensor) -> Tensor:
    """Return the noise of int64 words, float32 of their shape, by the same steps as ``gumbel_of_words``."""
    uniforms = ((words >> WORD_SHIFT) & ((1 << 64 - WORD_SHIFT) - 1)).bitwise_or_(ONE_BITS_64).view(torch.float64)
    uniforms = uniforms.sub_(BELOW_ONE)
    exponent = uniforms.float().view(torch.int32).sub_(SQRT_HALF_BITS).bitwise_and_(EXPONENT_BITS)
    scale = (ONE_BITS - exponent).view(torch.float32)
    exponential = _minus_log(uniforms.mul_(scale.double()).sub_(1.0).float(), exponent)
    exponent = exponential.view(torch.int32).sub(SQRT_HALF_BITS).bitwise_and_(EXPONENT_BITS)
    fraction = exponential.view(torch.int32).sub_(exponent).view(torch.float32)
    return _minus_log(fraction.sub_(1.0), exponent)


def _minus_log(f: Tensor, exponent: Tensor) -> Tensor:
    last, *before = reversed(COEFFICIENTS)
    s = f / (f + 2.0)  # a tensor as divisor: by a number, torch would multiply with its inverse on a GPU
    square = s * s
    series = square * last
    for coefficient in before[:-1]:
        series = series.add_(coefficient).mul_(square)
    return series.add_(before[-1]).mul_(s).add_(exponent.float().mul_(MINUS_LOG_2))


# Philox4x64-10 on pairs of a block's four words: those that are multiplied (0 and 2), and the others (1 and 3).
_ROUNDS = 10
_MULTIPLIERS = (0xD2E7470EE14C6C93, 0xCA5A826395121157)
_KEY_STEPS = (0x9E3779B97F4A7C15, 0xBB67AE8584CAA73B)


def _rounds(key: Tensor, position: Tensor, purpose: int, block: Tensor) -> tuple[Tensor, Tensor]:
    """Return words 0 and 2, then 1 and 3, of each block, ``[2, R, B]`` each; ``key``, ``position`` are ``[R, 1]``."""
    device, shape = key.device, (2, key.shape[0], block.shape[1])
    multiplied = torch.empty(shape, dtype=torch.int64, device=device)
    multiplied[0], multiplied[1] = block, purpose
    other = torch.zeros(shape, dtype=torch.int64, device=device)
    other[0] = position
    keys = torch.stack([key, torch.zeros_like(key)])
    multipliers, steps = (
        index_tensor([_signed(w) for w in pair], device).view(2, 1, 1) for pair in (_MULTIPLIERS, _KEY_STEPS)
    )
    for _ in range(_ROUNDS):
        high, low = _product(multiplied, multipliers)
        multiplied = high.flip(0).bitwise_xor_(other).bitwise_xor_(keys)
        other = low.flip(0)
        keys = keys + steps
    return multiplied, other


def _product(one: Tensor, other: Tensor) -> tuple[Tensor, Tensor]:
    """Return high and low word of the unsigned 128-bit product of two words."""
    low, high = one & _LOW, _upper(one)
    other_low, other_high = other & _LOW, _upper(other)
    middle = (low * other_high).add_(_upper(low * other_low))  # below 2**64
    crossed = (high * other_low).add_(middle & _LOW)
    return (high * other_high).add_(_upper(middle)).add_(_upper(crossed)), one * other


def _upper(words: Tensor) -> Tensor:
    return (words >> _HALF).bitwise_and_(_LOW)


def _signed(word: int) -> int:
    """Reinterpret an unsigned word as int64; OverflowError if it has more than 64 bits."""
    return int(np.uint64(word).astype(np.int64))

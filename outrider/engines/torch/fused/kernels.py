"""Compiled loops between a decoder's linear layers and its attention. Each row is computed by itself: batch invariance.

Activations and caches are float32, or bfloat16 stored as uint16; arithmetic is float32. Keys are transposed within
blocks, ``[kv_heads, blocks, d, block_tokens]``, so that one SIMD instruction serves several keys of a block. In
bfloat16 two adjacent numbers of a key are one uint32, ``[kv_heads, blocks, d / 2, block_tokens]``: some CPUs multiply
such pairs at once. Values are stored slot by slot, ``[kv_heads, slots, d]``.
"""

from typing import Any

import numpy as np

from outrider.engines.torch.fused.compiling import LOOSE, ONE, compiled, exponential, keyed, mean_square, stored, wide


@compiled()
def add_and_normalise(residual: Any, delta: Any, weight: Any, eps: Any, out: Any) -> None:
    """``residual += delta``, both ``[N, H]`` (delta may have no rows); ``out`` is its RMS norm times ``weight``.

    The residual stays float32 over all layers. A normed number is rounded once, when it is stored.
    """
    rows, width = residual.shape
    for n in range(rows):
        row = residual[n]
        if len(delta):
            for i in range(width):
                row[i] += wide(delta[n, i])
        factor = ONE / np.sqrt(mean_square(row) + eps)
        for i in range(width):
            out[n, i] = stored(row[i] * factor * weight[i], out)


@compiled(fastmath=LOOSE)
def gate(both: Any, out: Any) -> None:
    """``out = silu(g) * u``, of ``both`` ``[N, 2 * width]`` with all g before all u."""
    rows, width = out.shape
    for n in range(rows):
        gates, ups, found = both[n][:width], both[n][width:], out[n]
        for i in range(width):
            g = wide(gates[i])
            found[i] = stored(g / (ONE + exponential(-g)) * wide(ups[i]), out)


@compiled()
def rotate(head: Any, weight: Any, eps: Any, cosine: Any, sine: Any, factor: Any, out: Any) -> None:
    """Norm one head ``[d]`` if it has a ``weight``, rotate it to its position (RoPE), and multiply by ``factor``."""
    half = len(cosine)
    for i in range(2 * half):
        out[i] = wide(head[i])
    if len(weight):
        scale = ONE / np.sqrt(mean_square(out) + eps)
        for i in range(2 * half):
            out[i] = out[i] * scale * weight[i]
    for i in range(half):  # pairs are (i, half + i), as in Hugging Face's rotary embedding
        a, b = out[i], out[half + i]
        out[i] = (a * cosine[i] - b * sine[i]) * factor
        out[half + i] = (b * cosine[i] + a * sine[i]) * factor


@compiled()
def write(
    projected: Any,
    heads: int,
    weight: Any,
    eps: Any,
    cosines: Any,
    sines: Any,
    positions: Any,
    slots: Any,
    keys: Any,
    values: Any,
) -> None:
    """Norm, rotate and store the keys, and store the values, of ``projected`` ``[N, (heads + 2 * kv_heads) * d]``."""
    kv_heads, _, rows, block_tokens = keys.shape
    width = values.shape[2]
    turned = np.empty(width, np.float32)
    for n in range(len(projected)):
        block, place, position = slots[n] // block_tokens, slots[n] % block_tokens, positions[n]
        for head in range(kv_heads):
            at = (heads + head) * width
            rotate(projected[n, at : at + width], weight, eps, cosines[position], sines[position], ONE, turned)
            for i in range(rows):
                keys[head, block, i, place] = keyed(turned, i, keys)
            at += kv_heads * width
            for i in range(width):
                values[head, slots[n], i] = stored(wide(projected[n, at + i]), values)

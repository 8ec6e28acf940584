"""The loops between a decoder's linear layers. Each row is computed by itself, whatever else there is.

Activations and caches are float32, or bfloat16 as uint16; what is computed is float32. Keys lie transposed within
blocks, ``[kv_heads, blocks, d, block_tokens]``, so that the products with all keys of a block are computed side by
side; values lie slot by slot, ``[kv_heads, slots, d]``. A key's product is added up in the order of d, a row's values
in the order of its keys, by the same operations one by one or many at once: a path through a tree is what it is as a
chain.

All of it is in one file: what is compiled is kept until its own file changes.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic as _numbas_intrinsic

intrinsic: Callable[[Any], Any] = _numbas_intrinsic

LANES = 16  # computed side by side
_I16, _I32, _F32 = ir.IntType(16), ir.IntType(32), ir.FloatType()
_LOG2_E = np.float32(1.4426950408889634)
_LEAST_POWER, _MOST_POWER = np.float32(-87.0), np.float32(88.0)
# 2**f for -0.5 <= f <= 0.5, within 2e-8 (Taylor's).
_C1, _C2, _C3 = np.float32(0.6931471805599453), np.float32(0.2402265069591007), np.float32(0.05550410866482158)
_C4, _C5, _C6 = np.float32(0.009618129107628477), np.float32(0.0013333558146428443), np.float32(0.00015403530393381608)
_ZERO, _ONE = np.float32(0.0), np.float32(1.0)
_ROWS = 8  # of a sequence that attend together
_LOOSE = {"reassoc", "contract", "nnan", "nsz"}  # sums in any order, but always the same for as many numbers


@intrinsic
def fma(typing_context: Any, a: Any, b: Any, c: Any) -> Any:  # noqa: ARG001 (numba's interface)
    """``a * b + c`` in float32, rounded once."""

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:  # noqa: ARG001
        return builder.fma(*args)

    return types.float32(types.float32, types.float32, types.float32), build


@intrinsic
def wide(typing_context: Any, value: Any) -> Any:  # noqa: ARG001
    """A stored number as float32; bfloat16 is stored as its bits."""

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:  # noqa: ARG001
        if value == types.float32:
            return args[0]
        return builder.bitcast(builder.shl(builder.zext(args[0], _I32), _I32(16)), _F32)

    return types.float32(types.float32 if value == types.float32 else types.uint16), build


@intrinsic
def stored(typing_context: Any, value: Any, like: Any) -> Any:  # noqa: ARG001
    """A float32 as it is stored in an array ``like`` this: bfloat16 is rounded to the nearest, or even."""

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:  # noqa: ARG001
        if like.dtype == types.float32:
            return args[0]
        bits = builder.bitcast(args[0], _I32)
        odd = builder.and_(builder.lshr(bits, _I32(16)), _I32(1))
        rounded = builder.add(builder.add(bits, _I32(0x7FFF)), odd)
        return builder.trunc(builder.lshr(rounded, _I32(16)), _I16)

    return like.dtype(types.float32, like), build


def compiled(**options: Any) -> Callable[[Any], Any]:
    """Compiled at first use, once for all processes if there is a place to keep that."""

    def made(function: Any) -> Any:
        try:
            return njit(cache=True, nogil=True, error_model="numpy", **options)(function)
        except RuntimeError:  # no folder that may be written to
            return njit(nogil=True, error_model="numpy", **options)(function)

    return made


_inlined: Callable[[Any], Any] = njit(inline="always")
_inner: Callable[[Any], Any] = njit(nogil=True, error_model="numpy")  # kept with whoever calls it


def _accumulating(queries: int, rows: int) -> Any:
    """``accumulate`` for so many queries and rows of a matrix."""

    @intrinsic
    def accumulate(
        typing_context: Any,  # noqa: ARG001
        sums: Any,
        at: Any,  # noqa: ARG001
        sums_step: Any,  # noqa: ARG001
        factors: Any,
        first: Any,  # noqa: ARG001
        factors_step: Any,  # noqa: ARG001
        matrix: Any,
        start: Any,  # noqa: ARG001
        step: Any,  # noqa: ARG001
    ) -> Any:
        """Row by row r, for all queries q and lanes l.

        ``sums[at + q * sums_step + l] += factors[first + q * factors_step + r] * matrix[start + r * step + l]``, all of
        them one-dimensional and contiguous; ``matrix`` may be of bfloat16.
        """
        narrow = matrix.dtype != types.float32
        lanes, whole = ir.VectorType(_F32, LANES), ir.VectorType(_I32, LANES)
        read = ir.VectorType(_I16 if narrow else _F32, LANES)

        def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            def pointer(array: int, offset: Any, kind: Any) -> Any:
                data = context.make_array(signature.args[array])(context, builder, args[array]).data
                return builder.bitcast(builder.gep(data, [offset]), kind.as_pointer())

            def behind(offset: Any, step: Any, count: int) -> Any:
                return builder.add(offset, builder.mul(step, ir.IntType(64)(count)))

            def factor(query: int, row: int) -> Any:
                offset = builder.add(behind(args[4], args[5], query), ir.IntType(64)(row))
                single = builder.insert_element(
                    ir.Constant(lanes, ir.Undefined), builder.load(pointer(3, offset, _F32), align=4), _I32(0)
                )
                return builder.shuffle_vector(single, single, ir.Constant(whole, [0] * LANES))

            def matrix_row(row: int) -> Any:
                found = builder.load(pointer(6, behind(args[7], args[8], row), read), align=2 if narrow else 4)
                if not narrow:
                    return found
                return builder.bitcast(builder.shl(builder.zext(found, whole), ir.Constant(whole, [16] * LANES)), lanes)

            kind = ir.FunctionType(lanes, [lanes] * 3)
            both = cgutils.get_or_insert_function(builder.module, kind, f"llvm.fma.v{LANES}f32")
            totals = [pointer(0, behind(args[1], args[2], query), lanes) for query in range(queries)]
            found = [builder.load(total, align=4) for total in totals]
            for row in range(rows):
                many = matrix_row(row)
                found = [builder.call(both, [factor(q, row), many, one]) for q, one in enumerate(found)]
            for total, one in zip(totals, found, strict=True):
                builder.store(one, total, align=4)
            return context.get_dummy_value()

        i = types.int64
        return types.void(sums, i, i, factors, i, i, matrix, i, i), build

    return accumulate


def _accumulating_all(queries: int) -> Any:
    """As ``accumulate`` for so many queries, of any number of rows."""
    by_lanes, by_one = _accumulating(queries, LANES), _accumulating(queries, 1)

    @_inner
    def accumulate_all(
        rows: int,
        sums: Any,
        at: int,
        sums_step: int,
        factors: Any,
        first: int,
        factors_step: int,
        matrix: Any,
        start: int,
        step: int,
    ) -> None:
        whole = rows - rows % LANES
        for r in range(0, whole, LANES):
            by_lanes(sums, at, sums_step, factors, first + r, factors_step, matrix, start + r * step, step)
        for r in range(whole, rows):
            by_one(sums, at, sums_step, factors, first + r, factors_step, matrix, start + r * step, step)

    return accumulate_all


_MOST = 4  # queries that share what is read of a matrix
_accumulate_one, _accumulate_three, _accumulate_most = (_accumulating_all(queries) for queries in (1, 3, _MOST))


@_inner
def _accumulate(
    queries: int,
    rows: int,
    sums: Any,
    at: int,
    sums_step: int,
    factors: Any,
    first: int,
    factors_step: int,
    matrix: Any,
    start: int,
    step: int,
) -> None:
    """Likewise of any number of queries."""
    while queries >= _MOST:
        _accumulate_most(rows, sums, at, sums_step, factors, first, factors_step, matrix, start, step)
        at, first, queries = at + _MOST * sums_step, first + _MOST * factors_step, queries - _MOST
    if queries == 3:
        _accumulate_three(rows, sums, at, sums_step, factors, first, factors_step, matrix, start, step)
        return
    for q in range(queries):
        own, factor = at + q * sums_step, first + q * factors_step
        _accumulate_one(rows, sums, own, sums_step, factors, factor, factors_step, matrix, start, step)


@intrinsic
def _nearest(typing_context: Any, value: Any) -> Any:  # noqa: ARG001
    """The nearest integer, as a float32."""

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:  # noqa: ARG001
        kind = ir.FunctionType(_F32, [_F32])
        return builder.call(cgutils.get_or_insert_function(builder.module, kind, "llvm.roundeven.f32"), args)

    return types.float32(types.float32), build


@intrinsic
def _times_power(typing_context: Any, value: Any, power: Any) -> Any:  # noqa: ARG001
    """``value`` times two to the integer ``power``, both float32."""

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:  # noqa: ARG001
        exponent = builder.shl(builder.fptosi(args[1], _I32), _I32(23))
        return builder.bitcast(builder.add(builder.bitcast(args[0], _I32), exponent), _F32)

    return types.float32(types.float32, types.float32), build


@_inlined
def exponential(value: Any) -> Any:
    """Of a float32, within 2e-6 of its size; beyond -87 and 88 what it is there."""
    clamped = min(max(value, _LEAST_POWER), _MOST_POWER)
    power = _nearest(clamped * _LOG2_E)
    f = fma(clamped, _LOG2_E, -power)
    p = fma(f, fma(f, fma(f, fma(f, fma(f, fma(f, _C6, _C5), _C4), _C3), _C2), _C1), _ONE)
    return _times_power(p, power)


@compiled(fastmath=_LOOSE)
def _mean_square(row: Any) -> Any:
    total = _ZERO
    for i in range(len(row)):
        total += row[i] * row[i]
    return total / np.float32(len(row))


@compiled()
def add_and_normalise(residual: Any, delta: Any, weight: Any, eps: Any, out: Any) -> None:
    """``residual += delta`` (``[N, H]`` float32; delta may have no rows); ``out`` is its RMS norm times ``weight``."""
    rows, width = residual.shape
    for n in range(rows):
        row = residual[n]
        if len(delta):
            for i in range(width):
                row[i] += wide(delta[n, i])
        factor = _ONE / np.sqrt(_mean_square(row) + eps)
        for i in range(width):
            out[n, i] = stored(row[i] * factor * weight[i], out)


@compiled(fastmath=_LOOSE)
def gate(both: Any, out: Any) -> None:
    """``silu(g) * u`` of ``both`` ``[N, 2 * width]``, g before u."""
    rows, width = out.shape
    for n in range(rows):
        gates, ups, found = both[n][:width], both[n][width:], out[n]
        for i in range(width):
            g = wide(gates[i])
            found[i] = stored(g / (_ONE + exponential(-g)) * wide(ups[i]), out)


@compiled()
def _rotate(head: Any, weight: Any, eps: Any, cosine: Any, sine: Any, factor: Any, out: Any) -> None:
    """One head ``[d]``, normed first if it has a ``weight``, turned to its position and times ``factor``."""
    half = len(cosine)
    for i in range(2 * half):
        out[i] = wide(head[i])
    if len(weight):
        scale = _ONE / np.sqrt(_mean_square(out) + eps)
        for i in range(2 * half):
            out[i] = out[i] * scale * weight[i]
    for i in range(half):
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
    """Put keys and values of ``projected`` ``[N, (heads + 2 * kv_heads) * d]`` into their slots."""
    kv_heads, _, width, block_tokens = keys.shape
    turned = np.empty(width, np.float32)
    for n in range(len(projected)):
        block, place, position = slots[n] // block_tokens, slots[n] % block_tokens, positions[n]
        for head in range(kv_heads):
            at = (heads + head) * width
            _rotate(projected[n, at : at + width], weight, eps, cosines[position], sines[position], _ONE, turned)
            for i in range(width):
                keys[head, block, i, place] = stored(turned[i], keys)
            at += kv_heads * width
            for i in range(width):
                values[head, slots[n], i] = stored(wide(projected[n, at + i]), values)


@compiled()
def _score(query: Any, keys: Any, head: int, table: Any, straight: int, path: Any, scores: Any) -> None:
    """``scores`` ``[Q, n]`` of ``query`` ``[Q, d]`` with one head's keys, the path's behind the others."""
    count, width = query.shape
    _, blocks, _, size = keys.shape
    flat_keys, flat_scores, flat_query = keys.reshape(-1), scores.reshape(-1), query.reshape(-1)
    row, whole = scores.shape[1], size - size % LANES  # of a block's keys, side by side
    for b in range((straight + size - 1) // size):
        block = (head * blocks + table[b]) * width * size
        for t in range(0, whole, LANES):
            at = b * size + t
            for q in range(count):
                scores[q, at : at + LANES] = _ZERO
            _accumulate(count, width, flat_scores, at, row, flat_query, 0, width, flat_keys, block + t, size)
        for t in range(whole, size):
            for q in range(count):
                scores[q, b * size + t] = _product(query[q], keys[head, table[b]], t)
    for j in range(len(path)):
        for q in range(count):
            scores[q, straight + j] = _product(query[q], keys[head, path[j] // size], path[j] % size)


@compiled()
def _product(query: Any, block: Any, place: int) -> Any:
    """Of ``query`` ``[d]`` and one key of a ``block`` ``[d, block_tokens]``."""
    total = _ZERO
    for i in range(len(query)):
        total = fma(query[i], wide(block[i, place]), total)
    return total


@compiled(fastmath=_LOOSE)
def _weigh(scores: Any) -> None:
    """Scores of one query become its weights."""
    largest = scores[0]
    for i in range(len(scores)):
        largest = max(largest, scores[i])
    for i in range(len(scores)):
        scores[i] = exponential(scores[i] - largest)
    total = _ZERO
    for i in range(len(scores)):
        total += scores[i]
    for i in range(len(scores)):
        scores[i] /= total


@compiled()
def _add_values(weights: Any, first: int, values: Any, head: int, slot: int, count: int, sums: Any) -> None:
    """``sums`` ``[Q, d]`` += ``weights[:, first:]`` times ``count`` consecutive values of one head, in order."""
    queries, width = sums.shape
    flat_values, flat_weights, flat_sums = values.reshape(-1), weights.reshape(-1), sums.reshape(-1)
    value, row, whole = (head * values.shape[1] + slot) * width, weights.shape[1], width - width % LANES
    for i in range(0, whole, LANES):
        _accumulate(queries, count, flat_sums, i, width, flat_weights, first, row, flat_values, value + i, width)
    for q in range(queries):
        for i in range(whole, width):
            for j in range(count):
                sums[q, i] = fma(weights[q, first + j], wide(values[head, slot + j, i]), sums[q, i])


@compiled()
def _sum_values(
    weights: Any, values: Any, head: int, table: Any, size: int, shortest: int, rows: int, path: Any, sums: Any
) -> None:
    """``sums`` ``[Q, d]`` of a run of ``rows``, each of which sees one slot more than the one before."""
    group = len(sums) // rows
    shared = shortest - shortest % size  # slots that all of them see, in whole blocks
    sums[:] = _ZERO
    for first in range(0, shared, size):
        _add_values(weights, first, values, head, table[first // size] * size, size, sums)
    for r in range(rows):
        own_weights, own_sums = weights[r * group : (r + 1) * group], sums[r * group : (r + 1) * group]
        for first in range(shared, shortest + r, size):
            tokens = min(size, shortest + r - first)
            _add_values(own_weights, first, values, head, table[first // size] * size, tokens, own_sums)
        for j in range(len(path)):
            _add_values(own_weights, shortest + j, values, head, path[j], 1, own_sums)


@compiled()
def _run_of(n: int, sequences: Any, lengths: Any) -> int:
    """How many rows from ``n`` on, of one sequence and each behind the one before, are computed together."""
    count = 1
    if lengths[n, 1]:
        return count
    for m in range(n + 1, min(n + _ROWS, len(lengths))):
        if sequences[m] != sequences[n] or lengths[m, 0] != lengths[n, 0] + count or lengths[m, 1]:
            break
        count += 1
    return count


@compiled()
def attend(
    projected: Any,
    weight: Any,
    eps: Any,
    cosines: Any,
    sines: Any,
    scale: Any,
    positions: Any,
    sequences: Any,
    lengths: Any,
    tables: Any,
    paths: Any,
    keys: Any,
    values: Any,
    out: Any,
) -> None:
    """Each row's heads over the keys it sees.

    Args:
        projected: ``[N, (heads + 2 * kv_heads) * d]``, queries first.
        weight: ``[d]`` of the norm of queries; empty: none.
        eps: its.
        cosines: ``[positions, d / 2]``.
        sines: likewise.
        scale: of scores.
        positions: ``[N]``.
        sequences: ``[N]`` rows of ``tables``.
        lengths: ``[N, 2]``: a row sees so many slots of its sequence from the first on, then so many of its path.
        tables: ``[sequences, blocks]``.
        paths: ``[N, nodes]`` slots.
        keys: ``[kv_heads, blocks, d, block_tokens]``.
        values: ``[kv_heads, slots, d]``.
        out: ``[N, heads * d]``.
    """
    kv_heads, _, width, size = keys.shape
    group, most = out.shape[1] // width // kv_heads, 0
    for n in range(len(out)):
        most = max(most, lengths[n, 0] + lengths[n, 1])
    queries, sums = np.empty((_ROWS * group, width), np.float32), np.empty((_ROWS * group, width), np.float32)
    scores = np.empty((_ROWS * group, most + size), np.float32)
    n = 0
    while n < len(out):
        count, shortest = _run_of(n, sequences, lengths), lengths[n, 0]
        table, path, many = tables[sequences[n]], paths[n][: lengths[n, 1]], count * group
        for head in range(kv_heads):
            at = head * group * width
            for q in range(many):
                row, own = n + q // group, at + q % group * width
                cosine, sine = cosines[positions[row]], sines[positions[row]]
                _rotate(projected[row][own : own + width], weight, eps, cosine, sine, scale, queries[q])
            _score(queries[:many], keys, head, table, shortest + count - 1, path, scores)
            for q in range(many):
                _weigh(scores[q][: shortest + q // group + len(path)])
            _sum_values(scores, values, head, table, size, shortest, count, path, sums[:many])
            for q in range(many):
                row, own = n + q // group, at + q % group * width
                for i in range(width):
                    out[row, own + i] = stored(sums[q, i], out)
        n += count

"""Attention over keys and values where they lie (``kernels``), one head's for all its queries and some rows at once.

A key's product is added up in the order of d, a row's values in the order of its keys, by the same operations one by
one or many at once: a path through a tree is what it is as a chain.
"""

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils

from outrider.engines.torch.fused.compiling import (
    F32,
    FLOATS,
    I16,
    I32,
    I64,
    LANES,
    LOOSE,
    ONE,
    WORDS,
    ZERO,
    Code,
    add_product,
    code,
    compiled,
    exponential,
    fma,
    inner,
    intrinsic,
    keyed,
    stored,
    wide,
)
from outrider.engines.torch.fused.kernels import rotate

_ROWS = 8  # of a sequence that attend together


def _accumulating(queries: int, vectors: int) -> Any:
    """``accumulate`` for so many queries and vectors."""

    @intrinsic
    def accumulate(
        typing_context: Any,  # noqa: ARG001 (numba's interface)
        sums: Any,
        at: Any,  # noqa: ARG001
        sums_step: Any,  # noqa: ARG001
        factors: Any,
        first: Any,  # noqa: ARG001
        factors_step: Any,  # noqa: ARG001
        matrix: Any,
        starts: Any,
        begin: Any,  # noqa: ARG001
        step: Any,  # noqa: ARG001
        rows: Any,  # noqa: ARG001
    ) -> Any:
        """Row by row r, for all queries q, vectors v and lanes l.

        ``sums[at + q * sums_step + v * LANES + l] += factors[first + q * factors_step + r] * matrix[starts[begin + v] +
        r * step + l]``, all of them one-dimensional and contiguous; ``matrix`` may be of bfloat16, or it and
        ``factors`` of pairs of bfloat16.
        """

        def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            _emit(code(context, builder, signature, args), args, queries, vectors, matrix.dtype)
            return context.get_dummy_value()

        i = types.int64
        return types.void(sums, i, i, factors, i, i, matrix, starts, i, i, i), build

    return accumulate


def _emit(made: Code, args: Any, queries: int, vectors: int, kind: Any) -> None:
    """As ``accumulate``; sums stay in registers."""
    builder, product, paired = made.builder, _product(made, kind), kind == types.uint32
    _, at, sums_step, _, first, factors_step, _, _, begin, step, rows = args
    totals, cells = [(q, v) for q in range(queries) for v in range(vectors)], {}
    for q, v in totals:
        place = made.at(0, made.plus(made.behind(at, sums_step, q), v * LANES), FLOATS)
        cells[q, v] = place, cgutils.alloca_once_value(builder, builder.load(place, align=4))
    begins = [builder.load(made.at(7, made.plus(begin, v), I64)) for v in range(vectors)]
    firsts = [made.behind(first, factors_step, q) for q in range(queries)]
    number, vector = (I32, WORDS) if paired else (F32, FLOATS)
    with cgutils.for_range(builder, rows) as loop:
        along = builder.mul(loop.index, step)
        many = [_read(made, builder.add(start, along), kind) for start in begins]
        ones = [made.everywhere(made.at(3, builder.add(own, loop.index), number), vector) for own in firsts]
        for q, v in totals:
            total = cells[q, v][1]
            builder.store(product(builder.load(total), ones[q], many[v]), total)
    for place, total in cells.values():
        builder.store(builder.load(total), place, align=4)


def _product(made: Code, kind: Any) -> Any:
    """What adds a number, or pair, times a vector of such to a total."""
    if kind == types.uint32:
        return made.add_pairs()
    both = made.fma()
    return lambda total, one, many: both(one, many, total)


def _read(made: Code, offset: Any, kind: Any) -> Any:
    """A vector of the matrix; single bfloat16 as float32."""
    if kind != types.uint16:
        return made.builder.load(made.at(6, offset, FLOATS if kind == types.float32 else WORDS), align=4)
    found = made.builder.load(made.at(6, offset, ir.VectorType(I16, LANES)), align=2)
    bits = made.builder.shl(made.builder.zext(found, WORDS), ir.Constant(WORDS, [16] * LANES))
    return made.builder.bitcast(bits, FLOATS)


_QUERIES, _SMALL, _VECTORS = 4, 3, 4  # their accumulators fit into the vector registers together
_four_by_four, _three_by_four, _one_by_four = (_accumulating(queries, _VECTORS) for queries in (_QUERIES, _SMALL, 1))
_four_by_one, _three_by_one, _one_by_one = (_accumulating(queries, 1) for queries in (_QUERIES, _SMALL, 1))


@inner
def _accumulate(
    queries: int,
    vectors: int,
    sums: Any,
    at: int,
    sums_step: int,
    factors: Any,
    first: int,
    factors_step: int,
    matrix: Any,
    starts: Any,
    begin: int,
    step: int,
    rows: int,
) -> None:
    """Likewise of any number of queries and vectors; what is read of the matrix serves all queries."""
    while vectors > 0:
        whole = vectors >= _VECTORS
        left, own, factor = queries, at, first
        while left > 0:
            count = _QUERIES if left >= _QUERIES else _SMALL if left >= _SMALL else 1
            if count == _QUERIES and whole:
                _four_by_four(sums, own, sums_step, factors, factor, factors_step, matrix, starts, begin, step, rows)
            elif count == _QUERIES:
                _four_by_one(sums, own, sums_step, factors, factor, factors_step, matrix, starts, begin, step, rows)
            elif count == _SMALL and whole:
                _three_by_four(sums, own, sums_step, factors, factor, factors_step, matrix, starts, begin, step, rows)
            elif count == _SMALL:
                _three_by_one(sums, own, sums_step, factors, factor, factors_step, matrix, starts, begin, step, rows)
            elif whole:
                _one_by_four(sums, own, sums_step, factors, factor, factors_step, matrix, starts, begin, step, rows)
            else:
                _one_by_one(sums, own, sums_step, factors, factor, factors_step, matrix, starts, begin, step, rows)
            left, own, factor = left - count, own + count * sums_step, factor + count * factors_step
        many = _VECTORS if whole else 1
        at, begin, vectors = at + many * LANES, begin + many, vectors - many


@compiled()
def _score(query: Any, keys: Any, head: int, table: Any, straight: int, path: Any, scores: Any) -> None:
    """``scores`` ``[Q, n]`` of ``query`` ``[Q, d]``, or of its pairs, with one head's keys, the path's behind them."""
    count, width = query.shape
    _, blocks, _, size = keys.shape
    flat_keys, flat_scores, flat_query = keys.reshape(-1), scores.reshape(-1), query.reshape(-1)
    row, whole, used = scores.shape[1], size - size % LANES, (straight + size - 1) // size
    vectors = whole // LANES  # of a block's keys, side by side
    starts = np.empty(used * vectors, np.int64)
    for b in range(used):
        for t in range(vectors):
            starts[b * vectors + t] = (head * blocks + table[b]) * width * size + t * LANES
    for q in range(count):
        for t in range(used * size):
            scores[q, t] = ZERO
    together = used if whole == size else 1  # blocks whose scores lie behind one another
    for b in range(0, used, together):
        at, begin, many = b * size, b * vectors, vectors * together
        _accumulate(count, many, flat_scores, at, row, flat_query, 0, width, flat_keys, starts, begin, size, width)
    _score_others(query, keys, head, table[:used], whole, straight, path, scores)


@compiled()
def _score_others(
    query: Any, keys: Any, head: int, table: Any, whole: int, straight: int, path: Any, scores: Any
) -> None:
    """Likewise with keys one by one: behind the ``whole`` vectors of each block, and the path's."""
    count, size = len(query), keys.shape[3]
    for q in range(count):
        for b in range(len(table)):
            for t in range(whole, size):
                scores[q, b * size + t] = _score_one(query[q], keys[head, table[b]], t)
        for j in range(len(path)):
            scores[q, straight + j] = _score_one(query[q], keys[head, path[j] // size], path[j] % size)


@compiled()
def _score_one(query: Any, block: Any, place: int) -> Any:
    """Of ``query`` ``[d]``, or its pairs, and one key of a ``block``."""
    total = ZERO
    for i in range(len(query)):
        total = add_product(total, query[i], block[i, place])
    return total


@compiled(fastmath=LOOSE)
def _weigh(scores: Any) -> None:
    """Scores of one query become its weights."""
    largest = scores[0]
    for i in range(len(scores)):
        largest = max(largest, scores[i])
    for i in range(len(scores)):
        scores[i] = exponential(scores[i] - largest)
    total = ZERO
    for i in range(len(scores)):
        total += scores[i]
    part = ONE / total
    for i in range(len(scores)):
        scores[i] *= part


@inner
def _add_values(
    queries: int,
    width: int,
    weights: Any,
    first: int,
    step: int,
    values: Any,
    start: int,
    count: int,
    sums: Any,
    at: int,
    starts: Any,
) -> None:
    """Of ``queries``: ``sums[at:]`` += their weights times ``count`` consecutive values of one head, in order.

    All arrays are flat: weights ``[Q, step]`` from ``first`` on, values ``[count, width]`` from ``start`` on.
    ``starts`` is memory for as many numbers as there are vectors in a value.
    """
    for v in range(len(starts)):
        starts[v] = start + v * LANES
    _accumulate(queries, len(starts), sums, at, width, weights, first, step, values, starts, 0, width, count)
    for q in range(queries):
        for i in range(len(starts) * LANES, width):
            for j in range(count):
                own = at + q * width + i
                sums[own] = fma(weights[first + q * step + j], wide(values[start + j * width + i]), sums[own])


@compiled()
def _sum_values(
    weights: Any, values: Any, head: int, table: Any, size: int, shortest: int, rows: int, path: Any, sums: Any
) -> None:
    """``sums`` ``[Q, d]`` of a run of ``rows``, each of which sees one slot more than the one before."""
    many, width = sums.shape
    group, step = many // rows, weights.shape[1]
    shared = shortest - shortest % size  # slots that all of them see, in whole blocks
    starts = np.empty(width // LANES, np.int64)
    w, v, o, base = weights.reshape(-1), values.reshape(-1), sums.reshape(-1), head * values.shape[1]
    for i in range(len(o)):
        o[i] = ZERO
    for first in range(0, shared, size):
        start = (base + table[first // size] * size) * width
        _add_values(many, width, w, first, step, v, start, size, o, 0, starts)
    for r in range(rows):
        row, at = r * group * step, r * group * width
        for first in range(shared, shortest + r, size):
            tokens, start = min(size, shortest + r - first), (base + table[first // size] * size) * width
            _add_values(group, width, w, row + first, step, v, start, tokens, o, at, starts)
        for j in range(len(path)):
            _add_values(group, width, w, row + shortest + j, step, v, (base + path[j]) * width, 1, o, at, starts)


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
        keys: ``[kv_heads, blocks, d, block_tokens]`` float32, or ``[kv_heads, blocks, d / 2, block_tokens]`` pairs.
        values: ``[kv_heads, slots, d]``.
        out: ``[N, heads * d]``.
    """
    kv_heads, _, pairs, size = keys.shape
    width = values.shape[2]
    group, most = out.shape[1] // width // kv_heads, 0
    for n in range(len(out)):
        most = max(most, lengths[n, 0] + lengths[n, 1])
    turned, sums = np.empty(width, np.float32), np.empty((_ROWS * group, width), np.float32)
    queries = np.empty((_ROWS * group, pairs), keys.dtype)
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
                rotate(projected[row][own : own + width], weight, eps, cosine, sine, scale, turned)
                for i in range(pairs):
                    queries[q, i] = keyed(turned, i, keys)
            _score(queries[:many], keys, head, table, shortest + count - 1, path, scores)
            for q in range(many):
                _weigh(scores[q][: shortest + q // group + len(path)])
            _sum_values(scores, values, head, table, size, shortest, count, path, sums[:many])
            for q in range(many):
                row, own = n + q // group, at + q % group * width
                for i in range(width):
                    out[row, own + i] = stored(sums[q, i], out)
        n += count

"""Attention over keys and values in place: a KV head's keys are read once for all its query heads and up to eight rows.

The product with a key is summed in the order of d, a row's values in the order of its keys. Scalar and vector code use
the same operations per sum. So a path through a tree, whose keys lie anywhere, has the same bits as a chain.
"""

from typing import Any, NamedTuple

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

_ROWS = 8  # most rows of a sequence that share one pass over its keys


# Groups of arguments among compiled functions, at no cost. Python calls ``attend`` with arrays one by one: numba takes
# 40 us to look into a named tuple of arrays, in all a tenth of a pass of one row.


class _Turn(NamedTuple):
    """How queries are normed, turned and scaled."""

    weight: Any
    eps: Any
    cosines: Any
    sines: Any
    scale: Any


class _Seen(NamedTuple):
    """Positions of rows, and what they see."""

    positions: Any
    sequences: Any
    lengths: Any
    tables: Any
    paths: Any


class _Place(NamedTuple):
    """Numbers of one ``accumulate``."""

    at: int  # first sum
    sums_step: int  # from a query's sums to the next one's
    first: int  # first factor
    factors_step: int
    begin: int  # first of ``starts``
    step: int  # from one row of the matrix to the next
    rows: int


class _Run(NamedTuple):
    """Consecutive rows of a sequence that attend together, and the slots they see."""

    table: Any  # ``[blocks]`` of the sequence
    path: Any  # slots of a tree node's path
    shortest: int  # slots that the first row sees, in order; each further row sees one more
    rows: int


class _Summed(NamedTuple):
    """Flat arrays of ``_add_values``."""

    weights: Any  # ``[Q, step]``
    step: int
    values: Any  # ``[slots, width]`` of all heads
    width: int
    sums: Any  # ``[Q, width]``
    starts: Any  # scratch memory with an element for each vector of a value


def _accumulating(queries: int, vectors: int) -> Any:
    """Make ``accumulate`` for a number of queries and vectors."""

    @intrinsic
    def accumulate(
        typing_context: Any,  # noqa: ARG001 (numba's interface)
        sums: Any,
        factors: Any,
        matrix: Any,
        starts: Any,
        place: Any,
    ) -> Any:
        """Add products of factors and matrix rows to sums, row by row r, for all queries q, vectors v and lanes l.

        With the numbers of ``place``: ``sums[at + q * sums_step + v * LANES + l] += factors[first + q * factors_step +
        r] * matrix[starts[begin + v] + r * step + l]``. All arrays are one-dimensional and contiguous. ``matrix`` may
        be bfloat16; or both ``matrix`` and ``factors`` are bfloat16 pairs.
        """

        def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            _emit(code(context, builder, signature, args), args, queries, vectors, matrix.dtype)
            return context.get_dummy_value()

        return types.void(sums, factors, matrix, starts, place), build

    return accumulate


def _emit(made: Code, args: Any, queries: int, vectors: int, kind: Any) -> None:
    """Emit ``accumulate``; sums stay in registers from load to store."""
    builder, product, paired = made.builder, _product(made, kind), kind == types.uint32
    at, sums_step, first, factors_step, begin, step, rows = cgutils.unpack_tuple(builder, args[4])
    totals, cells = [(q, v) for q in range(queries) for v in range(vectors)], {}
    for q, v in totals:
        place = made.at(0, made.plus(made.behind(at, sums_step, q), v * LANES), FLOATS)
        cells[q, v] = place, cgutils.alloca_once_value(builder, builder.load(place, align=4))
    begins = [builder.load(made.at(3, made.plus(begin, v), I64)) for v in range(vectors)]
    firsts = [made.behind(first, factors_step, q) for q in range(queries)]
    number, vector = (I32, WORDS) if paired else (F32, FLOATS)
    with cgutils.for_range(builder, rows) as loop:
        along = builder.mul(loop.index, step)
        many = [_read(made, builder.add(start, along), kind) for start in begins]
        ones = [made.everywhere(made.at(1, builder.add(own, loop.index), number), vector) for own in firsts]
        for q, v in totals:
            total = cells[q, v][1]
            builder.store(product(builder.load(total), ones[q], many[v]), total)
    for place, total in cells.values():
        builder.store(builder.load(total), place, align=4)


def _product(made: Code, kind: Any) -> Any:
    """Return the instruction that adds a number, or pair, times a vector to a total."""
    if kind == types.uint32:
        return made.add_pairs()
    both = made.fma()
    return lambda total, one, many: both(one, many, total)


def _read(made: Code, offset: Any, kind: Any) -> Any:
    """Load a vector of the matrix; single bfloat16 become float32."""
    if kind != types.uint16:
        return made.builder.load(made.at(2, offset, FLOATS if kind == types.float32 else WORDS), align=4)
    found = made.builder.load(made.at(2, offset, ir.VectorType(I16, LANES)), align=2)
    bits = made.builder.shl(made.builder.zext(found, WORDS), ir.Constant(WORDS, [16] * LANES))
    return made.builder.bitcast(bits, FLOATS)


_QUERIES, _SMALL, _VECTORS = 4, 3, 4  # 4 * 4 accumulators fit into the vector registers together
_four_by_four, _three_by_four, _one_by_four = (_accumulating(queries, _VECTORS) for queries in (_QUERIES, _SMALL, 1))
_four_by_one, _three_by_one, _one_by_one = (_accumulating(queries, 1) for queries in (_QUERIES, _SMALL, 1))


@inner
def _accumulate(queries: int, vectors: int, sums: Any, factors: Any, matrix: Any, starts: Any, place: _Place) -> None:
    """Do the same for any number of queries and vectors; a loaded vector of the matrix serves up to four queries."""
    at, sums_step, first, factors_step, begin, step, rows = place
    while vectors > 0:
        whole = vectors >= _VECTORS
        left, own, factor = queries, at, first
        while left > 0:
            count = _QUERIES if left >= _QUERIES else _SMALL if left >= _SMALL else 1
            here = _Place(own, sums_step, factor, factors_step, begin, step, rows)
            if count == _QUERIES and whole:
                _four_by_four(sums, factors, matrix, starts, here)
            elif count == _QUERIES:
                _four_by_one(sums, factors, matrix, starts, here)
            elif count == _SMALL and whole:
                _three_by_four(sums, factors, matrix, starts, here)
            elif count == _SMALL:
                _three_by_one(sums, factors, matrix, starts, here)
            elif whole:
                _one_by_four(sums, factors, matrix, starts, here)
            else:
                _one_by_one(sums, factors, matrix, starts, here)
            left, own, factor = left - count, own + count * sums_step, factor + count * factors_step
        many = _VECTORS if whole else 1
        at, begin, vectors = at + many * LANES, begin + many, vectors - many


@compiled()
def _score(query: Any, keys: Any, head: int, run: _Run, scores: Any) -> None:
    """Write scores ``[Q, n]`` of ``query`` ``[Q, d]``, or its pairs, with one head's keys; the path's keys come last.

    Vectors cover whole blocks, so the last block's scores may include slots a row does not see; those are overwritten
    by the path's scores, or ignored.
    """
    count, width = query.shape
    _, blocks, _, size = keys.shape
    flat_keys, flat_scores, flat_query = keys.reshape(-1), scores.reshape(-1), query.reshape(-1)
    straight, table = run.shortest + run.rows - 1, run.table
    row, whole, used = scores.shape[1], size - size % LANES, (straight + size - 1) // size
    vectors = whole // LANES  # of a block's keys, side by side
    starts = np.empty(used * vectors, np.int64)
    for b in range(used):
        for t in range(vectors):
            starts[b * vectors + t] = (head * blocks + table[b]) * width * size + t * LANES
    for q in range(count):
        for t in range(used * size):
            scores[q, t] = ZERO
    together = used if whole == size else 1  # blocks whose scores are contiguous are computed in one call
    for b in range(0, used, together):
        place = _Place(b * size, row, 0, width, b * vectors, size, width)
        _accumulate(count, vectors * together, flat_scores, flat_query, flat_keys, starts, place)
    _score_others(query, keys, head, run, used, whole, scores)


@compiled()
def _score_others(query: Any, keys: Any, head: int, run: _Run, used: int, whole: int, scores: Any) -> None:
    """Write scores of single keys: those that fill no vector at each block's end, and the path's."""
    count, size, straight, table, path = len(query), keys.shape[3], run.shortest + run.rows - 1, run.table, run.path
    for q in range(count):
        for b in range(used):
            for t in range(whole, size):
                scores[q, b * size + t] = _score_one(query[q], keys[head, table[b]], t)
        for j in range(len(path)):
            scores[q, straight + j] = _score_one(query[q], keys[head, path[j] // size], path[j] % size)


@compiled()
def _score_one(query: Any, block: Any, place: int) -> Any:
    """Return the product of ``query`` ``[d]``, or its pairs, with one key of a ``block``."""
    total = ZERO
    for i in range(len(query)):
        total = add_product(total, query[i], block[i, place])
    return total


@compiled(fastmath=LOOSE)
def _weigh(scores: Any) -> None:
    """Turn the scores of one query into softmax weights, in place. The total's order depends on their number only."""
    largest = scores[0]  # subtracted, so that no exponential overflows
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
def _add_values(queries: int, summed: _Summed, first: int, start: int, count: int, at: int) -> None:
    """Add weights from ``first`` on times ``count`` values of a head from ``start`` on, in order, to ``sums[at:]``."""
    weights, step, values, width, sums, starts = summed
    for v in range(len(starts)):
        starts[v] = start + v * LANES
    place = _Place(at, width, first, step, 0, width, count)
    _accumulate(queries, len(starts), sums, weights, values, starts, place)
    for q in range(queries):
        # Numbers of a value that fill no vector: the same fused operation, one by one.
        for i in range(len(starts) * LANES, width):
            for j in range(count):
                own = at + q * width + i
                sums[own] = fma(weights[first + q * step + j], wide(values[start + j * width + i]), sums[own])


@compiled()
def _sum_values(weights: Any, values: Any, head: int, size: int, run: _Run, sums: Any) -> None:
    """Write ``sums`` ``[Q, d]`` of a run of rows.

    Every row adds its values in the order of its slots, block by block, then those of its path: shared blocks are read
    once for all rows, the rest row by row.
    """
    table, path, shortest, rows = run
    many, width = sums.shape
    group, step = many // rows, weights.shape[1]
    shared = shortest - shortest % size  # slots that all rows see, in whole blocks
    o, base = sums.reshape(-1), head * values.shape[1]
    summed = _Summed(weights.reshape(-1), step, values.reshape(-1), width, o, np.empty(width // LANES, np.int64))
    for i in range(len(o)):
        o[i] = ZERO
    for first in range(0, shared, size):
        _add_values(many, summed, first, (base + table[first // size] * size) * width, size, 0)
    for r in range(rows):
        row, at = r * group * step, r * group * width
        for first in range(shared, shortest + r, size):
            tokens, start = min(size, shortest + r - first), (base + table[first // size] * size) * width
            _add_values(group, summed, row + first, start, tokens, at)
        for j in range(len(path)):
            _add_values(group, summed, row + shortest + j, (base + path[j]) * width, 1, at)


@compiled()
def _run_of(n: int, sequences: Any, lengths: Any) -> int:
    """Return how many consecutive rows from ``n`` on, at successive positions of one sequence, attend together."""
    count = 1
    if lengths[n, 1]:  # a tree node attends alone
        return count
    for m in range(n + 1, min(n + _ROWS, len(lengths))):
        if sequences[m] != sequences[n] or lengths[m, 0] != lengths[n, 0] + count or lengths[m, 1]:
            break
        count += 1
    return count


@inner
def _attend(projected: Any, turn: _Turn, seen: _Seen, keys: Any, values: Any, out: Any) -> None:
    kv_heads, _, pairs, size = keys.shape
    lengths, width = seen.lengths, values.shape[2]
    group, most = out.shape[1] // width // kv_heads, 0
    for n in range(len(out)):
        most = max(most, lengths[n, 0] + lengths[n, 1])
    turned, sums = np.empty(width, np.float32), np.empty((_ROWS * group, width), np.float32)
    queries = np.empty((_ROWS * group, pairs), keys.dtype)
    scores = np.empty((_ROWS * group, most + size), np.float32)
    n = 0
    while n < len(out):
        count, path = _run_of(n, seen.sequences, lengths), seen.paths[n][: lengths[n, 1]]
        run, many = _Run(seen.tables[seen.sequences[n]], path, lengths[n, 0], count), count * group
        for head in range(kv_heads):
            # Query q of the run is head q % group of row n + q // group.
            at = head * group * width
            for q in range(many):
                row, own = n + q // group, at + q % group * width
                cosine, sine = turn.cosines[seen.positions[row]], turn.sines[seen.positions[row]]
                rotate(projected[row][own : own + width], turn.weight, turn.eps, cosine, sine, turn.scale, turned)
                for i in range(pairs):
                    queries[q, i] = keyed(turned, i, keys)
            _score(queries[:many], keys, head, run, scores)
            for q in range(many):
                _weigh(scores[q][: run.shortest + q // group + len(path)])
            _sum_values(scores, values, head, size, run, sums[:many])
            for q in range(many):
                row, own = n + q // group, at + q % group * width
                for i in range(width):
                    out[row, own + i] = stored(sums[q, i], out)
        n += count


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
    """Write each row's attention output over the keys it sees.

    Args:
        projected: ``[N, (heads + 2 * kv_heads) * d]``, queries first.
        weight: ``[d]`` of the norm of queries; empty: none.
        eps: of that norm.
        cosines: ``[positions, d / 2]``.
        sines: likewise.
        scale: of scores, applied to the queries.
        positions: ``[N]``.
        sequences: ``[N]`` rows of ``tables``.
        lengths: ``[N, 2]``: number of slots seen of the sequence, from its first on, then of the row's path.
        tables: ``[sequences, blocks]``.
        paths: ``[N, nodes]`` slots.
        keys: ``[kv_heads, blocks, d, block_tokens]`` float32, or ``[kv_heads, blocks, d / 2, block_tokens]`` pairs.
        values: ``[kv_heads, slots, d]``.
        out: ``[N, heads * d]``.
    """
    turn, seen = _Turn(weight, eps, cosines, sines, scale), _Seen(positions, sequences, lengths, tables, paths)
    _attend(projected, turn, seen, keys, values, out)

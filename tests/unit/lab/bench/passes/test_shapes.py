import argparse

import pytest

from lab.bench.passes.run import PassPlan, Point, points
from lab.bench.passes.shapes import PassShape, Pool, parse_shape


def test_shapes_are_rows_by_generations() -> None:
    assert parse_shape("16x2") == PassShape(16, 2)
    assert (str(PassShape(16, 2)), PassShape(16, 2).total_rows) == ("16x2", 32)
    for wrong in ("4", "0x1", "4x-1", "ax1"):
        with pytest.raises(argparse.ArgumentTypeError, match="needs ROWSxGENERATIONS such as 4x1"):
            parse_shape(wrong)


def test_no_two_sequences_share_a_block_and_all_lie_in_the_pool() -> None:
    pool = Pool(block_tokens=16, long_tokens=100, tokens=40, generations=3)
    held = [*pool.of_long(), *(block for generation in range(3) for block in pool.of(generation))]
    assert sorted(held) == list(range(pool.blocks)) == list(range(7 + 3 * 3))


def test_a_pass_has_its_rows_behind_what_is_resident() -> None:
    pool = Pool(block_tokens=16, long_tokens=100, tokens=40, generations=3)
    segments = pool.segments(PassShape(4, 3), 36)
    assert [(one.start, len(one.token_ids), one.logit_rows, len(one.blocks)) for one in segments] == [(36, 4, 4, 3)] * 3
    [long] = pool.segments(PassShape(1, 1), 99)
    assert (long.start, list(long.blocks)) == (99, list(pool.of_long()))
    for shape, behind in ((PassShape(1, 1), 100), (PassShape(5, 2), 36), (PassShape(1, 4), 1)):
        with pytest.raises(ValueError, match="needs room for"):
            pool.segments(shape, behind)


def test_a_plan_has_room_for_all_its_points_once_each() -> None:
    found = points([PassShape(1, 1), PassShape(4, 4), PassShape(32, 1)], 500, (500, 8000))
    assert [str(point) for point in found] == [
        "1x1 behind 500",
        "4x4 behind 500",
        "32x1 behind 500",
        "1x1 behind 8000",
    ]
    pool = PassPlan("embedded", "float32", 1, found, 1, 1).pool()
    for point in found:
        assert len(pool.segments(point.shape, point.behind)) == point.shape.generations
    assert PassPlan("embedded", "float32", 1, (Point(PassShape(2, 1), 9),), 1, 1).pool().blocks == 1

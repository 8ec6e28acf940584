import pytest

from lab.bench.passes.run import PassPlan
from lab.bench.passes.shapes import PassShape, Pool

POOL = Pool(block_tokens=16, tokens=40, generations=3)


def test_shapes_are_rows_by_generations() -> None:
    assert (str(PassShape(16, 2)), PassShape(16, 2).total_rows) == ("16x2", 32)


def test_no_two_sequences_share_a_block_and_all_lie_in_the_pool() -> None:
    held = [block for generation in range(3) for block in POOL.of(generation)]
    assert sorted(held) == list(range(POOL.blocks)) == list(range(3 * 3))


def test_a_pass_has_its_rows_behind_what_is_resident() -> None:
    segments = POOL.segments(PassShape(4, 3), 36)
    assert [(one.start, len(one.token_ids), one.logit_rows, len(one.blocks)) for one in segments] == [(36, 4, 4, 3)] * 3
    for shape, behind in ((PassShape(1, 1), 40), (PassShape(5, 2), 36), (PassShape(1, 4), 1)):
        with pytest.raises(ValueError, match="needs room for"):
            POOL.segments(shape, behind)


def test_a_plan_has_room_for_all_its_shapes() -> None:
    shapes = (PassShape(1, 1), PassShape(4, 4), PassShape(32, 1))
    pool = PassPlan("embedded", "float32", 1, shapes, 500, 1, 1).pool()
    for shape in shapes:
        assert len(pool.segments(shape, 500)) == shape.generations

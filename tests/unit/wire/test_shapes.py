"""Shapes of grown trees; those of chains and full trees are in every block of ``protocols/test_protocols``."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.contracts.drafting import Draft, DraftPlan
from outrider.contracts.errors import MessageError
from outrider.contracts.tree import node_depths
from outrider.wire.bits import BitReader, BitWriter
from outrider.wire.envelope import MAX_NODES
from outrider.wire.shapes import read_shape, shape_bits, write_shape
from tests.unit.session.random_rounds import grown_parents


def written(parents: tuple[int, ...], plan: DraftPlan) -> tuple[bytes, int]:
    writer = BitWriter()
    write_shape(writer, Draft("g", 1, 0, (0,) * len(parents), parents=parents), plan)
    return writer.to_bytes(), writer.bits


@given(st.integers(0, 2**32), st.integers(1, 6), st.integers(0, MAX_NODES - 6))
def test_a_grown_tree_comes_back_in_two_bits_a_node(seed: int, window: int, nodes: int) -> None:
    plan = DraftPlan("token_ids", window, rows=min(MAX_NODES, nodes + window))
    parents = grown_parents(Random(seed), plan, nodes)
    data, bits = written(parents, plan)
    assert read_shape(BitReader(data), plan) == (nodes, parents)
    assert bits == 2 * nodes + 1 == shape_bits(DraftPlan("token_ids", window, rows=nodes)) or not nodes


@given(st.binary(max_size=40), st.integers(1, 6), st.integers(1, 20))
def test_whatever_is_read_is_a_tree_of_the_plan(data: bytes, window: int, rows: int) -> None:
    plan, reader = DraftPlan("token_ids", window, rows=rows), BitReader(data)
    try:
        nodes, parents = read_shape(reader, plan)
    except MessageError:
        return
    assert parents is not None
    assert len(parents) == nodes <= rows
    assert max(node_depths(parents), default=0) <= window
    _, bits = written(parents, plan)
    assert bits == 2 * nodes + 1, "in the only way to say it"


@pytest.mark.parametrize(
    "parents",
    [(-1, 0, 1), (-1, -1, -1, -1, -1), (-1, 0, -1), (0,), (-1, 5)],
    ids=["too deep", "too many", "not breadth first", "its own parent", "behind nothing"],
)
def test_another_tree_is_refused(parents: tuple[int, ...]) -> None:
    with pytest.raises(MessageError, match=r"at most 4 nodes, breadth first and 2 deep|at most 0 children"):
        written(parents, DraftPlan("token_ids", 2, rows=4))


def test_a_block_that_says_no_parents_is_no_tree() -> None:
    with pytest.raises(MessageError, match="found 2 nodes with parents None"):
        write_shape(BitWriter(), Draft("g", 1, 0, (0, 1)), DraftPlan("token_ids", 2, rows=4))

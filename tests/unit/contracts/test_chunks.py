"""How much of a cold block one pass computes."""

from hypothesis import given
from hypothesis import strategies as st

from outrider.contracts.chunks import chunk_of, pass_costs
from outrider.contracts.cost import VerifyCost


@given(lacking=st.integers(0, 60), own_rows=st.integers(0, 9), left=st.integers(0, 30))
def test_a_blocks_own_rows_go_together_and_only_behind_its_whole_prefix(lacking: int, own_rows: int, left: int) -> None:
    taken, counted = chunk_of(lacking, own_rows, left)
    prefix = max(0, lacking - own_rows)
    assert (taken, counted) == ((lacking, prefix) if prefix <= left else (left, left))


def test_blocks_of_a_pass_share_one_chunk() -> None:
    blocks = [(VerifyCost(13, 0), 3), (VerifyCost(30, 0), 3), (VerifyCost(30, 0), 3), (VerifyCost(3, 10), 3)]
    assert pass_costs(blocks, 16) == [VerifyCost(13, 0), VerifyCost(6, 0), VerifyCost(3, 10)]

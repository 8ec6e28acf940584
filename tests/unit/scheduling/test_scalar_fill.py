"""Without arrays the decisions are the same."""

from hypothesis import given
from hypothesis import strategies as st

from outrider.contracts.cost import BatchWork, VerifyCost
from outrider.scheduling.trimming import Chain, trim
from tests.unit.scheduling.queues import COSTS

chains = st.lists(
    st.builds(
        lambda fixed, cached, survivals: Chain(VerifyCost(fixed + len(survivals), cached), tuple(survivals)),
        st.integers(1, 3),
        st.integers(0, 3000),
        st.lists(st.floats(0.01, 1.0), max_size=8).map(lambda drawn: sorted(drawn, reverse=True)),
    ),
    min_size=1,
    max_size=12,
)


@given(chains, st.floats(0.0, 30.0), st.floats(0.0, 0.1))
def test_drafts_are_cut_alike(drafted: list[Chain], other_tokens: float, idle_s: float) -> None:
    others = BatchWork(20, 20_000, 1000)
    scalar_limit, arrays = (trim(drafted, others, other_tokens, idle_s, COSTS, few_rows) for few_rows in (1000, -1))
    assert scalar_limit == arrays

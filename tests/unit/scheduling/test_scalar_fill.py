"""Without arrays the decisions are the same."""

from hypothesis import given
from hypothesis import strategies as st

from outrider.contracts.cost import BatchWork, VerifyCost
from outrider.scheduling.policy import BatchLimits, PendingVerification, Promised
from outrider.scheduling.slo_aware import SloAware
from outrider.scheduling.trimming import Chain, trim
from tests.unit.scheduling.queues import COSTS, NOW_S, limits, queues

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


@given(queues, limits, st.floats(0.0, 2.0), st.sampled_from([0.1, 0.4, 2.0]))
def test_a_batch_is_filled_alike(
    queue: list[PendingVerification], limits: BatchLimits, load: float, round_s: float
) -> None:
    promised = Promised(load, round_s, least_load=load)
    arrays, scalar_limit = SloAware(scalar_limit=0), SloAware(scalar_limit=len(queue))
    assert scalar_limit.plan(queue, NOW_S, limits, COSTS, promised) == arrays.plan(
        queue, NOW_S, limits, COSTS, promised
    )


@given(chains, st.floats(0.0, 30.0), st.floats(0.0, 0.1))
def test_drafts_are_cut_alike(drafted: list[Chain], other_tokens: float, idle_s: float) -> None:
    others = BatchWork(20, 20_000, 1000)
    scalar_limit, arrays = (trim(drafted, others, other_tokens, idle_s, COSTS, few_rows) for few_rows in (1000, -1))
    assert scalar_limit == arrays

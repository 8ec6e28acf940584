"""Who is sampled: as a caller says, else by chance."""

import random

from outrider.contracts.tracing import SpanContext
from outrider.tracing.sampling import decide
from outrider.tracing.spans import Ids

CALLER = SpanContext("4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7")
OTHER = Ids(random.Random(1).getrandbits).root()


def test_a_callers_word_holds_whatever_the_ratio() -> None:
    for ratio in (0.0, 0.5, 1.0):
        for sampled in (False, True):
            decision = decide(CALLER.traceparent(sampled=sampled), ratio, OTHER)
            assert decision.sampled is sampled
            assert (decision.trace_id, decision.parent_id) == (CALLER.trace_id, CALLER.span_id)


def test_a_caller_that_makes_no_sense_has_said_nothing() -> None:
    for header in ("", "nonsense"):
        assert decide(header, 1.0, OTHER) == decide("", 1.0, OTHER)
        assert decide(header, 1.0, OTHER).trace_id == OTHER.trace_id
        assert decide(header, 1.0, OTHER).parent_id is None


def test_of_those_who_say_nothing_so_many_are_sampled() -> None:
    ids = Ids(random.Random(2).getrandbits)
    drawn = [ids.root() for _ in range(20_000)]
    shares = {ratio: sum(decide("", ratio, each).sampled for each in drawn) / len(drawn) for ratio in (0.0, 0.1, 1.0)}
    assert (shares[0.0], shares[1.0]) == (0.0, 1.0)
    assert abs(shares[0.1] - 0.1) < 5 * (0.1 * 0.9 / len(drawn)) ** 0.5


def test_all_zero_is_never_drawn() -> None:
    ids = Ids(lambda _: 0)
    root = ids.root()
    assert int(root.trace_id, 16)
    assert int(ids.child(root).span_id, 16)

"""A round's phases lie in their round, in their order, and take as long as was recorded."""

import random
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from outrider.rounds.timing import RoundTiming
from outrider.tracing.rounds import round_spans
from outrider.tracing.spans import Ids, Span

IDS = Ids(random.Random(1).getrandbits)
PARENT = IDS.root()
NOW_S = 1_764_000_000.0
TOLERANCE_S = 1e-6  # what a float keeps of a moment of this century
SECONDS = st.floats(0.0, 5.0)


def timing_of(**phases: float) -> RoundTiming:
    return RoundTiming("token_ids", 4, 3, 4, **phases)  # type: ignore[arg-type]  # the phases


def lengths(spans: list[Span]) -> dict[str, float]:
    return {span.name: span.ended_at_s - span.began_at_s for span in spans}


def about(found: float, wanted: float) -> bool:
    return abs(found - wanted) < TOLERANCE_S


def test_a_round_with_a_draft_is_laid_out_by_its_phases() -> None:
    timing = timing_of(draft_s=0.2, link_s=0.1, queue_s=0.05, verify_s=0.3, total_s=0.7)
    passes = [IDS.root()]
    whole, *phases = round_spans(timing, PARENT, NOW_S, passes, IDS)
    assert (whole.name, whole.parent_id, whole.context.trace_id) == ("round", PARENT.span_id, PARENT.trace_id)
    assert [span.name for span in phases] == ["downlink", "draft", "uplink", "queue", "verify"]
    assert all(span.parent_id == whole.context.span_id for span in phases)
    found = lengths([whole, *phases])
    for name, wanted in {
        "round": 0.7,
        "downlink": 0.05,
        "draft": 0.2,
        "uplink": 0.05,
        "queue": 0.05,
        "verify": 0.3,
    }.items():
        assert about(found[name], wanted), name
    assert about(phases[0].began_at_s, NOW_S - 0.7)
    assert phases[-1].ended_at_s == whole.ended_at_s == NOW_S
    assert about(phases[3].began_at_s - phases[2].ended_at_s, timing.orchestration_s)
    assert [link.context for link in phases[-1].links] == passes
    assert not any(span.links for span in phases[:-1])


def test_a_round_without_a_device_has_no_link() -> None:
    timing = timing_of(draft_s=0.0, link_s=0.0, queue_s=0.1, verify_s=0.1, total_s=0.3)
    names = [span.name for span in round_spans(timing, PARENT, NOW_S, (), IDS)]
    assert names == ["round", "queue", "verify"]


def test_what_was_drafted_beside_other_rounds_came_before_them() -> None:
    timing = timing_of(draft_s=0.4, link_s=0.2, queue_s=0.0, verify_s=0.1, total_s=0.15)
    timing = replace(timing, beside_s=0.6)
    whole, *phases = round_spans(timing, PARENT, NOW_S, (), IDS)
    assert about(lengths([whole])["round"], 0.75)
    found = lengths(phases)
    assert about(found["downlink"] + found["draft"] + found["uplink"], 0.6)
    assert whole.attributes["outrider.beside_s"] == 0.6


@given(draft_s=SECONDS, link_s=SECONDS, queue_s=SECONDS, verify_s=SECONDS, total_s=SECONDS, beside_s=SECONDS)
def test_whatever_was_recorded_phases_are_in_order_within_their_round(
    draft_s: float, link_s: float, queue_s: float, verify_s: float, total_s: float, beside_s: float
) -> None:
    """Even where records do not add up: clocks are read by several."""
    timing = timing_of(draft_s=draft_s, link_s=link_s, queue_s=queue_s, verify_s=verify_s, total_s=total_s)
    whole, *phases = round_spans(replace(timing, beside_s=beside_s), PARENT, NOW_S, (), IDS)
    at_s = whole.began_at_s
    for span in phases:
        assert span.began_at_s >= at_s - TOLERANCE_S
        assert span.ended_at_s >= span.began_at_s - TOLERANCE_S
        at_s = span.ended_at_s
    assert at_s <= whole.ended_at_s


@given(draft_s=SECONDS, link_s=SECONDS, queue_s=SECONDS, verify_s=SECONDS, rest_s=SECONDS)
def test_where_records_add_up_every_phase_has_its_length(
    draft_s: float, link_s: float, queue_s: float, verify_s: float, rest_s: float
) -> None:
    total_s = draft_s + link_s + queue_s + verify_s + rest_s
    timing = timing_of(draft_s=draft_s, link_s=link_s, queue_s=queue_s, verify_s=verify_s, total_s=total_s)
    found = lengths(round_spans(timing, PARENT, NOW_S, (), IDS))
    assert about(found["queue"], queue_s)
    assert about(found["verify"], verify_s)
    assert about(found.get("draft", 0.0), draft_s)
    assert about(found.get("downlink", 0.0) + found.get("uplink", 0.0), link_s)

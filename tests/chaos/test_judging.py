"""The judge lets pass what may be, and nothing else: each fault of a stream is planted and found."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from tests.chaos.agents.asks import Agent, Api, Ask
from tests.chaos.judging import Struck, judged, judged_stream, longest_silence_s, overlapped
from tests.chaos.readiness import Loads, Span
from tests.chaos.report import quantile, rows, table
from tests.chaos.running import Outcome, silences
from tests.chaos.schedules import Fault, FaultKind, Reader, Schedule, Stream, StreamKind, Victim
from tests.chaos.told import End, Expected, Piece, Told

NAMES = ("a", "b", "c", "d")
OWN = Expected(NAMES, "abcd", "length")
GREEDY = Stream(0, StreamKind.GREEDY, 0, 4)
SEMANTIC = replace(GREEDY, kind=StreamKind.SEMANTIC)
POISONED = replace(GREEDY, kind=StreamKind.POISONED)
DRAFTER, INGRESS = Fault(FaultKind.KILL, Victim.DRAFTER), Fault(FaultKind.KILL, Victim.INGRESS)
VERIFIER = Fault(FaultKind.STOP, Victim.VERIFIER, lasts_s=2.0)


def whole(names: Sequence[str] = NAMES, **changes: object) -> Told:
    pieces = [Piece(float(i), 0, name, (name,)) for i, name in enumerate(names)]
    pieces[-1] = replace(pieces[-1], finish="length")
    told = Told(End.WHOLE, 0.0, 4.0, tuple(pieces), 200, usage={"completion_tokens": len(names)})
    return replace(told, **changes)  # type: ignore[arg-type]


def struck(fault: Fault, at_s: float = 1.0, proof: str = "gone") -> Struck:
    return Struck(fault, at_s, at_s + fault.lasts_s, proof)


def found(
    told: Told,
    stream: Stream = GREEDY,
    faults: Sequence[Struck] = (),
    foreign: Mapping[int, Sequence[int]] | None = None,
) -> list[str]:
    schedule = Schedule(0, (stream,), tuple(each.fault for each in faults))
    return judged(schedule, {0: told}, {0: (OWN,) * stream.n}, foreign or {}, faults)


def test_the_target_s_own_tokens_pass() -> None:
    assert found(whole()) == []


@pytest.mark.parametrize(
    ("names", "says"),
    [
        (("a", "x", "c", "d"), "has ('x', 'c', 'd') at token 1"),
        (("a", "b", "b", "c", "d"), "at token 2"),  # doubled
        (("a", "b", "c"), "3 of 4 tokens"),  # lost
        (("a", "b", "c", "d", "e"), "at token 4"),
    ],
)
def test_other_tokens_do_not(names: tuple[str, ...], says: str) -> None:
    assert any(says in line for line in found(whole(names)))
    assert found(whole(names), faults=[struck(VERIFIER), struck(INGRESS)]), "whatever happened"


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"behind": 1}, "events behind the last one"),
        ({"usage": {"completion_tokens": 5}}, "usage counts 5 tokens, and 4 came"),
        ({"pieces": whole().pieces[:-1]}, "ended 0 times"),
        ({"pieces": (*whole().pieces, replace(whole().pieces[-1], text="", names=()))}, "ended 2 times"),
    ],
)
def test_a_whole_stream_is_whole(changes: dict[str, object], says: str) -> None:
    assert any(says in line for line in found(replace(whole(), **changes)))  # type: ignore[arg-type]


def agent(api: Api) -> Stream:
    return replace(GREEDY, kind=StreamKind.AGENT, agent=Agent(api, Ask.CALL, stream=True))


def called(names: Sequence[str], **usage: int) -> Told:
    """A call, which ends by itself; what has no tokens' ids has its text."""
    pieces = tuple(Piece(1.0, 0, text, (text,) if text in names else ()) for text in NAMES)
    return whole(pieces=(*pieces[:-1], replace(pieces[-1], finish="stop")), usage=usage)


@pytest.mark.parametrize("api", [Api.CHATS, Api.RESPONSES])
@pytest.mark.parametrize("names", [NAMES[:3], ()])
def test_token_ids_of_agents_are_not_lost(api: Api, names: tuple[str, ...]) -> None:
    lost = called(names, completion_tokens=4)
    for expected in (NAMES, names):  # whether or not they were lost without a fault, too
        usage = {"completion_tokens": 4}
        assert judged_stream(agent(api), called(NAMES, **usage), [Expected(NAMES, "abcd", "stop", usage)], (), ()) == []
        assert judged_stream(agent(api), lost, [Expected(expected, "abcd", "stop", usage)], (), ())
    told_less = called(names, completion_tokens=len(names))
    assert judged_stream(agent(api), told_less, [Expected(NAMES, "abcd", "stop")], (), ())


def test_messages_tell_no_token_ids() -> None:
    usage = {"completion_tokens": 4}
    told = called((), **usage)
    assert judged_stream(agent(Api.MESSAGES), told, [Expected((), "abcd", "stop", usage)], (), ()) == []


def test_tokens_behind_a_stop_string_are_not_shown() -> None:
    told = called(NAMES, completion_tokens=5)
    expected = Expected((*NAMES, "e", "f"), "abcd", "stop")
    assert judged_stream(replace(GREEDY, stop_at=0.5), told, [expected], (), ()) == []
    assert judged_stream(GREEDY, replace(told, usage={"completion_tokens": 4}), [expected], (), ())


@pytest.mark.parametrize(
    ("end", "code", "faults", "passes"),
    [
        (End.FAILED, "unavailable", [struck(VERIFIER)], True),
        (End.FAILED, "internal_error", [struck(VERIFIER)], False),
        (End.FAILED, None, [struck(VERIFIER)], False),  # not in OpenAI's form
        (End.FAILED, "unavailable", [struck(DRAFTER)], False),  # a device is no excuse
        (End.FAILED, "unavailable", [], False),
        (End.FAILED, "unavailable", [struck(VERIFIER, at_s=5.0)], False),  # it came later
        (End.REFUSED, "busy", [struck(VERIFIER)], True),
        (End.BROKEN, None, [struck(INGRESS)], True),
        (End.BROKEN, None, [struck(VERIFIER)], False),
        (End.SILENT, None, [struck(VERIFIER), struck(INGRESS)], False),
        (End.HUNG_UP, None, [], False),  # nobody was to
    ],
)
def test_a_stream_may_fail_by_its_own_error_where_a_process_was_struck(
    end: End, code: str | None, faults: list[Struck], passes: bool
) -> None:
    part = whole(NAMES[:2], end=end, status=200, code=code)
    assert (found(part, faults=faults) == []) is passes


def test_what_came_of_a_stream_that_failed_is_the_target_s_own() -> None:
    part = whole(("a", "x"), end=End.FAILED, code="unavailable")
    assert any("at token 1" in line for line in found(part, faults=[struck(VERIFIER)]))


def test_one_that_hangs_up_may() -> None:
    leaver = replace(GREEDY, reader=Reader.HANGS_UP, hangs_up_after=2)
    assert found(whole(NAMES[:2], end=End.HUNG_UP), leaver) == []


def test_a_promise_may_be_refused() -> None:
    refused = whole(NAMES[:1], end=End.REFUSED, status=429, code="busy", pieces=())
    assert found(refused, replace(GREEDY, slo_classes=("speed_8",))) == []
    assert found(refused)


def test_a_poisoned_request_fails_alone() -> None:
    poisoned = whole(NAMES[:1], end=End.FAILED, code="internal_error", pieces=())
    assert found(poisoned, POISONED) == []
    assert found(whole(), POISONED), "it was not poisoned at all"
    assert found(replace(poisoned, end=End.SILENT), POISONED)
    assert found(poisoned), "others do not fail with it"
    busy = whole(NAMES[:1], end=End.REFUSED, status=429, code="busy", pieces=())
    assert found(busy, POISONED), "there was room"
    assert found(busy, POISONED, [struck(VERIFIER)]) == []


def test_a_semantic_stream_tells_what_is_not_the_target_s_own() -> None:
    told = whole(usage={"completion_tokens": 4, "outrider": {"overrides": [[1, 3]]}})
    assert found(told, SEMANTIC, foreign={0: [1, 3]}) == []
    assert found(told, SEMANTIC, foreign={0: [1]})
    assert found(told, SEMANTIC, foreign={0: [1, 2, 3]})


def test_a_fault_has_to_take_effect_unless_another_was_faster() -> None:
    assert found(whole(), faults=[struck(DRAFTER, proof="")]) == ["kill drafter: took no effect"]
    assert found(whole(), faults=[replace(struck(DRAFTER, proof=""), moot=True)]) == []
    assert found(whole(), faults=[Struck(DRAFTER)]) == [], "its turn did not come"


def test_a_fault_is_felt_behind_its_end_and_not_before_it_struck() -> None:
    early, late = struck(VERIFIER, 100.0), struck(DRAFTER, 130.0)
    assert overlapped(late, [early, late])
    assert not overlapped(early, [early, late])
    assert overlapped(early, [early, struck(DRAFTER, 101.5)])
    assert not overlapped(struck(DRAFTER, 163.0), [early])
    assert not overlapped(early, [early, Struck(DRAFTER)]), "was never done"


def test_the_longest_silence_is_of_waits_that_a_fault_may_have_caused() -> None:
    told = replace(whole(), pieces=tuple(Piece(at_s, 0, "", ()) for at_s in (1.0, 2.0, 9.0, 9.5)), ended_at_s=20.0)
    assert longest_silence_s(told, 0.5, 1.5) == 1.0
    assert longest_silence_s(told, 3.0, 8.0) == 7.0
    assert longest_silence_s(told, 9.2, 9.3) == 0.5
    assert longest_silence_s(told, 21.0, 25.0) is None
    assert silences({0: told}, [struck(DRAFTER, at_s=3.0)]) == {"kill drafter": [7.0]}
    assert silences({0: told}, []) == {"no fault": [10.5]}


def test_a_silence_while_no_verifier_is_ready_is_a_load() -> None:
    told, loads = replace(whole(), pieces=(Piece(1.0, 0, "", ()), Piece(9.0, 0, "", ())), ended_at_s=10.0), Loads()
    for at_s, ready in ((1.5, [True, False]), (2.0, [False, False]), (3.0, []), (8.0, [False]), (8.5, [False, True])):
        loads.heard(at_s, ready)
    assert loads.spans == [Span(2.0, 8.5)]
    assert longest_silence_s(told, 1.0, 2.0, loads.spans) == 1.5
    assert silences({0: told}, [struck(VERIFIER, at_s=3.0)], loads.spans) == {VERIFIER.name: [1.5]}
    loads.heard(9.5, [False])
    loads.ends(10.0)
    assert loads.spans[1:] == [Span(9.5, 10.0)]


def test_the_report_counts_what_was_tried_and_survived() -> None:
    schedule = Schedule(0, (GREEDY,), (DRAFTER, INGRESS))
    waits, served = {"kill drafter": [0.5, 2.0]}, {"kill drafter": [0.5, 1.0]}
    good = Outcome(schedule, (), {0: whole()}, (struck(DRAFTER), Struck(INGRESS)), 1.0, waits, served)
    bad = replace(good, wrong=("something",), struck=(struck(DRAFTER, proof=""),), silences_s={"kill drafter": [3.0]})
    drafter, ingress = rows([good, bad])
    assert (drafter.tried, drafter.effective, drafter.survived, drafter.streams) == (2, 1, 1, 3)
    assert (drafter.recovery_p50_s, drafter.recovery_p99_s, drafter.served_p99_s) == (2.0, 3.0, 1.0)
    assert (ingress.tried, ingress.late, ingress.recovery_p50_s) == (0, 1, None)
    assert len(table([drafter, ingress]).splitlines()) == 3


def test_quantiles_are_values_that_were_seen() -> None:
    assert quantile([], 0.5) is None
    assert [quantile([1.0, 2.0, 3.0, 4.0], share) for share in (0.0, 0.5, 0.51, 0.99)] == [1.0, 2.0, 3.0, 4.0]

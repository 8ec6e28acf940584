"""Whether what clients saw is what they may see, whatever was done to the service. Pure.

A greedy or seeded stream has the target's own tokens, or it failed with an error of its own; what had come until then
are the target's tokens too. A semantic one is the target's own everywhere but where it says that it is not. A
connection may break only where somebody who held it was struck.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from tests.chaos.agents.asks import Api
from tests.chaos.readiness import Span
from tests.chaos.schedules import Fault, Reader, Schedule, Stream, StreamKind, Victim
from tests.chaos.told import End, Expected, Told

_TOO_MANY = 429
_OWN_ERRORS = frozenset({"unavailable", "timeout", "busy"})  # of a service that lost a process, or has no room
_POISONED = frozenset({"internal_error", "unavailable"})
_HOLDERS = frozenset({Victim.INGRESS, Victim.PROXY, Victim.GCS, Victim.RAYLET, Victim.APPLICATION})
# Whose loss may cost a stream: nothing that a device does, or the fleet, or another request, is an excuse.
_COSTLY = frozenset({Victim.VERIFIER, Victim.COORDINATOR, *_HOLDERS})
_AFTERMATH_S = 60.0  # for which a fault may still be felt


@dataclass(frozen=True, slots=True)
class Struck:
    """What became of a fault.

    Attributes:
        at_s: when it was done; None: the streams had ended before its turn came.
        mended_at_s: when it was over, where it is one that is.
        proof: how it is known that it took effect; empty: it did not.
        moot: another fault had ended the process first.
    """

    fault: Fault
    at_s: float | None = None
    mended_at_s: float | None = None
    proof: str = ""
    moot: bool = False

    @property
    def ended_at_s(self) -> float:
        """When it was over."""
        return self.mended_at_s or self.at_s or 0.0


def judged(
    schedule: Schedule,
    told: Mapping[int, Told],
    expected: Mapping[int, Sequence[Expected]],
    foreign: Mapping[int, Sequence[int]],
    struck: Sequence[Struck],
) -> list[str]:
    """What is wrong, a line each.

    Args:
        schedule: that was run.
        told: by stream.
        expected: each choice of those streams that are the target's own.
        foreign: of semantic streams, the positions whose token is not the target's own behind those before it.
        struck: what became of the faults.
    """
    wrong = without_effect(struck)
    for stream in schedule.streams:
        if stream.number in told:
            own, other = expected.get(stream.number, ()), foreign.get(stream.number, ())
            wrong += judged_stream(stream, told[stream.number], own, other, struck)
        else:
            wrong.append(f"stream {stream.number}: nothing is known of it")
    return wrong


def without_effect(struck: Sequence[Struck]) -> list[str]:
    """Faults that were done and did nothing."""
    idle = [each for each in struck if each.at_s is not None and not each.proof and not each.moot]
    return [f"{each.fault.name}: took no effect" for each in idle]


def overlapped(each: Struck, struck: Sequence[Struck]) -> bool:
    """Whether another fault was felt at this one's time: who would have met it may have been down or waiting."""
    if each.at_s is None:
        return False
    return any(other is not each and _felt(other, each.at_s, each.ended_at_s) for other in struck)


def judged_stream(
    stream: Stream, told: Told, expected: Sequence[Expected], foreign: Sequence[int], struck: Sequence[Struck]
) -> list[str]:
    """What is wrong with one stream; as ``judged``."""
    faults = _ended(stream, told, struck)
    if stream.kind is StreamKind.SEMANTIC:
        faults += _semantic(told, foreign)
    elif stream.kind is not StreamKind.POISONED:
        for choice, own in enumerate(expected):
            faults += _own(stream, told, choice, own)
    return [f"stream {stream.number} ({stream.kind}): {fault}" for fault in faults]


def _ended(stream: Stream, told: Told, struck: Sequence[Struck]) -> list[str]:
    """Whether it may have ended so."""
    met = [each.fault for each in struck if _met(told, each)]
    how = f"{told.end} with {told.status} {told.code}: {told.detail:.200}"
    poisoned = stream.kind is StreamKind.POISONED
    if told.end is End.WHOLE and not poisoned:
        return _whole(stream, told)
    costly = any(fault.victim in _COSTLY for fault in met)
    fair = (
        (poisoned and told.end in (End.REFUSED, End.FAILED) and told.code in _POISONED)
        or (told.end is End.HUNG_UP and stream.reader is Reader.HANGS_UP and not poisoned)
        or (told.end is End.REFUSED and told.status == _TOO_MANY and bool(stream.slo_classes))  # nothing was promised
        or (told.end in (End.REFUSED, End.FAILED) and told.code in _OWN_ERRORS and costly)
        or (told.end is End.BROKEN and _breaks(met))
    )
    kind = "poisoned, and " if poisoned else ""
    return [] if fair else [f"{kind}ended {how}, and met {', '.join(fault.name for fault in met) or 'no fault'}"]


def _met(told: Told, struck: Struck) -> bool:
    return _felt(struck, told.began_at_s, told.ended_at_s)


def _felt(struck: Struck, from_s: float, until_s: float) -> bool:
    return struck.at_s is not None and from_s <= struck.ended_at_s + _AFTERMATH_S and until_s >= struck.at_s


def _breaks(met: Sequence[Fault]) -> bool:
    return any(fault.victim in _HOLDERS for fault in met)


def _whole(stream: Stream, told: Told) -> list[str]:
    wrong = []
    if told.behind:
        wrong.append(f"{told.behind} events behind the last one")
    ended = [len(told.finishes(choice)) for choice in range(stream.n)]
    wrong += [f"choice {choice} ended {times} times" for choice, times in enumerate(ended) if times != 1]
    counted = told.usage.get("completion_tokens")
    came = sum(len(told.names(choice)) for choice in range(stream.n))
    named = stream.agent is None or stream.agent.api is not Api.MESSAGES  # which tells no token ids
    if stream.stop_at is None and named and counted != came:
        wrong.append(f"usage counts {counted} tokens, and {came} came")
    return wrong


def _own(stream: Stream, told: Told, choice: int, expected: Expected) -> list[str]:
    """Whether a choice is the target's own, as far as it came."""
    names, text = told.names(choice), told.text(choice)
    wrong = []
    if names != expected.names[: len(names)]:
        both = zip(names, expected.names, strict=False)
        at = next((i for i, (own, other) in enumerate(both) if own != other), len(expected.names))
        says = expected.names[at : at + 4]
        wrong.append(f"choice {choice} has {names[at : at + 4]} at token {at}, where the target says {says}")
    if not expected.text.startswith(text):
        wrong.append(f"choice {choice} shows {text[-60:]!r}, which is no beginning of {expected.text[-60:]!r}")
    if told.end is End.WHOLE:
        if text != expected.text:
            wrong.append(f"choice {choice} shows {len(text)} of {len(expected.text)} characters")
        stopped = stream.stop_at is not None and expected.finish == "stop"  # then names behind its string are not shown
        if not stopped and len(names) != len(expected.names):
            wrong.append(f"choice {choice} has {len(names)} of {len(expected.names)} tokens")
        if told.finishes(choice) != [expected.finish]:
            wrong.append(f"choice {choice} ended for {told.finishes(choice)}, needs {expected.finish}")
        if expected.usage is not None and told.usage != expected.usage:
            wrong.append(f"usage is {told.usage}, needs {expected.usage}")
    return wrong


def _semantic(told: Told, foreign: Sequence[int]) -> list[str]:
    if told.end is not End.WHOLE:
        return []  # which tokens were let pass is told in the end
    overrides = told.usage.get("outrider", {}).get("overrides", [[]])[0]
    if list(foreign) != list(overrides):
        return [f"tokens at {list(foreign)} are not the target's own, and it tells of {list(overrides)}"]
    return []


def longest_silence_s(told: Told, at_s: float, until_s: float, loads: Sequence[Span] = ()) -> float | None:
    """The longest wait for a next event that was under way at some time in an interval; None without one.

    Waits that had begun before count from their beginning: what was on its way when a fault struck came before it.
    What of them lies in ``loads`` does not count.
    """
    moments = [told.began_at_s, *(piece.at_s for piece in told.pieces), told.ended_at_s]
    waits = [
        after - before - sum(load.overlap_s(before, after) for load in loads)
        for before, after in pairwise(moments)
        if after > at_s and before < until_s
    ]
    return max(waits, default=None)

"""Runs a schedule against a service: streams, faults at their tokens, and what became of both."""

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from threading import Condition

from tests.chaos.agents.undisturbed import Undisturbed
from tests.chaos.clients import body_of, told_by
from tests.chaos.devices import DEVICES
from tests.chaos.draining import running_gateways
from tests.chaos.injecting import Injector
from tests.chaos.judging import Struck, judged, longest_silence_s
from tests.chaos.left import Calm, left_behind
from tests.chaos.processes import becomes
from tests.chaos.readiness import Span, watched
from tests.chaos.references import Alone
from tests.chaos.schedules import Fault, Schedule, Stream, StreamKind
from tests.chaos.told import Expected, Told
from tests.cluster.served import Service

_WHOLE_WITHIN_S = 240.0
_FELT_S = 5.0  # after a fault, within which a wait that begins is counted to it


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a schedule.

    Attributes:
        wrong: a line each; empty if all is as it has to be.
        whole_again_s: from the end of the last stream until all processes were back; None if they were not.
        silences_s: by fault, the longest wait of each stream that met it.
        served_silences_s: the same, less the time in which no verifier was ready.
    """

    schedule: Schedule
    wrong: tuple[str, ...]
    told: Mapping[int, Told]
    struck: tuple[Struck, ...]
    whole_again_s: float | None
    silences_s: Mapping[str, Sequence[float]]
    served_silences_s: Mapping[str, Sequence[float]]


class _Progress:
    """How many tokens have come, for those who wait for so many."""

    def __init__(self, streams: int) -> None:
        self._tokens, self._open, self._changed = 0, streams, Condition()

    def came(self, tokens: int) -> None:
        with self._changed:
            self._tokens += tokens
            self._changed.notify_all()

    def ended(self) -> None:
        with self._changed:
            self._open -= 1
            self._changed.notify_all()

    def reached(self, tokens: int) -> bool:
        """Wait for so many; False if all streams end before."""
        with self._changed:
            self._changed.wait_for(lambda: self._tokens >= tokens or not self._open)
            return self._tokens >= tokens and self._open > 0


class Chaos:
    """Schedules on one service."""

    def __init__(self, service: Service, folder: Path, injector: Injector, alone: Alone) -> None:
        self._service, self._folder, self._injector, self._alone = service, folder, injector, alone
        self._form = service.config.structured.tool_format
        self._undisturbed = Undisturbed(service.url, self._form, alone)
        self.before: Calm | None = None  # nothing is known of what is left, until then

    def whole(self) -> bool:
        """Whether all drafters, devices, gateways and coordinators answer."""
        config = self._service.config
        return (
            len(self._service.drafters("ready")) == config.drafter_count + DEVICES
            and len(running_gateways(self._service)) == config.gateway.actors
            and len(self._service.coordinators()) == config.verifiers.count
        )

    def wait_whole(self) -> float | None:
        """Seconds until it is; None if it is not in time."""
        began_s = time.monotonic()
        return time.monotonic() - began_s if becomes(self.whole, _WHOLE_WITHIN_S) else None

    def run(self, schedule: Schedule) -> Outcome:
        """All of it."""
        known = self._expected(schedule)
        stops = {stream.number: self._alone.stop(stream) for stream in schedule.streams}
        progress = _Progress(len(schedule.streams))

        def client(stream: Stream) -> Told:
            try:
                time.sleep(stream.begins_s)
                body = body_of(stream, self._alone.prompt(stream), stops[stream.number], self._form)
                return told_by(self._service.url, stream, body, progress.came)
            finally:
                progress.ended()

        def strike(fault: Fault) -> Struck:
            return self._injector.strike(fault) if progress.reached(fault.after_tokens) else Struck(fault)

        with (
            watched(self._service) as loads,
            ThreadPoolExecutor(len(schedule.streams) + len(schedule.faults)) as pool,
        ):
            clients = {stream.number: pool.submit(client, stream) for stream in schedule.streams}
            strikes = [pool.submit(strike, fault) for fault in schedule.faults]
            told = {number: future.result() for number, future in clients.items()}
            struck = [future.result() for future in strikes]
        whole_again_s = self.wait_whole()
        foreign = {
            stream.number: self._alone.foreign(stream, told[stream.number])
            for stream in schedule.streams
            if stream.kind is StreamKind.SEMANTIC
        }
        wrong = judged(schedule, told, known, foreign, struck)
        if whole_again_s is None:
            wrong.append(f"not whole again within {_WHOLE_WITHIN_S:g} s: {self._service.get('/status')}")
        elif self.before is not None:
            wrong += left_behind(self._service, self._folder, self.before, schedule)
        return Outcome(
            schedule,
            tuple(wrong),
            told,
            tuple(struck),
            whole_again_s,
            silences(told, struck),
            silences(told, struck, loads.spans),
        )

    def _expected(self, schedule: Schedule) -> dict[int, tuple[Expected, ...]]:
        own = (StreamKind.GREEDY, StreamKind.SEEDED)
        alone = {stream.number: self._alone.expected(stream) for stream in schedule.streams if stream.kind in own}
        return alone | self._undisturbed.expected([stream for stream in schedule.streams if stream.agent is not None])


def silences(told: Mapping[int, Told], struck: Sequence[Struck], loads: Sequence[Span] = ()) -> dict[str, list[float]]:
    """By fault, the longest wait of each stream that was under way, less ``loads``; without faults, by ``no fault``."""
    found: dict[str, list[float]] = {}
    for each in struck:
        if each.at_s is not None:
            until_s = each.ended_at_s + _FELT_S
            waits = (longest_silence_s(one, each.at_s, until_s, loads) for one in told.values())
            found.setdefault(each.fault.name, []).extend(wait for wait in waits if wait is not None)
    if not struck:
        calm = (longest_silence_s(one, one.began_at_s, one.ended_at_s, loads) for one in told.values())
        found["no fault"] = [wait for wait in calm if wait is not None]
    return found

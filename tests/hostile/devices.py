"""Untrusted devices whose replies are huge, deep, late, missing or of another kind; fleet and others go on."""

import asyncio
import contextlib
import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.hostile.cases import ANSWER_WITHIN_S, MODEL, Case, Target
from tests.hostile.promises import Family, Figure
from tests.hostile.raw_http import SILENT, Answer, ask, head_of

_READY_WITHIN_S = 90.0
_JOINS = ("card", "prove")  # asked of a device that joins: it is killed, so that it joins again
_LASTS_S = {"held": 13.0, "card": 20.0, "prove": 20.0}  # held: two sweeps of the fleet
_ELSE_S = 9.0
_BEHIND_S = 5.0  # a lie, at least
_ASK_EVERY_S = 0.2


@dataclass(frozen=True, slots=True)
class Lie:
    """How which method is answered.

    Attributes:
        size: names, bytes or levels; of a late reply milliseconds.
    """

    method: str
    kind: str
    size: int = 0

    @property
    def name(self) -> str:
        """As reports have it."""
        return f"{self.method}: {self.kind}{f', {self.size:,}' if self.size else ''}"


_MIB = 2**20
LIES = (
    Lie("held", "names", 100_000),
    Lie("held", "names", 1_000_000),
    Lie("held", "one long name", 16 * _MIB),
    Lie("held", "long names", 32 * _MIB),
    Lie("held", "numbers for names", 4 * _MIB),
    Lie("held", "lists in lists", 200_000),
    Lie("held", "zeros", 64 * _MIB),
    Lie("held", "empty"),
    Lie("held", "another kind", 48 * _MIB),
    Lie("held", "no bytes", 100_000),
    Lie("held", "late", 4500),
    Lie("held", "hangs"),
    Lie("exchange", "zeros", 48 * _MIB),
    Lie("exchange", "lengthened", 16 * _MIB),
    Lie("exchange", "kind 255", 16 * _MIB),
    Lie("exchange", "late", 4500),
    Lie("exchange", "hangs"),
    Lie("open", "a long failure", 32 * _MIB),
    Lie("open", "zeros", 16 * _MIB),
    Lie("open", "hangs"),
    Lie("close", "zeros", 16 * _MIB),
    Lie("probe", "lengthened", 64 * _MIB),
    Lie("card", "a long name of its model", 16 * _MIB),
    Lie("card", "many ends of text", 1_000_000),
    Lie("card", "a context of 10^18"),
    Lie("card", "zeros", 64 * _MIB),
    Lie("card", "hangs"),
    Lie("prove", "zeros", 64 * _MIB),
    Lie("prove", "late", 4500),
)
_SHORT = frozenset({Lie("held", "names", 100_000).name})


def cases() -> Iterator[Case]:
    """One lie each, by devices in turn."""
    for number, lie in enumerate(LIES):
        yield Case(Family.DEVICES, lie.name, _told(lie, number), lie.name in _SHORT, may_fail=True)


def _told(lie: Lie, number: int) -> Callable[[Target], Any]:
    async def drive(target: Target) -> Answer:
        group = f"visitor{number % target.service.layout.devices}"
        folder = target.service.layout.folder
        if not await _ready(target, group):
            target.wrong.append(f"{group} did not become ready: nothing was driven")
            return Answer(0, SILENT, 0.0)
        lied = folder / "lies"
        lied.unlink(missing_ok=True)
        told = {"actor": f"drafter-{group}-0", "method": lie.method, "kind": lie.kind, "size": lie.size}
        (folder / "device.new").write_text(json.dumps(told))
        (folder / "device.new").replace(folder / "device.json")
        try:
            if lie.method in _JOINS:
                _kill(target, group)
            lasts_s = _LASTS_S.get(lie.method, _ELSE_S)
            answer, target.figures[Figure.FLEET_S] = await _watch(target, group, lasts_s, lied)
        finally:
            (folder / "device.json").unlink()
        if not _exists(lied):
            target.wrong.append(f"{group} was never asked for {lie.method}: nothing was driven")
        return answer

    return drive


def _exists(path: Path) -> bool:
    return path.exists()


def _kill(target: Target, group: str) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(target.service.drafter_pid(group), signal.SIGKILL)


async def _ready(target: Target, group: str) -> bool:
    give_up_at_s = time.monotonic() + _READY_WITHIN_S
    while time.monotonic() < give_up_at_s:
        answer = await asyncio.to_thread(target.service.get, "/status")
        known = answer.json().get("drafters", []) if answer is not None and answer.is_success else []
        if any(drafter["state"] == "ready" and drafter["name"] == f"drafter-{group}-0" for drafter in known):
            return True
        await asyncio.sleep(0.5)
    return False


async def _watch(target: Target, group: str, lasts_s: float, lied: Path) -> tuple[Answer, float]:
    """Have it draft for whoever is hostile, and ask the fleet meanwhile; the fleet's longest silence.

    It lasts until the device was asked for what it lies about, which on a busy machine takes one that joins a minute.
    """
    began_s = time.monotonic()
    until_s = began_s + _READY_WITHIN_S
    body = json.dumps(
        {"model": MODEL, "prompt": "One, two, ", "max_tokens": 60, "ignore_eos": True, "temperature": 0}
        | {"outrider": {"window": 4, "lookup": False, "drafters": [group]}}
    ).encode()

    async def drafted() -> None:
        while True:
            await ask(target.port, [head_of("/v1/completions", target.key, len(body)), body], ANSWER_WITHIN_S)

    drafting = [asyncio.ensure_future(drafted()) for _ in range(2)]
    answer, longest_s = Answer(0, SILENT, 0.0), 0.0
    try:
        while (now_s := time.monotonic()) < until_s:
            if _exists(lied):
                until_s = min(until_s, max(began_s + lasts_s, now_s + _BEHIND_S))
            head = head_of("/status", target.key, None, "GET", ["Connection: close"])
            answer = await ask(target.port, [head], ANSWER_WITHIN_S)
            longest_s = max(longest_s, answer.answered_s)
            await asyncio.sleep(_ASK_EVERY_S)
    finally:
        for each in drafting:
            each.cancel()
        await asyncio.gather(*drafting, return_exceptions=True)
    return answer, longest_s

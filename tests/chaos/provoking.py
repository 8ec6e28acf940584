"""Hostile clients beside a soak: cases of ``tests.hostile`` that need only the service's address, one after another."""

import asyncio
import threading
import time
from collections import Counter
from random import Random

import httpx

from tests.cluster.served import PLAIN
from tests.hostile import bodies, connections, floods, grammars, heads
from tests.hostile.cases import Case, Target, driven
from tests.hostile.promises import Family

_WITHIN_S = 60.0


class HostileClients:
    """Each draws a family, then a case of it. They come from an address of their own."""

    def __init__(self, url: str, seed: int) -> None:
        """Against the service at ``url``."""
        document = httpx.get(f"{url}/openapi.json", timeout=_WITHIN_S, verify=PLAIN).json()
        self._port, self._rng = httpx.URL(url).port, Random(f"hostile {seed}")
        self._cases: dict[Family, list[Case]] = {}
        for cases in (bodies.cases(document), grammars.cases(), heads.cases(), connections.cases(), floods.cases()):
            for case in cases:
                self._cases.setdefault(case.family, []).append(case)
        self._ends = Counter[str]()

    def run(self, over: threading.Event) -> None:
        """Drive cases until it is over."""
        assert self._port is not None, "a service listens on a port"
        while not over.is_set():
            case = self._rng.choice(self._cases[self._rng.choice(list(self._cases))])
            began_s = time.monotonic()
            answer = asyncio.run(driven(case, Target(self._port)))
            self._ends[str(answer.status or answer.code)] += 1
            print(
                f"hostile: {case.name}: {answer.status or answer.code} in {time.monotonic() - began_s:.1f} s",
                flush=True,
            )

    @property
    def ends(self) -> dict[str, int]:
        """How often each status, or ``closed`` or ``silent``, was the worst answer of a case."""
        return dict(sorted(self._ends.items()))

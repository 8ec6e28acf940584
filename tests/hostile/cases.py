"""A hostile case, and what it may use."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field

from tests.hostile.promises import Family, Figure
from tests.hostile.raw_http import SILENT, Answer, ask, head_of
from tests.hostile.service import KEYS, Service

MODEL = "smollm2-135m-instruct"
BODY_BYTES = 4 * 2**20 - 4096  # just below what an ingress takes
TEXT_BYTES = 64 * 1024 - 512  # of a grammar, likewise
ANSWER_WITHIN_S = 40.0  # then a request counts as unanswered
_CASE_WITHIN_S = 150.0


@dataclass(slots=True)
class Target:
    """The service under test, and what a case finds out beside the measurements that are the same for all.

    Attributes:
        port: of the service on this machine.
        key: of whoever is hostile.
        wrong: a line for each thing that is not as it has to be.
    """

    port: int
    under_test: Service | None = None  # None: another, of which nothing but its port is known
    key: str = KEYS["mallory"]
    figures: dict[Figure, float] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)
    counted: int = 0  # requests that were answered, where a case sends as many as it can

    @property
    def service(self) -> Service:
        """The one that was started for this."""
        assert self.under_test is not None, "only a case of devices or files needs more than the port"
        return self.under_test

    async def post(self, path: str, parts: Iterable[bytes], length: int) -> Answer:
        """A body of ``length`` bytes."""
        return await ask(self.port, [head_of(path, self.key, length), *parts], ANSWER_WITHIN_S)


@dataclass(frozen=True, slots=True)
class Case:
    """What is sent or done. ``drive`` returns the worst answer.

    Attributes:
        name: unique, with what is hostile about it.
        short: part of the short form.
        may_fail: whether an answer of 5xx, or none, is as it has to be.
        likely: whether it is to be tried before others, where there is no time for all.
    """

    family: Family
    name: str
    drive: Callable[[Target], Awaitable[Answer]]
    short: bool = False
    may_fail: bool = False
    likely: bool = True


async def driven(case: Case, target: Target) -> Answer:
    """The worst answer, or that there was none in time."""
    try:
        async with asyncio.timeout(_CASE_WITHIN_S):
            return await case.drive(target)
    except TimeoutError:
        return Answer(0, SILENT, _CASE_WITHIN_S)


def worst(answers: Iterable[Answer]) -> Answer:
    """The one that tells most: failed rather than refused, the slowest of these."""
    return max(answers, key=lambda answer: (answer.status == 0 or answer.status >= 500, answer.answered_s))

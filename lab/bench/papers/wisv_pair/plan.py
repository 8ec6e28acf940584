"""Requests to a service: each method at each window on each link answers the same tasks in turn."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from lab.bench.harness.samples import rotated
from lab.training.tasks.task import Task
from outrider.link.profiles import PROFILES

LINKS = {
    "500mbps-5ms": PROFILES["good_500mbps_5ms"],
    "500mbps-50ms": PROFILES["good_500mbps_50ms"],
    "20mbps-5ms": PROFILES["poor_20mbps_5ms"],
    "20mbps-50ms": PROFILES["poor_20mbps_50ms"],
    "wifi-2m": PROFILES["wifi_2m"],
    "wifi-20m": PROFILES["wifi_20m"],
}
WINDOWS = (2, 4, 10, 16, 24, 32, 64)


@dataclass(frozen=True, slots=True)
class Method:
    """How a request is answered.

    Attributes:
        options: of the request, without its window.
        free: the service chooses the window.
        few: too slow for all tasks.
    """

    name: str
    options: Mapping[str, object] = field(default_factory=dict)
    temperature: float = 0.0
    free: bool = False
    few: bool = False


_SEMANTIC: Mapping[str, object] = {"verification": "semantic"}
STRICT = Method("SD greedy", {"protocol": "token_ids"})
REJECT = Method("SD reject", {"protocol": "dsd"}, temperature=1.0, few=True)
FULL = Method("WISV full", {**_SEMANTIC, "protocol": "wisv_full"})
SELECTIVE = Method("WISV selective", {**_SEMANTIC, "protocol": "wisv_selective"})
FULL_FREE = Method("WISV full, K free", FULL.options, free=True)
SELECTIVE_FREE = Method("WISV selective, K free", SELECTIVE.options, free=True)
CHOSEN = Method("own choice", _SEMANTIC, free=True)
METHODS = {method.name: method for method in (STRICT, REJECT, FULL, SELECTIVE, FULL_FREE, SELECTIVE_FREE, CHOSEN)}


@dataclass(frozen=True, slots=True)
class Turn:
    link: str
    task: Task
    method: Method
    window: int | None  # None: free

    @property
    def options(self) -> dict[str, object]:
        """The request's ``outrider``."""
        return {**self.method.options} | ({} if self.window is None else {"window": self.window})


def turns(
    link: str, tasks: Sequence[Task], few: int, methods: Sequence[Method], windows: Sequence[int]
) -> Iterator[Turn]:
    """Every method at every window answers a task before any answers the next one, in rotated order.

    Args:
        link: of ``LINKS``.
        tasks: for all but slow methods, which answer the first ``few``.
        few: see ``tasks``.
        methods: to compare.
        windows: for those whose window is not free.
    """
    kinds = [(method, window) for method in methods for window in ((None,) if method.free else windows)]
    for number, task in enumerate(tasks):
        for method, window in rotated(kinds, number):
            if number < few or not method.few:
                yield Turn(link, task, method, window)


def spread(tasks: Sequence[Task], count: int) -> list[Task]:
    """Select ``count`` tasks of as many kinds as possible: the first of each kind, then the second of each."""
    seen: dict[str, int] = {}
    places = []
    for number, task in enumerate(tasks):
        seen[task.kind] = seen.get(task.kind, 0) + 1
        places.append((seen[task.kind], number))
    return [tasks[number] for _, number in sorted(places)[:count]]

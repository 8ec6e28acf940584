"""Plan of ``outrider bench protocols``: cells of links and temperatures, and methods in each of them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

from lab.bench.harness.samples import rotated
from outrider.contracts.drafting import DraftPlan
from outrider.contracts.errors import ParameterError
from outrider.link.profiles import LinkProfile
from outrider.protocols.registry import PROTOCOLS

RATES_MBPS, RTTS_MS, TEMPERATURES = (1.0, 20.0, 500.0), (0.0, 50.0), (0.0, 1.0)
NO_DRAFT, CHEAPEST = "no_draft", "cheapest"
FIXED = (NO_DRAFT, *(name for name in PROTOCOLS if not PROTOCOLS[name].judged))  # lossless methods that choose nothing
METHODS = (*FIXED, CHEAPEST)


@dataclass(frozen=True, slots=True)
class Cell:
    rate_mbps: float
    rtt_ms: float
    temperature: float

    @property
    def profile(self) -> LinkProfile:
        return LinkProfile(self.rate_mbps * 1e6, self.rate_mbps * 1e6, self.rtt_ms / 1e3)

    @property
    def greedy(self) -> bool:
        return self.temperature == 0.0

    @property
    def name(self) -> str:
        """Name such as ``20mbps-50ms-t1``, for ``--cells``."""
        return f"{self.rate_mbps:g}mbps-{self.rtt_ms:g}ms-t{self.temperature:g}"


def cells(only: Sequence[str] = ()) -> tuple[Cell, ...]:
    """The cells to measure: all, or those whose name begins with one of ``only``.

    Slow links come first: a coordinator's link estimate is updated by traffic, and faster when the rate rises.
    """
    every = tuple(Cell(*of) for of in product(RATES_MBPS, RTTS_MS, TEMPERATURES))
    strangers = [prefix for prefix in only if not any(cell.name.startswith(prefix) for cell in every)]
    if strangers:
        raise ParameterError("--cells", f"beginnings of {', '.join(cell.name for cell in every)}", strangers[0])
    return tuple(cell for cell in every if not only or cell.name.startswith(tuple(only)))


def options(method: str, plan: DraftPlan | None = None) -> dict[str, object]:
    """``outrider`` options of a request by this method; without a ``plan`` the service chooses window and tree."""
    if method == NO_DRAFT:
        return {"window": 0}
    if method == CHEAPEST:
        return {}
    fixed: dict[str, object] = {} if plan is None else {"window": plan.window}
    shape: dict[str, object] = {} if plan is None or not plan.expansion else {"expansion": list(plan.expansion)}
    return {"protocol": method, **fixed, **shape}


@dataclass(frozen=True, slots=True)
class Turn:
    repeat: int
    prompt: int
    method: str


def turns(repeats: int, prompts: int, methods: Sequence[str] = METHODS) -> Iterator[Turn]:
    """Every method answers a prompt before any answers the next one, in rotated order."""
    for number, (repeat, prompt) in enumerate(product(range(repeats), range(prompts))):
        for method in rotated(methods, number):
            yield Turn(repeat, prompt, method)

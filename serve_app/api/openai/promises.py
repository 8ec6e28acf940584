"""SLOs of a request: the classes it names, and its headers.

``x-slo-tpot-ms`` asks for a speed as time per token. It never exceeds what a class promises: the response gets the
slowest class that is fast enough, or the first class the request names, with the header's speed.
``x-llm-d-inference-fairness-id`` divides the share of the request's account, as ``user`` does.
``x-slo-ttft-ms`` bounds the time until the response is started: after that it is refused or lowered.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from hashlib import blake2b
from math import isfinite

from outrider.contracts.errors import ParameterError
from outrider.contracts.slo import SloClass, slo_class_named
from serve_app.answers import ServiceTier
from serve_app.api.http_errors import NotAllowedError
from serve_app.api.service import RequestLimits

FIRST_TOKEN_HEADER, TOKEN_HEADER = "x-slo-ttft-ms", "x-slo-tpot-ms"
NEWER_NAMES = {FIRST_TOKEN_HEADER: "x-llm-d-slo-ttft-ms", TOKEN_HEADER: "x-llm-d-slo-tpot-ms"}  # llm-d's since 0.8
OBJECTIVE_HEADER, FAIRNESS_HEADER = "x-llm-d-inference-objective", "x-llm-d-inference-fairness-id"
MOST_SHARES = 64  # of an account: as many flows are told apart, whatever number of ids is sent
_MOST_ID_CHARS = 256
LONGEST_MS = 600_000.0


@dataclass(frozen=True, slots=True)
class Promises:
    """SLOs of one request: its classes in order of preference, and the time within which it has to be started."""

    classes: tuple[SloClass, ...]
    first_token_s: float | None = None
    fairness: str = ""  # share of its account that it is charged to; "": not said


def read_promises(
    named: str | list[str] | None, headers: Mapping[str, str], limits: RequestLimits, tier: str | None = None
) -> Promises:
    """Read a request's classes (``outrider.slo_class``), headers (names in lower case) and ``service_tier``.

    Raises:
        NotAllowedError: the objective stands for a class that this key may not ask for.
        ParameterError: two of these ask for a class; an unknown or repeated class, or a header that is not a number
            or exceeds every class.
    """
    names = [named] if isinstance(named, str) else named
    if names is not None and (not names or len(set(names)) < len(names)):
        raise ParameterError(
            "outrider.slo_class", "a class, or a list of different ones, the preferred one first", named
        )
    classes = tuple(slo_class_named(name, limits.slo_classes) for name in names or ())
    if classes and tier in ("flex", "priority"):
        raise ParameterError("service_tier", "to be left out, auto or default beside outrider.slo_class", tier)
    classes = classes or _of_tier(tier, limits) or _of_objective(headers, limits)
    token_ms = _milliseconds(headers, TOKEN_HEADER, 0.0)
    if token_ms is not None:
        classes = _as_fast_as(token_ms, classes, limits)
    first_ms = _milliseconds(headers, FIRST_TOKEN_HEADER, limits.least_first_token_ms)
    first_s = None if first_ms is None else first_ms / 1e3
    return Promises(classes or limits.slo_classes[:1], first_s, _share(headers.get(FAIRNESS_HEADER, "")))


def _share(fairness_id: str) -> str:
    """One of ``MOST_SHARES`` names: an account's share is divided among these, and never becomes more."""
    if len(fairness_id) > _MOST_ID_CHARS:
        raise ParameterError(FAIRNESS_HEADER, f"a text of at most {_MOST_ID_CHARS} characters", len(fairness_id))
    digest = blake2b(fairness_id.encode(errors="surrogateescape"), digest_size=8).digest()
    return f"flow {int.from_bytes(digest, 'big') % MOST_SHARES}" if fairness_id else ""


def _of_tier(tier: str | None, limits: RequestLimits) -> tuple[SloClass, ...]:
    """Classes of OpenAI's tiers: the slowest, or from the fastest on down."""
    by_speed = sorted(limits.slo_classes, key=lambda slo: -slo.tokens_per_s)
    return {"flex": tuple(by_speed[-1:]), "priority": tuple(by_speed)}.get(tier or "", ())


def _of_objective(headers: Mapping[str, str], limits: RequestLimits) -> tuple[SloClass, ...]:
    """The class that the configuration has for the objective; one that it does not know says nothing, as in llm-d."""
    name = limits.objectives.get(headers.get(OBJECTIVE_HEADER, ""))
    if name is None:
        return ()
    found = tuple(slo for slo in limits.slo_classes if slo.name == name)
    if not found:
        raise NotAllowedError(OBJECTIVE_HEADER, f"{OBJECTIVE_HEADER} needs an objective that this key may ask for")
    return found


def granted_tier(tier: str | None, granted: Iterable[SloClass], limits: RequestLimits) -> ServiceTier | None:
    """``service_tier`` of an answer: ``priority`` only if all of it got the fastest class."""
    if tier != "priority":
        return None if tier is None else "flex" if tier == "flex" else "default"
    fastest = max(slo.tokens_per_s for slo in limits.slo_classes)
    return "priority" if all(slo.tokens_per_s >= fastest for slo in granted) else "default"


def _as_fast_as(token_ms: float, classes: tuple[SloClass, ...], limits: RequestLimits) -> tuple[SloClass, ...]:
    """The classes, the first one with the header's speed."""
    speed = 1e3 / token_ms
    offered = classes[:1] or sorted(limits.slo_classes, key=lambda slo: slo.tokens_per_s)
    for slo in offered:
        if slo.tokens_per_s >= speed:
            return (replace(slo, tokens_per_s=speed), *classes[1:])
    fastest = offered[-1]
    if not fastest.tokens_per_s:
        raise ParameterError(TOKEN_HEADER, f"to be left out beside {fastest.name}, which promises no speed", token_ms)
    least_ms = 1e3 / fastest.tokens_per_s
    raise ParameterError(TOKEN_HEADER, f"at least {least_ms:g}, what {fastest.name} promises", token_ms)


def _milliseconds(headers: Mapping[str, str], name: str, least: float) -> float | None:
    newer = NEWER_NAMES[name]
    text = headers.get(newer, headers.get(name))
    if text is None:
        return None
    if headers.get(name, text) != text:
        raise ParameterError(newer, f"to equal {name}, or be sent alone", text[:64])
    name = newer if newer in headers else name
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not isfinite(value) or value <= 0.0 or not least <= value <= LONGEST_MS:
        needed = f"at least {least:g}" if least else "above 0"
        raise ParameterError(name, f"a number of milliseconds, {needed} and at most {LONGEST_MS:g}", text[:64])
    return value

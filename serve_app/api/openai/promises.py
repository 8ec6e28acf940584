"""SLOs of a request: the classes it names, and its headers.

``x-slo-tpot-ms`` asks for a speed as time per token. It never exceeds what a class promises: the response gets the
slowest class that is fast enough, or the first class the request names, with the header's speed.
``x-slo-ttft-ms`` bounds the time until the response is started: after that it is refused or lowered.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import isfinite

from outrider.contracts.errors import ParameterError
from outrider.contracts.slo import SloClass, slo_class_named
from serve_app.api.service import RequestLimits

FIRST_TOKEN_HEADER, TOKEN_HEADER = "x-slo-ttft-ms", "x-slo-tpot-ms"
LONGEST_MS = 600_000.0


@dataclass(frozen=True, slots=True)
class Promises:
    """SLOs of one request: its classes in order of preference, and the time within which it has to be started."""

    classes: tuple[SloClass, ...]
    first_token_s: float | None = None


def read_promises(named: str | list[str] | None, headers: Mapping[str, str], limits: RequestLimits) -> Promises:
    """Read a request's classes and headers.

    Args:
        named: ``outrider.slo_class``, if given.
        headers: of the HTTP request, their names in lower case.
        limits: of the request.

    Raises:
        ParameterError: an unknown or repeated class, or a header that is not a number or exceeds every class.
    """
    names = [named] if isinstance(named, str) else named
    if names is not None and (not names or len(set(names)) < len(names)):
        raise ParameterError(
            "outrider.slo_class", "a class, or a list of different ones, the preferred one first", named
        )
    classes = tuple(slo_class_named(name, limits.slo_classes) for name in names or ())
    token_ms = _milliseconds(headers, TOKEN_HEADER, 0.0)
    if token_ms is not None:
        classes = _as_fast_as(token_ms, classes, limits)
    first_ms = _milliseconds(headers, FIRST_TOKEN_HEADER, limits.least_first_token_ms)
    return Promises(classes or limits.slo_classes[:1], None if first_ms is None else first_ms / 1e3)


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
    text = headers.get(name)
    if text is None:
        return None
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not isfinite(value) or value <= 0.0 or not least <= value <= LONGEST_MS:
        needed = f"at least {least:g}" if least else "above 0"
        raise ParameterError(name, f"a number of milliseconds, {needed} and at most {LONGEST_MS:g}", text[:64])
    return value

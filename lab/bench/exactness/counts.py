"""Counts of a campaign. Pure."""

from dataclasses import dataclass, fields
from functools import reduce
from operator import add
from typing import Any

_SHOWN = 20


@dataclass(frozen=True, slots=True)
class Difference:
    """A token that differs from the reference's; the first of its response, after which nothing is compared."""

    request: str
    position: int  # of the output
    expected: int
    found: int


@dataclass(frozen=True, slots=True)
class Counts:
    requests: int = 0
    reference_tokens: int = 0
    tokens: int = 0  # compared with the reference
    differences: int = 0
    logprobs: int = 0  # numbers compared with the reference
    logprob_bits: int = 0  # those of them that differ in a bit
    passes: int = 0
    blocks: int = 0  # in these passes
    widest: int = 0  # blocks of one pass
    drafts: int = 0
    trees: int = 0  # among the drafts
    drafted_tokens: int = 0
    accepted_tokens: int = 0
    engines_lost: int = 0
    generations_lost: int = 0
    evictions: int = 0
    found: tuple[Difference, ...] = ()

    def __add__(self, other: "Counts") -> "Counts":
        values: dict[str, Any] = {
            field.name: getattr(self, field.name) + getattr(other, field.name) for field in fields(Counts)
        }
        widest, found = max(self.widest, other.widest), values["found"][:_SHOWN]
        return Counts(**{**values, "widest": widest, "found": found})


def total(parts: "list[Counts]") -> Counts:
    return reduce(add, parts, Counts())


def faults(counts: Counts, *, bits_promised: bool) -> list[str]:
    """Violations; ``bits_promised``: whether log-probabilities have to be the same to the last bit."""
    told = []
    if not counts.tokens:
        told.append("no token was compared")
    if counts.differences:
        told.append(f"{counts.differences} responses differ from the engine's alone")
    if bits_promised and counts.logprob_bits:
        told.append(f"{counts.logprob_bits} log-probabilities differ in their bits")
    return told

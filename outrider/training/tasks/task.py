"""A prompt whose answer has parts that can be checked; its score is the share of parts that are right."""

import re
from dataclasses import dataclass
from enum import StrEnum

from outrider.contracts.errors import ParameterError

_NUMBER = re.compile(r"-?\d+(?:,\d{3})*(?:\.\d+)?")


class Check(StrEnum):
    """How an answer is compared with the parts it must have."""

    IN_ORDER = "in_order"  # each part occurs, behind the one found before
    ANYWHERE = "anywhere"  # each part occurs
    LAST_NUMBER = "last_number"  # the one part is the last number of the answer (GSM8K)


@dataclass(frozen=True, slots=True)
class Task:
    """One prompt.

    Attributes:
        key: unique; which split a task belongs to depends on it alone.
        kind: of task, for reports.
        prompt: one user message.
        parts: what a right answer has, at least one; compared without regard to case and to runs of blanks.
    """

    key: str
    kind: str
    prompt: str
    parts: tuple[str, ...]
    check: Check

    def __post_init__(self) -> None:
        """Refuse a task that nothing can be wrong about."""
        if not self.parts or not all(part.strip() for part in self.parts):
            raise ParameterError("parts", "at least one, none of them empty", f"{self.parts} of task {self.key}")

    def score(self, answer: str) -> float:
        """The share of parts that are right, 0..1."""
        if self.check is Check.LAST_NUMBER:
            numbers = _NUMBER.findall(answer)
            return float(bool(numbers) and _value(numbers[-1]) == _value(self.parts[0]))
        text, at, right = _plain(answer), 0, 0
        for part in map(_plain, self.parts):
            found = text.find(part, at)
            if found >= 0:
                right += 1
                at = found + len(part) if self.check is Check.IN_ORDER else 0
        return right / len(self.parts)


def _plain(text: str) -> str:
    return " ".join(text.lower().split())


def _value(number: str) -> float:
    return float(number.replace(",", ""))

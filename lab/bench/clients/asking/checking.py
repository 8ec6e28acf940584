"""Runs checks one by one and writes their outcomes, one JSON object a line.

Runs where Outrider is not installed: imports only the standard library.
"""

import argparse
import json
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

MOST_TOLD_CHARS = 300
ROWS = "rows.jsonl"  # outcomes that a script writes


class UnexpectedError(Exception):
    """The service did not do what the client's users rely on."""


@dataclass(frozen=True, slots=True)
class Asked:
    """The service under test."""

    url: str  # ends in /v1
    model: str
    key: str
    single_key: str  # a key that is limited to one response at a time; "": there is none
    tokenizer: str = ""  # folder of the model's tokenizer
    reports: Path = Path()  # folder for the client's own output


# Where keys are: command lines are readable by everybody on a machine.
KEY, SINGLE_KEY = "OUTRIDER_API_KEY", "OUTRIDER_SINGLE_KEY"


@dataclass(frozen=True, slots=True)
class Row:
    """Outcome of one check of a client."""

    client: str
    version: str
    done: str
    outcome: str  # passed, failed, or not tried
    told: str = ""  # the reason, or the finding


class NotTriedError(Exception):
    """A check needs something that the service was not started with."""


Check = Callable[[Asked], str | None]  # its result is reported


def expect(condition: object, needed: str, found: object) -> None:
    """Raise unless a condition holds.

    Raises:
        UnexpectedError: it does not.
    """
    if not condition:
        raise UnexpectedError(f"needs {needed}, found {found!r}")


def outcome_of(client: str, release: str, done: str, check: Check, asked: Asked) -> Row:
    """Run one check; whatever it raises is its outcome."""
    try:
        told = check(asked) or ""
    except NotTriedError as lack:
        return Row(client, release, done, "not tried", str(lack))
    except Exception as error:  # noqa: BLE001 (any client's any error)
        told = f"{type(error).__name__}: {' '.join(str(error).split())}"
        return Row(client, release, done, "failed", told[:MOST_TOLD_CHARS])
    return Row(client, release, done, "passed", told)


def main(client: str, checks: Sequence[tuple[str, Check]], argv: Sequence[str] | None = None) -> None:
    """Run all checks of a client; a failed one does not stop the others."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("--url", "--model", "--tokenizer"):
        parser.add_argument(name, default="")
    parser.add_argument("--reports", type=Path, required=True)
    args = parser.parse_args(argv)
    key, single_key = (os.environ.get(name, "") for name in (KEY, SINGLE_KEY))
    asked = Asked(args.url, args.model, key, single_key, args.tokenizer, args.reports)
    with (args.reports / ROWS).open("w", encoding="utf-8") as out:
        for done, check in checks:
            row = outcome_of(client, version(client), done, check, asked)
            out.write(json.dumps(asdict(row)) + "\n")
            out.flush()
            sys.stdout.write(f"{client}: {done}: {row.outcome} {row.told}\n")
            sys.stdout.flush()


# Requests common to several clients.
CHAT: list[Any] = [{"role": "user", "content": "Name the capital of France."}]
PERSON: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 12},
        "age": {"type": "integer", "minimum": 0, "maximum": 99},
    },
    "required": ["name", "age"],
    "additionalProperties": False,
}
WEATHER: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "Weather of a city",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "maxLength": 12}},
            "required": ["city"],
            "additionalProperties": False,
        },
    },
}
NAMED: Any = {"type": "function", "function": {"name": "weather"}}

"""Runs checks one by one and writes what became of each, one JSON object a line.

Imported where Outrider is not installed: nothing but the standard library.
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
ROWS = "rows.jsonl"  # where a script writes what became of its checks


class UnexpectedError(Exception):
    """A service did not do what a client's users count on."""


@dataclass(frozen=True, slots=True)
class Asked:
    """Whom a script asks."""

    url: str  # ends in /v1
    model: str
    key: str
    single_key: str  # one that may have one response under way; "": there is none
    tokenizer: str = ""  # folder of the model's tokenizer
    reports: Path = Path()  # folder for what the client itself writes


# Where the keys are: a command line can be read by everybody on a machine.
KEY, SINGLE_KEY = "OUTRIDER_API_KEY", "OUTRIDER_SINGLE_KEY"


@dataclass(frozen=True, slots=True)
class Row:
    """One check: which client did what, and what became of it."""

    client: str
    version: str
    done: str
    outcome: str  # passed, failed, or not tried
    told: str = ""  # why, or what was found


class NotTriedError(Exception):
    """A check needs something that the service was not started with."""


Check = Callable[[Asked], str | None]  # what it returns is told


def expect(condition: object, needed: str, found: object) -> None:
    """Raise unless a condition holds.

    Raises:
        UnexpectedError: it does not.
    """
    if not condition:
        raise UnexpectedError(f"needs {needed}, found {found!r}")


def outcome_of(client: str, release: str, done: str, check: Check, asked: Asked) -> Row:
    """Run one check. Whatever it raises is what became of it."""
    try:
        told = check(asked) or ""
    except NotTriedError as lack:
        return Row(client, release, done, "not tried", str(lack))
    except Exception as error:  # noqa: BLE001 (any client's any error)
        told = f"{type(error).__name__}: {' '.join(str(error).split())}"
        return Row(client, release, done, "failed", told[:MOST_TOLD_CHARS])
    return Row(client, release, done, "passed", told)


def main(client: str, checks: Sequence[tuple[str, Check]], argv: Sequence[str] | None = None) -> None:
    """Run all checks of a client; they go on behind one that failed."""
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


# What several clients are asked with.
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

"""Reading of the logs that devices record rounds in (``outrider.drafting.round_log``)."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from zlib import crc32

import numpy as np

from outrider.contracts.errors import ParameterError
from outrider.contracts.verifying import AcceptanceRule
from outrider.drafting.features import FEATURE_NAMES
from outrider.drafting.round_log import CHAIN, CHECKSUM, FORMAT, FORMAT_KEY, LoggedRound, LogHeader

_TOKEN_BYTES = 4 * len(FEATURE_NAMES)  # float32: what a perceptron computes in


@dataclass(frozen=True, slots=True)
class RoundLogContents:
    header: LogHeader  # its first line
    rounds: tuple[LoggedRound, ...]  # in the order of their verdicts
    unread_bytes: int  # at its end, behind the last whole record


def read_log(data: bytes) -> RoundLogContents | None:
    """Read up to the last whole record; None: no whole first line. Another format is a ``ParameterError``."""
    line, found, body = data.partition(b"\n")
    if not found:
        return None
    header = _header(line)
    rounds, end = list[LoggedRound](), 0
    for logged, end in _records(body):  # noqa: B007 (where the last one ends)
        rounds.append(logged)
    return RoundLogContents(header, tuple(rounds), len(body) - end)


def _header(line: bytes) -> LogHeader:
    try:
        fields: dict[str, Any] = json.loads(line)
        version, features = fields.pop(FORMAT_KEY, None), tuple(fields.pop("features", ()))
        if (version, features) == (FORMAT, FEATURE_NAMES):
            return LogHeader(**fields | {"rule": AcceptanceRule(fields["rule"])})
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ParameterError("rounds", "files that devices logged rounds to", f"another file: {error!r}") from error
    needed = f"logs of format {FORMAT} with the features {', '.join(FEATURE_NAMES)}"
    raise ParameterError("rounds", needed, f"format {version} with {', '.join(map(str, features)) or 'none'}")


def _records(body: bytes) -> Iterator[tuple[LoggedRound, int]]:
    """Yield whole records, each with the offset of its end; stop at the first that is cut short or corrupt."""
    at = 0
    while at + CHAIN.size <= len(body):
        generation, temperature, tokens, rejected = CHAIN.unpack_from(body, at)
        first, last = at + CHAIN.size, at + CHAIN.size + tokens * _TOKEN_BYTES
        if last + CHECKSUM.size > len(body) or not tokens:
            return
        if CHECKSUM.unpack_from(body, last)[0] != crc32(body[at:last]):
            return
        features = np.frombuffer(body, "<f4", tokens * len(FEATURE_NAMES), first).reshape(tokens, -1)
        at = last + CHECKSUM.size
        yield LoggedRound(generation, temperature, features.astype(np.float32), bool(rejected)), at

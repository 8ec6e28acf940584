"""Format of the round log in which a device records features and verdicts of its draft tokens, to train predictors.

A record is one chain: features of each tested token's row, the request's temperature, and whether the last token was
rejected; nothing of a text, and the generation as a hash of its id. What is labelled, and what a log lacks, is in
docs/design/0035. A file is one line of JSON, which names the models and the rule, then records, each with a checksum,
so that a record cut short by a power failure is noticed and left out.
"""

import json
import struct
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from hashlib import blake2b
from typing import Any
from zlib import crc32

import numpy as np

from outrider.contracts.errors import ParameterError
from outrider.contracts.exchanged import ArrayData, FloatRow
from outrider.contracts.requests import GenerationId
from outrider.contracts.verifying import AcceptanceRule
from outrider.drafting.acceptance import PREDICTED_RULES
from outrider.drafting.features import FEATURE_NAMES
from outrider.drafting.recalibration import ChainVerdict

SUFFIX = ".rounds"
_FORMAT, _FORMAT_KEY = 1, "outrider_round_log"
_CHAIN = struct.Struct("<QdBB")  # generation, temperature, tokens, whether the last of them was rejected
_CHECKSUM = struct.Struct("<I")
_TOKEN_BYTES = 4 * len(FEATURE_NAMES)  # float32: what a perceptron computes in


@dataclass(frozen=True, slots=True)
class RoundLogPlace:
    folder: str  # on the device; each drafter has a folder of its own in it
    group: str  # name of the drafters in that folder
    most_bytes: int  # kept by one drafter


@dataclass(frozen=True, slots=True)
class LogHeader:
    """Models and rules of a file's rounds."""

    drafter: str  # its name
    drafter_hash: str  # its ``ModelFacts.model_hash``
    target: str
    target_hash: str
    rule: AcceptanceRule  # by which they were verified
    stops: str  # by which rule the device ended its drafts, one of ``STOP_KINDS``
    file: str = ""  # random id: copies of a file have the same

    def __str__(self) -> str:
        pair = f"drafter {self.drafter} ({self.drafter_hash}) and target {self.target} ({self.target_hash})"
        return f"rule {self.rule} of {pair}"


@dataclass(frozen=True, slots=True, eq=False)
class LoggedRound(ArrayData):
    """The tested tokens of a chain."""

    generation: int  # ``request_number``, 64 bits
    temperature: float  # of the request
    features: FloatRow  # ``[n, 4]`` float32, ``1 <= n <= 255``, as ``DraftFeatures.vector``
    rejected: bool  # whether the last token was rejected; all others were accepted


@dataclass(frozen=True, slots=True)
class RoundLogContents:
    header: LogHeader  # its first line
    rounds: tuple[LoggedRound, ...]  # in the order of their verdicts
    unread_bytes: int  # at its end, behind the last whole record


def logged_round(generation: GenerationId, verdict: ChainVerdict) -> LoggedRound | None:
    """Return the record of a chain; None if none of its tokens was tested, or its rule has no predictors.

    Features that drafting did not need are computed here, which takes some tenths of a millisecond a token.
    """
    tested = verdict.sent_chain.features[: verdict.accepted + verdict.rejected]
    if not tested or verdict.sent_chain.rule not in PREDICTED_RULES:
        return None
    features = np.array([each.vector for each in tested], np.float32)
    return LoggedRound(request_number(generation), verdict.sent_chain.temperature, features, verdict.rejected)


def request_number(generation: GenerationId) -> int:
    """Return a hash of a generation's id, the same on all devices that draft for it."""
    return int.from_bytes(blake2b(generation.encode(), digest_size=8).digest(), "little")


def write_header(header: LogHeader) -> bytes:
    fields = {_FORMAT_KEY: _FORMAT, "features": FEATURE_NAMES, **asdict(header)}
    return json.dumps(fields).encode() + b"\n"


def write_round(logged: LoggedRound) -> bytes:
    chain = _CHAIN.pack(logged.generation, logged.temperature, len(logged.features), logged.rejected)
    record = chain + logged.features.astype("<f4").tobytes()
    return record + _CHECKSUM.pack(crc32(record))


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
        version, features = fields.pop(_FORMAT_KEY, None), tuple(fields.pop("features", ()))
        if (version, features) == (_FORMAT, FEATURE_NAMES):
            return LogHeader(**fields | {"rule": AcceptanceRule(fields["rule"])})
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ParameterError("rounds", "files that devices logged rounds to", f"another file: {error!r}") from error
    needed = f"logs of format {_FORMAT} with the features {', '.join(FEATURE_NAMES)}"
    raise ParameterError("rounds", needed, f"format {version} with {', '.join(map(str, features)) or 'none'}")


def _records(body: bytes) -> Iterator[tuple[LoggedRound, int]]:
    """Yield whole records, each with the offset of its end; stop at the first that is cut short or corrupt."""
    at = 0
    while at + _CHAIN.size <= len(body):
        generation, temperature, tokens, rejected = _CHAIN.unpack_from(body, at)
        first, last = at + _CHAIN.size, at + _CHAIN.size + tokens * _TOKEN_BYTES
        if last + _CHECKSUM.size > len(body) or not tokens:
            return
        if _CHECKSUM.unpack_from(body, last)[0] != crc32(body[at:last]):
            return
        features = np.frombuffer(body, "<f4", tokens * len(FEATURE_NAMES), first).reshape(tokens, -1)
        at = last + _CHECKSUM.size
        yield LoggedRound(generation, temperature, features.astype(np.float32), bool(rejected)), at

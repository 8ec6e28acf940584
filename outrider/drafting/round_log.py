"""The log of rounds that a device writes while it serves: features of its draft tokens and what became of them.

For training (``outrider train predictor --rounds``). A record is a chain: four features a token of the distribution it
was drawn from, the request's temperature, and whether the last of them was rejected. Nothing of a text is in it: no
token, no position. Of the generation there is a hash of its id, so that what belongs to one request can be kept on one
side of a split; who has the service's own events can tell which request that was, and nothing of what it said.

Labelled are the tokens that were tested: the accepted ones and the first rejection (``recalibration.verdict_on``). So a
log is censored, in three ways:

- What stands behind a rejection follows a token that was never committed, and is left out.
- What stands behind a stop nobody drew. A rule withholds tokens by what is known before the draw, so labels of those
  that were drawn are not biased by it; but of what the rule takes for bad there are few or none: a flagged token that
  is withheld (``stop_before``, ``while_it_pays``) has no label, one that is sent (``send_and_stop``) has. Fitted to
  such a log a predictor is extrapolated just where the rule asks it. Devices whose rule is ``never`` leave nothing
  out: let some of them log.
- What a response's last round says nobody is told, as no order follows it. Ends of responses are rarer than in service.

Beside the rules that go by equality, a chain that was cut before it was verified cannot be told from a rejection. So
ratio chains of devices that log stay whole at the verifier, as those of devices that stop do.

A file is one line of JSON, whom it is of, then records, each with a checksum of its own: what a power cut left of the
last one is noticed and left out.
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
    """Where a group's devices log.

    Attributes:
        folder: on the device; each drafter has one of its own in it.
        group: the drafters' name there.
        most_bytes: that one drafter keeps.
    """

    folder: str
    group: str
    most_bytes: int


@dataclass(frozen=True, slots=True)
class LogHeader:
    """Of whom the rounds of a file are."""

    drafter: str  # its name
    drafter_hash: str  # its ``ModelFacts.model_hash``
    target: str
    target_hash: str
    rule: AcceptanceRule  # by which they were verified
    stops: str  # by which rule the device ended its drafts, one of ``STOP_KINDS``
    file: str = ""  # random: tells a copy of a file from another file

    def __str__(self) -> str:
        pair = f"drafter {self.drafter} ({self.drafter_hash}) and target {self.target} ({self.target_hash})"
        return f"rule {self.rule} of {pair}"


@dataclass(frozen=True, slots=True, eq=False)
class LoggedRound(ArrayData):
    """A chain's tokens that were tested.

    Attributes:
        generation: a number that tells its request from others, 64 bits.
        temperature: of the request.
        features: ``[n, 4]`` float32, ``1 <= n <= 255``, as ``DraftFeatures.vector``.
        rejected: whether the last of them was; all others were accepted.
    """

    generation: int
    temperature: float
    features: FloatRow
    rejected: bool


@dataclass(frozen=True, slots=True)
class RoundLogContents:
    """A file as it was read.

    Attributes:
        header: of whom it is.
        rounds: in the order in which verdicts came.
        unread_bytes: at its end, behind the last whole record.
    """

    header: LogHeader
    rounds: tuple[LoggedRound, ...]
    unread_bytes: int


def logged_round(generation: GenerationId, verdict: ChainVerdict) -> LoggedRound | None:
    """What is logged of a chain; None if none of its tokens was tested, or nobody learns of its rule.

    Features that were not needed for drafting are worked out here: it takes some tenths of a millisecond a token.
    """
    tested = verdict.sent_chain.features[: verdict.accepted + verdict.rejected]
    if not tested or verdict.sent_chain.rule not in PREDICTED_RULES:
        return None
    features = np.array([each.vector for each in tested], np.float32)
    return LoggedRound(request_number(generation), verdict.sent_chain.temperature, features, verdict.rejected)


def request_number(generation: GenerationId) -> int:
    """The same on each device that drafts for it."""
    return int.from_bytes(blake2b(generation.encode(), digest_size=8).digest(), "little")


def write_header(header: LogHeader) -> bytes:
    """What a file begins with."""
    fields = {_FORMAT_KEY: _FORMAT, "features": FEATURE_NAMES, **asdict(header)}
    return json.dumps(fields).encode() + b"\n"


def write_round(logged: LoggedRound) -> bytes:
    chain = _CHAIN.pack(logged.generation, logged.temperature, len(logged.features), logged.rejected)
    record = chain + logged.features.astype("<f4").tobytes()
    return record + _CHECKSUM.pack(crc32(record))


def read_log(data: bytes) -> RoundLogContents | None:
    """A whole file, as far as it goes; None if not even its first line was written.

    Raises:
        ParameterError: it is no log, or one of another format or of other features.
    """
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
        raise ParameterError("rounds", "files that devices logged rounds to", f"one that is none: {error!r}") from error
    needed = f"logs of format {_FORMAT} with the features {', '.join(FEATURE_NAMES)}"
    raise ParameterError("rounds", needed, f"format {version} with {', '.join(map(str, features)) or 'none'}")


def _records(body: bytes) -> Iterator[tuple[LoggedRound, int]]:
    """Whole records, each with where it ends."""
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

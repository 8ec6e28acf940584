"""Format of the round log in which a device records features and verdicts of its draft tokens, to train predictors.

A record is one chain: features of each tested token's row, the request's temperature, and whether the last token was
rejected; nothing of a text, and the generation as a hash of its id. What is labelled, and what a log lacks, is in
docs/design/0035. A file is one line of JSON, which names the models and the rule, then records, each with a checksum,
so that a record cut short by a power failure is noticed and left out.
"""

import json
import struct
from dataclasses import asdict, dataclass
from hashlib import blake2b
from zlib import crc32

import numpy as np

from outrider.contracts.exchanged import ArrayData, FloatRow
from outrider.contracts.requests import GenerationId
from outrider.contracts.verifying import AcceptanceRule
from outrider.drafting.acceptance import PREDICTED_RULES
from outrider.drafting.features import FEATURE_NAMES
from outrider.drafting.recalibration import ChainVerdict

SUFFIX = ".rounds"
FORMAT, FORMAT_KEY = 1, "outrider_round_log"
CHAIN = struct.Struct("<QdBB")  # generation, temperature, tokens, whether the last of them was rejected
CHECKSUM = struct.Struct("<I")


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
    fields = {FORMAT_KEY: FORMAT, "features": FEATURE_NAMES, **asdict(header)}
    return json.dumps(fields).encode() + b"\n"


def write_round(logged: LoggedRound) -> bytes:
    chain = CHAIN.pack(logged.generation, logged.temperature, len(logged.features), logged.rejected)
    record = chain + logged.features.astype("<f4").tobytes()
    return record + CHECKSUM.pack(crc32(record))

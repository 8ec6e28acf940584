"""Encode calls of a drafter's methods as bytes, for a device that no Ray call reaches.

    version 8 bits | method 8 bits | arguments

The version is of the protocol, so a device reads the calls of any version that it knows. ``card`` has the same form in
all, is written as of the first and read as of any: sides without a common version tell each other so. A device is told
of a generation only what drafting needs: neither whose it is nor what it reports.
"""

import struct
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from outrider.contracts.drafting import DraftTerms
from outrider.contracts.errors import MessageError, OutriderError
from outrider.contracts.exchanged import FloatField, WireFormat
from outrider.contracts.requests import GenerationId, SamplingParams
from outrider.contracts.verifying import OpenGeneration
from outrider.versions import VERSIONS, VersionRange, Versions
from outrider.wire.bits import BitReader, BitWriter
from outrider.wire.envelope import MAX_MESSAGE_BYTES
from outrider.wire.replies import MOST_NAME_CHARS

FIRST_VERSION = 7  # of the protocol in which calls are bytes
MOST_CALL_BYTES = MAX_MESSAGE_BYTES + 4096
MOST_PROBE_BYTES = MAX_MESSAGE_BYTES
MOST_DEVICE_PROBE_BYTES = 2**21  # none that measures a link is larger (``link.state.MAX_PROBE_BITS``)
MOST_DEVICE_CALL_BYTES = MOST_DEVICE_PROBE_BYTES + 4096  # that a device reads, and a gateway carries either way
assert MOST_DEVICE_CALL_BYTES < MOST_CALL_BYTES
_MOST_NAME_BYTES = 4 * MOST_NAME_CHARS  # in UTF-8
_MOST_SALT_BYTES = 64
_MOST_TOKENS = 2**22  # of a prompt, of a response
_MOST_BIASES = 4096
_MOST_UINT = 2**32 - 1
_DOUBLE = struct.Struct(">d")
_SHORT = struct.Struct(">H")
_LONG = struct.Struct(">I")
_HEAD_BYTES = 2 + _SHORT.size  # before a generation's name
_FIELDS = tuple(FloatField)
_SMALLEST_SCALAR_BITS, _LARGEST_SCALAR_BITS = 8, 32
_NUMBERS = ("temperature", "top_p", "min_p", "repetition_penalty", "presence_penalty", "frequency_penalty")


def write_call(method: str, *arguments: Any, version: int = VERSIONS.protocol.newest) -> bytes:
    """Return the call of a drafter's method; one that is too large, or cannot be written, is a ``MessageError``."""
    written_as = FIRST_VERSION if method == _GREETING else version
    data = bytes((written_as, _METHODS.index(method))) + _WRITERS[method](*arguments)
    if len(data) > MOST_CALL_BYTES:
        raise MessageError(f"needs a call of at most {MOST_CALL_BYTES} bytes, found {len(data)}")
    return data


def call_versions(versions: Versions) -> Versions:
    """Return those of which calls are bytes, of what one side knows."""
    oldest, newest = versions.protocol
    return replace(versions, protocol=VersionRange(max(oldest, FIRST_VERSION), newest))


def read_call(data: bytes) -> tuple[str, tuple[Any, ...]]:
    """Return method and arguments of a call.

    Raises:
        MessageError: it is truncated, oversized, of another version, or has arguments that nothing may have.
    """
    if not 2 <= len(data) <= MOST_CALL_BYTES:
        raise MessageError(f"needs a call of 2..{MOST_CALL_BYTES} bytes, found {len(data)}")
    version, code = data[0], data[1]
    known = call_versions(VERSIONS).protocol
    if code != _METHODS.index(_GREETING) and not known.has(version):
        raise MessageError(f"needs calls of version {known}, found {version}; update the older side")
    if code >= len(_METHODS):
        raise MessageError(f"needs a method in 0..{len(_METHODS) - 1}, found {code}")
    method = _METHODS[code]
    try:
        return method, _READERS[method](data[2:])
    except MessageError:
        raise
    except (OutriderError, struct.error, ValueError) as error:
        raise MessageError(f"needs the arguments of {method}: {error}") from None


def exchange_head(call: bytes) -> bytes | None:
    """Return what comes before the order of a call of ``exchange``; None: it is none that can be read."""
    if len(call) < _HEAD_BYTES or call[1] != _EXCHANGE:
        return None
    size = _HEAD_BYTES + int.from_bytes(call[2:_HEAD_BYTES], "big")
    return call[:size] if size <= min(len(call), _HEAD_BYTES + _MOST_NAME_BYTES) else None


def _write_nothing() -> bytes:
    return b""


def _read_nothing(body: bytes) -> tuple[()]:
    if body:
        raise MessageError(f"needs no arguments, found {len(body)} bytes")
    return ()


def _write_named(generation: GenerationId, rest: bytes = b"") -> bytes:
    name = _bounded(generation).encode()
    return _SHORT.pack(len(name)) + name + rest


def _read_named(body: bytes) -> tuple[GenerationId, bytes]:
    (size,) = _SHORT.unpack_from(body)
    end = _SHORT.size + size
    if size > _MOST_NAME_BYTES or end > len(body):
        raise MessageError(f"needs a name of at most {_MOST_NAME_BYTES} bytes, found {size} of {len(body)}")
    return _bounded(body[_SHORT.size : end].decode()), body[end:]


def _bounded(name: GenerationId) -> GenerationId:
    if len(name) > MOST_NAME_CHARS:
        raise MessageError(f"needs a name of at most {MOST_NAME_CHARS} characters, found {len(name)}")
    return name


def _read_name_alone(body: bytes) -> tuple[GenerationId]:
    name, rest = _read_named(body)
    _read_nothing(rest)
    return (name,)


def _write_probe(sent: bytes, reply_bytes: int) -> bytes:
    return _LONG.pack(reply_bytes) + sent


def _read_probe(body: bytes) -> tuple[bytes, int]:
    (reply_bytes,) = _LONG.unpack_from(body)
    if reply_bytes > MOST_PROBE_BYTES:
        raise MessageError(f"needs a probe of at most {MOST_PROBE_BYTES} bytes, found {reply_bytes}")
    return body[_LONG.size :], reply_bytes


def _write_open(request: OpenGeneration, terms: DraftTerms) -> bytes:
    writer = BitWriter()
    _write_format(writer, terms.wire)
    writer.uint(min(terms.last_position, _MOST_UINT), 32)
    _write_ids(writer, terms.end_ids, terms.wire)
    _write_params(writer, request.params)
    writer.count(len(request.cache_salt))
    writer.uints(list(request.cache_salt), 8)
    _write_ids(writer, request.prompt_ids, terms.wire)
    _write_ids(writer, request.output_ids, terms.wire)
    return _write_named(request.generation, writer.to_bytes())


def _read_open(body: bytes) -> tuple[OpenGeneration, DraftTerms]:
    name, rest = _read_named(body)
    reader = BitReader(rest)
    wire = _read_format(reader)
    last_position = reader.uint(32)
    terms = DraftTerms(wire, _read_ids(reader, wire), last_position)
    params = _read_params(reader)
    if (size := reader.count()) > _MOST_SALT_BYTES:
        raise MessageError(f"needs a salt of at most {_MOST_SALT_BYTES} bytes, found {size}")
    salt = bytes(reader.uints(size, 8).tolist())
    prompt_ids, output_ids = _read_ids(reader, wire), _read_ids(reader, wire)
    reader.finish()
    if not prompt_ids:
        raise MessageError("needs a prompt of at least one token, found none")
    return OpenGeneration(name, prompt_ids, params, output_ids, cache_salt=salt), terms


def _write_format(writer: BitWriter, wire: WireFormat) -> None:
    writer.uint(wire.version, 4)
    writer.uint(wire.vocab_size, 32)
    for field in (wire.logit_field, wire.row_field, wire.hidden_field):
        writer.uint(_FIELDS.index(field), 2)
    writer.uint(wire.scalar_bits, 6)
    writer.uint(wire.top_k, 32)
    _write_double(writer, wire.top_rho)
    writer.flag(value=wire.distinct_siblings)
    writer.uint(wire.hidden_width, 32)


def _read_format(reader: BitReader) -> WireFormat:
    version, vocab_size = reader.uint(4), reader.uint(32)
    logit_field, row_field, hidden_field = (_FIELDS[reader.uint(2)] for _ in range(3))
    scalar_bits, top_k, top_rho = reader.uint(6), reader.uint(32), _read_double(reader)
    distinct_siblings, hidden_width = reader.flag(), reader.uint(32)
    if not VERSIONS.messages.has(version):
        raise MessageError(f"needs messages of version {VERSIONS.messages}, found {version}")
    if not (vocab_size > 1 and _SMALLEST_SCALAR_BITS <= scalar_bits <= _LARGEST_SCALAR_BITS and 0.0 < top_rho <= 1.0):
        raise MessageError(f"needs a vocabulary, 8..32 bits and a mass, found {vocab_size}, {scalar_bits}, {top_rho}")
    return WireFormat(
        vocab_size=vocab_size,
        logit_field=logit_field,
        scalar_bits=scalar_bits,
        row_field=row_field,
        top_k=top_k,
        top_rho=top_rho,
        distinct_siblings=distinct_siblings,
        hidden_field=hidden_field,
        hidden_width=hidden_width,
        version=version,
    )


def _write_params(writer: BitWriter, params: SamplingParams) -> None:
    if params.grammar is not None:
        raise MessageError("needs parameters without a grammar, which only a verifier applies")
    for name in _NUMBERS:
        _write_double(writer, getattr(params, name))
    writer.uint(min(params.top_k, _MOST_UINT), 32)  # as good as any above the vocabulary
    writer.uint(params.seed, 64)
    writer.count(len(params.logit_bias))
    for token_id, bias in params.logit_bias:
        writer.uint(token_id, 32)
        _write_double(writer, bias)
    writer.count(len(params.withheld_ids))
    writer.uints(params.withheld_ids, 32)
    writer.uint(min(params.withheld_until, _MOST_UINT), 32)


def _read_params(reader: BitReader) -> SamplingParams:
    numbers: dict[str, Any] = {name: _read_double(reader) for name in _NUMBERS}
    top_k, seed = reader.uint(32), reader.uint(64)
    if (biased := reader.count()) > _MOST_BIASES:
        raise MessageError(f"needs at most {_MOST_BIASES} biases, found {biased}")
    logit_bias = tuple((reader.uint(32), _read_double(reader)) for _ in range(biased))
    if (withheld := reader.count()) > _MOST_BIASES:
        raise MessageError(f"needs at most {_MOST_BIASES} tokens withheld, found {withheld}")
    withheld_ids = tuple(map(int, reader.uints(withheld, 32)))
    return SamplingParams(
        **numbers,
        top_k=top_k,
        seed=seed,
        logit_bias=logit_bias,
        withheld_ids=withheld_ids,
        withheld_until=reader.uint(32),
    )


def _write_ids(writer: BitWriter, token_ids: Sequence[int], wire: WireFormat) -> None:
    writer.count(len(token_ids))
    writer.ids(token_ids, wire.vocab_size)


def _read_ids(reader: BitReader, wire: WireFormat) -> tuple[int, ...]:
    if (count := reader.count()) > _MOST_TOKENS:
        raise MessageError(f"needs at most {_MOST_TOKENS} tokens, found {count}")
    return tuple(reader.ids(count, wire.vocab_size).tolist())


def _write_double(writer: BitWriter, value: float) -> None:
    writer.uint(int.from_bytes(_DOUBLE.pack(value), "big"), 64)


def _read_double(reader: BitReader) -> float:
    (value,) = _DOUBLE.unpack(reader.uint(64).to_bytes(8, "big"))
    return float(value)


_Writer = Callable[..., bytes]
_Reader = Callable[[bytes], tuple[Any, ...]]
_CODED: tuple[tuple[str, _Writer, _Reader], ...] = (  # a method's place is its code: add new ones at the end
    ("card", _write_nothing, _read_nothing),
    ("prove", _write_nothing, _read_nothing),
    ("held", _write_nothing, _read_nothing),
    ("open", _write_open, _read_open),
    ("exchange", _write_named, _read_named),
    ("probe", _write_probe, _read_probe),
    ("close", _write_named, _read_name_alone),
)
_GREETING = "card"
_METHODS = tuple(method for method, _, _ in _CODED)
_EXCHANGE = _METHODS.index("exchange")
_WRITERS = {method: write for method, write, _ in _CODED}
_READERS = {method: read for method, _, read in _CODED}

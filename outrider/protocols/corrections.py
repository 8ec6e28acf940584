"""Encode what a device draws a deferred correction from (DSSD): the target's row, or candidates drawn from it.

The message itself says which: the device that draws may not be the one whose token was rejected, and may go on with
another protocol.
"""

import numpy as np

from outrider.contracts.errors import MessageError
from outrider.contracts.exchanged import Candidates, CorrectionSource, FloatRow, TargetRow, WireFormat
from outrider.sampling.floats import vector_bits
from outrider.wire.bits import BitReader, BitWriter, id_bits

MAX_DRAWS = 2**16  # a single distinct token costs no bits per draw, so message size does not bound the number
_ALL, _LISTED, _MASKED = range(3)  # tokens of the probabilities: all, listed ids, or a bit mask over the vocabulary
_FORM_BITS = 2


def write_source(writer: BitWriter, source: CorrectionSource, wire: WireFormat) -> None:
    """Write a row or candidates, behind a flag that says which."""
    writer.flag(value=isinstance(source, Candidates))
    if isinstance(source, Candidates):
        _write_candidates(writer, source, wire)
    else:
        _write_row(writer, source, wire)


def read_source(reader: BitReader, wire: WireFormat) -> CorrectionSource:
    """Read a row or candidates; invalid bits are a ``MessageError``."""
    return _read_candidates(reader, wire) if reader.flag() else _read_row(reader, wire)


def expected_row_bits(wire: WireFormat, tokens: int | None = None) -> int:
    """Return the bits of a target row: ``|V| * b_prob`` (DSSD eq. 9), or less if few tokens have any probability.

    ``tokens`` is the number of tokens left by top-k, top-p or min-p; None if all are.
    """
    return _form(wire.vocab_size if tokens is None else tokens, wire, dense=tokens is None)[0]


def expected_candidate_bits(wire: WireFormat, draws: int, distinct: int) -> int:
    """Return the bits of ``draws`` candidates of which ``distinct`` differ, without their two counts."""
    table = distinct * id_bits(wire.vocab_size) + vector_bits(distinct, wire.row_field)
    return table + draws * (distinct - 1).bit_length()


def _write_row(writer: BitWriter, row: TargetRow, wire: WireFormat) -> None:
    """Write a row in the smallest of three forms."""
    probs = row.probs
    dense = row.token_ids is None
    if dense and len(probs) != wire.vocab_size:
        raise MessageError(f"needs a row of {wire.vocab_size} probabilities, found {len(probs)}")
    token_ids = np.flatnonzero(probs) if row.token_ids is None else row.token_ids
    if len(token_ids) == 0 or (token_ids[1:] <= token_ids[:-1]).any() or (not dense and len(probs) != len(token_ids)):
        raise MessageError(
            f"needs a row of strictly ascending ids with one probability each, found {len(token_ids)} ids"
        )
    _check_probs(probs)
    _, form = _form(len(token_ids), wire, dense=dense)
    writer.flag(value=dense)
    writer.uint(form, _FORM_BITS)
    if form == _LISTED:
        writer.count(len(token_ids))
        writer.ids(token_ids, wire.vocab_size)
    elif form == _MASKED:
        mask = np.zeros(wire.vocab_size, dtype=np.uint8)
        if token_ids[0] < 0 or token_ids[-1] >= wire.vocab_size:
            raise MessageError(f"needs token ids in 0..{wire.vocab_size - 1}, found {token_ids[0]}..{token_ids[-1]}")
        mask[token_ids] = 1
        writer.uints(mask, 1)
    writer.floats(probs[token_ids] if dense and form != _ALL else probs, wire.row_field)


def _read_row(reader: BitReader, wire: WireFormat) -> TargetRow:
    dense = reader.flag()
    form = reader.uint(_FORM_BITS)
    if form == _ALL and dense:
        return TargetRow(None, _read_probs(reader, wire.vocab_size, wire))
    if form == _LISTED:
        token_ids = reader.ascending_ids(reader.count(), wire.vocab_size)
    elif form == _MASKED:
        token_ids = np.flatnonzero(reader.uints(wire.vocab_size, 1)).astype(np.int64)
    else:
        raise MessageError(f"needs a known form of row, found {form}; the message is damaged")
    probs = _read_probs(reader, len(token_ids), wire)
    if not dense:
        return TargetRow(token_ids, probs)
    whole = np.zeros(wire.vocab_size, dtype=np.float32)
    whole[token_ids] = probs
    return TargetRow(None, whole)


def _write_candidates(writer: BitWriter, candidates: Candidates, wire: WireFormat) -> None:
    """Write each distinct token once with its probability, and each draw as an index into that table.

    Draws repeat, the more the surer the target is.
    """
    token_ids, first, indices = np.unique(candidates.token_ids, return_index=True, return_inverse=True)
    draws = len(candidates.token_ids)
    if not 1 <= draws <= MAX_DRAWS or len(candidates.probs) != draws:
        raise MessageError(f"needs 1..{MAX_DRAWS} candidates with a probability each, found {draws}")
    probs = candidates.probs[first]
    if not np.array_equal(probs[indices], candidates.probs):
        raise MessageError("needs one probability for each token, found a token with several")
    _check_probs(probs)
    writer.count(draws - 1)
    writer.count(len(token_ids) - 1)
    writer.ids(token_ids, wire.vocab_size)
    writer.floats(probs, wire.row_field)
    if len(token_ids) > 1:
        writer.uints(indices, _index_bits(len(token_ids)))


def _read_candidates(reader: BitReader, wire: WireFormat) -> Candidates:
    draws, distinct = reader.count() + 1, reader.count() + 1
    if not distinct <= draws <= MAX_DRAWS:
        raise MessageError(f"needs 1..{MAX_DRAWS} candidates, at most as many distinct, found {draws} and {distinct}")
    token_ids = reader.ascending_ids(distinct, wire.vocab_size)
    probs = reader.floats(distinct, wire.row_field)
    _check_probs(probs)
    indices = np.zeros(draws, dtype=np.int64)
    if distinct > 1:
        indices = reader.uints(draws, _index_bits(distinct)).astype(np.int64)
        if indices.max() >= distinct:
            raise MessageError(f"needs indices below {distinct}, found {indices.max()}; the message is damaged")
    return Candidates(token_ids[indices], probs[indices])


def _check_probs(probs: FloatRow) -> None:
    if not (probs.size and probs.min() >= 0.0 and probs.max() <= 1.0 and probs.max() > 0.0):
        raise MessageError("needs probabilities in [0, 1], and one above 0, found others")


def _read_probs(reader: BitReader, length: int, wire: WireFormat) -> FloatRow:
    probs = reader.floats(length, wire.row_field)
    _check_probs(probs)
    return probs


def _form(tokens: int, wire: WireFormat, *, dense: bool) -> tuple[int, int]:
    """Return the bits of the smallest form, without its number, and the form. A sparse row is never sent dense."""
    counted = BitWriter()
    counted.count(tokens)
    listed = counted.bits + tokens * id_bits(wire.vocab_size) + vector_bits(tokens, wire.row_field)
    masked = wire.vocab_size + vector_bits(tokens, wire.row_field)
    forms = [(listed, _LISTED), (masked, _MASKED)]
    if dense:
        forms.append((vector_bits(wire.vocab_size, wire.row_field), _ALL))
    return min(forms)


def _index_bits(distinct: int) -> int:
    return (distinct - 1).bit_length()

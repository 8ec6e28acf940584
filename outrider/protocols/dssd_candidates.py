"""dssd_candidates: dssd's blocks go up; draws from the target come down in place of its row.

Draws repeat, the more so the surer the target is: each distinct token is told once, with its probability, and each draw
as an index into that table.
"""

import numpy as np

from outrider.contracts.errors import MessageError
from outrider.contracts.exchanged import Candidates, WireFormat
from outrider.protocols.dssd import check_probs, decode, encode, expected_bits, lossless, overhead_bits
from outrider.sampling.floats import vector_bits
from outrider.wire.bits import BitReader, BitWriter, id_bits

__all__ = [
    "decode",
    "encode",
    "expected_bits",
    "expected_candidate_bits",
    "lossless",
    "overhead_bits",
    "read_candidates",
    "write_candidates",
]

MAX_DRAWS = 2**16  # one distinct token costs no bits per draw: the number needs a bound of its own


def expected_candidate_bits(wire: WireFormat, draws: int, distinct: int) -> int:
    """Bits of ``draws`` candidates of which ``distinct`` differ, their two counts aside."""
    table = distinct * id_bits(wire.vocab_size) + vector_bits(distinct, wire.row_field)
    return table + draws * (distinct - 1).bit_length()


def write_candidates(writer: BitWriter, candidates: Candidates, wire: WireFormat) -> None:
    """Draws from the target, in order.

    Raises:
        MessageError: none or too many of them, one token with two probabilities, or one not rounded to the field.
    """
    token_ids, first, indices = np.unique(candidates.token_ids, return_index=True, return_inverse=True)
    draws = len(candidates.token_ids)
    if not 1 <= draws <= MAX_DRAWS or len(candidates.probs) != draws:
        raise MessageError(f"needs 1..{MAX_DRAWS} candidates with a probability each, found {draws}")
    probs = candidates.probs[first]
    if not np.array_equal(probs[indices], candidates.probs):
        raise MessageError("needs one probability for each token, found a token with several")
    check_probs(probs)
    writer.count(draws - 1)
    writer.count(len(token_ids) - 1)
    writer.ids(token_ids, wire.vocab_size)
    writer.floats(probs, wire.row_field)
    if len(token_ids) > 1:
        writer.uints(indices, _index_bits(len(token_ids)))


def read_candidates(reader: BitReader, wire: WireFormat) -> Candidates:
    """The same draws. Raises ``MessageError`` if the bits are none."""
    draws, distinct = reader.count() + 1, reader.count() + 1
    if not distinct <= draws <= MAX_DRAWS:
        raise MessageError(f"needs 1..{MAX_DRAWS} candidates, no more of them distinct, found {draws} and {distinct}")
    token_ids = reader.ascending_ids(distinct, wire.vocab_size)
    probs = reader.floats(distinct, wire.row_field)
    check_probs(probs)
    indices = np.zeros(draws, dtype=np.int64)
    if distinct > 1:
        indices = reader.uints(draws, _index_bits(distinct)).astype(np.int64)
        if indices.max() >= distinct:
            raise MessageError(f"needs indices below {distinct}, found {indices.max()}; the message is damaged")
    return Candidates(token_ids[indices], probs[indices])


def _index_bits(distinct: int) -> int:
    return (distinct - 1).bit_length()

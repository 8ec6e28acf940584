"""Encode truncated draft distributions and the tokens drawn from them, for tslt and tslt_tree (TSLT eq. 3).

A row is its number of ids, the ids (none if the whole vocabulary is kept: eq. 3's remark) and their logits. A token is
sent as its rank among the row's ids, in ``ceil(log2 n)`` bits in place of ``ceil(log2 |V|)``.
"""

from collections.abc import Sequence

import numpy as np

from outrider.contracts.drafting import Draft
from outrider.contracts.errors import MessageError
from outrider.contracts.exchanged import FloatRow, IntRow, SparseDraft, WireFormat
from outrider.protocols.protocol import distribution_as
from outrider.sampling.floats import CODE_BITS, header_bits
from outrider.wire.bits import BitReader, BitWriter, id_bits
from outrider.wire.shapes import children_of


def kept_tokens(wire: WireFormat) -> int:
    """Return the largest number of ids in a row."""
    return min(wire.top_k or wire.vocab_size, wire.vocab_size)


def expected_row_bits(wire: WireFormat) -> int:
    """Return TSLT eq. 3: ``|V'| * (b_prob + ceil(log2 |V|))``, or ``|V| * b_prob`` if nothing is cut off."""
    kept = kept_tokens(wire)
    ids = 0 if kept == wire.vocab_size else id_bits(wire.vocab_size)
    return kept * (CODE_BITS[wire.logit_field] + ids)


def row_overhead_bits(wire: WireFormat) -> int:
    """Return the bits that eq. 3 omits: the number of ids, and the scale of an int8 vector."""
    return _size_bits(wire) + header_bits(wire.logit_field)


def rank_bits(kept: int) -> int:
    """Return the bits of a drawn token among ``kept`` ids."""
    return (kept - 1).bit_length()


def write_drawn(writer: BitWriter, drawn: SparseDraft, groups: list[list[int]], wire: WireFormat) -> None:
    """Write rows, each followed by ``groups``' ids drawn from it, in order."""
    if not len(groups) == len(drawn.token_ids) == len(drawn.logits):
        raise MessageError(f"needs {len(groups)} rows of ids and logits, found {len(drawn.token_ids)}")
    for token_ids, logits, tokens in zip(drawn.token_ids, drawn.logits, groups, strict=True):
        size = len(token_ids)
        if not 1 <= size <= kept_tokens(wire) or len(logits) != size or not np.isfinite(logits).all():
            raise MessageError(
                f"needs a row of 1..{kept_tokens(wire)} ids with finite logits, found {size} ids and {len(logits)} "
                "logits"
            )
        if (token_ids[1:] <= token_ids[:-1]).any():
            raise MessageError("needs strictly ascending token ids in a row")
        writer.uint(size - 1, _size_bits(wire))
        if size < wire.vocab_size:
            writer.ids(token_ids, wire.vocab_size)
        writer.floats(logits, wire.logit_field)
        ranks = np.searchsorted(token_ids, tokens)
        for token, rank in zip(tokens, ranks.tolist(), strict=True):
            if rank == size or token_ids[rank] != token:
                raise MessageError(f"needs tokens drawn from their rows, found {token}")
            writer.uint(rank, rank_bits(size))


def read_drawn(reader: BitReader, group_sizes: list[int], wire: WireFormat) -> tuple[tuple[int, ...], SparseDraft]:
    """Read the drawn tokens, group by group, and the rows that they were drawn from."""
    tokens: list[int] = []
    rows: list[tuple[IntRow, FloatRow]] = []
    for drawn in group_sizes:
        size = reader.uint(_size_bits(wire)) + 1
        if size > kept_tokens(wire):
            raise MessageError(f"needs a row of 1..{kept_tokens(wire)} ids, found {size}; do both sides keep as many?")
        whole = size == wire.vocab_size
        token_ids = np.arange(size, dtype=np.int64) if whole else reader.ascending_ids(size, wire.vocab_size)
        logits = reader.floats(size, wire.logit_field)
        if not np.isfinite(logits).all():
            raise MessageError("needs finite logits in a row, found a removed token; the message is damaged")
        rows.append((token_ids, logits))
        for _ in range(drawn):
            rank = reader.uint(rank_bits(size))
            if rank >= size:
                raise MessageError(f"needs a rank below {size}, found {rank}; the message is damaged")
            tokens.append(int(token_ids[rank]))
    return tuple(tokens), SparseDraft(tuple(ids for ids, _ in rows), tuple(logits for _, logits in rows))


def unlikely_token(draft: Draft) -> str | None:
    """Return a fault if a token of the block has no probability in its row, else None."""
    sent = distribution_as(SparseDraft, draft)
    groups = children_of(draft.parents, len(draft.token_ids))
    for group, ids, logits in zip(groups, sent.token_ids, sent.logits, strict=True):
        tokens = [draft.token_ids[node] for node in group]
        if (fault := impossible_token(tokens, logits, np.searchsorted(ids, tokens))) is not None:
            return fault
    return None


def impossible_token(token_ids: Sequence[int], logits: FloatRow, places: IntRow) -> str | None:
    """Return a fault if the softmax of a row gives a token at ``places`` no probability, else None."""
    # A lower bound of the softmax: its normaliser is at most the number of tokens times the largest term.
    shares = np.exp(logits[places].astype(np.float64) - np.float64(logits.max())) / logits.size
    bad = np.flatnonzero(shares <= 0.0)
    return f"needs tokens drawn from their rows, found {token_ids[bad[0]]} without probability" if bad.size else None


def _size_bits(wire: WireFormat) -> int:
    return (kept_tokens(wire) - 1).bit_length()

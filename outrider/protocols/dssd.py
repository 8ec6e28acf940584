"""dssd: drafted ids and their probabilities go up, the target's row comes down after a rejection (DSSD section 3).

The probabilities are fixed point and exact: the drafter samples from multiples of ``2**-scalar_bits``.
"""

import numpy as np

from outrider.contracts.drafting import Draft, DraftPlan, DraftRequest
from outrider.contracts.errors import MessageError
from outrider.contracts.exchanged import FloatField, FloatRow, ScalarDraft, TargetRow, WireFormat
from outrider.protocols.codec import block, told
from outrider.sampling.floats import vector_bits
from outrider.wire.bits import BitReader, BitWriter, id_bits
from outrider.wire.shapes import read_shape, shape_bits, write_shape

_ALL, _LISTED, _MASKED = range(3)  # which tokens the probabilities belong to: all, listed ids, a bit for each token
_FORM_BITS = 2


def encode(writer: BitWriter, draft: Draft, plan: DraftPlan, wire: WireFormat) -> None:
    """See ``BlockCodec.encode``."""
    sent = told(draft, ScalarDraft)
    if sent.bits != wire.scalar_bits or len(sent.numerators) != len(draft.token_ids):
        raise MessageError(
            f"needs {len(draft.token_ids)} numerators of {wire.scalar_bits} bits, found {len(sent.numerators)} of "
            f"{sent.bits}"
        )
    write_shape(writer, draft, plan)
    writer.ids(draft.token_ids, wire.vocab_size)
    writer.uints(sent.numerators - 1, wire.scalar_bits)  # 1 .. 2**bits


def decode(reader: BitReader, request: DraftRequest, wire: WireFormat) -> Draft:
    """See ``BlockCodec.decode``."""
    nodes, parents = read_shape(reader, request.plan)
    token_ids = tuple(reader.ids(nodes, wire.vocab_size).tolist())
    numerators = reader.uints(nodes, wire.scalar_bits).astype(np.int64) + 1
    return block(request, token_ids, parents, ScalarDraft(numerators, wire.scalar_bits))


def lossless(wire: WireFormat) -> bool:
    """Only if the target's probabilities come down unrounded: they are the law of the output."""
    return wire.row_field is FloatField.FP32


def expected_bits(wire: WireFormat, plan: DraftPlan) -> int:
    """``K * (ceil(log2 |V|) + b_prob)``: ids and one scalar each."""
    return plan.nodes * (id_bits(wire.vocab_size) + wire.scalar_bits)


def overhead_bits(wire: WireFormat, plan: DraftPlan) -> int:  # noqa: ARG001 (one signature for all protocols)
    """The length."""
    return shape_bits(plan)


def expected_row_bits(wire: WireFormat, tokens: int | None = None) -> int:
    """Bits of the target's row coming down: ``|V| * b_prob`` (DSSD eq. 9), or less if few tokens have any probability.

    Args:
        wire: of the message.
        tokens: how many have any probability (top-k, top-p, min-p); None: all.
    """
    return _form(wire.vocab_size if tokens is None else tokens, wire, dense=tokens is None)[0]


def write_row(writer: BitWriter, row: TargetRow, wire: WireFormat) -> None:
    """The target's row in the smallest of three forms.

    Raises:
        MessageError: it is no row of this vocabulary, or not rounded to the field.
    """
    probs = row.probs
    dense = row.token_ids is None
    if dense and len(probs) != wire.vocab_size:
        raise MessageError(f"needs a row of {wire.vocab_size} probabilities, found {len(probs)}")
    token_ids = np.flatnonzero(probs) if row.token_ids is None else row.token_ids
    if len(token_ids) == 0 or (token_ids[1:] <= token_ids[:-1]).any() or (not dense and len(probs) != len(token_ids)):
        raise MessageError(
            f"needs a row of strictly ascending ids with one probability each, found {len(token_ids)} ids"
        )
    check_probs(probs)
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


def read_row(reader: BitReader, wire: WireFormat) -> TargetRow:
    """The same row. Raises ``MessageError`` if the bits are none."""
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


def check_probs(probs: FloatRow) -> None:
    """Check that numbers can be probabilities, and that there is any.

    Raises:
        MessageError: they cannot.
    """
    if not (probs.size and probs.min() >= 0.0 and probs.max() <= 1.0 and probs.max() > 0.0):
        raise MessageError("needs probabilities in [0, 1], and one above 0, found others")


def _read_probs(reader: BitReader, length: int, wire: WireFormat) -> FloatRow:
    probs = reader.floats(length, wire.row_field)
    check_probs(probs)
    return probs


def _form(tokens: int, wire: WireFormat, *, dense: bool) -> tuple[int, int]:
    """Bits of the smallest form (its number aside) and which it is; a sparse row is never told as a dense one."""
    counted = BitWriter()
    counted.count(tokens)
    listed = counted.bits + tokens * id_bits(wire.vocab_size) + vector_bits(tokens, wire.row_field)
    masked = wire.vocab_size + vector_bits(tokens, wire.row_field)
    forms = [(listed, _LISTED), (masked, _MASKED)]
    if dense:
        forms.append((vector_bits(wire.vocab_size, wire.row_field), _ALL))
    return min(forms)

"""Hidden states on the link: what is read is what was rounded, however large single numbers are."""

import numpy as np
import pytest

from outrider.contracts.drafting import DraftPlan
from outrider.contracts.errors import MessageError
from outrider.contracts.exchanged import FloatField, FloatRow, WireFormat
from outrider.protocols.hidden_states import read_states, rounded_states, state_bits, write_states
from outrider.protocols.wisv_selective import Selective, index_bits
from outrider.wire.bits import BitReader, BitWriter

WIDTH = 70


def wire_of(field: FloatField) -> WireFormat:
    return WireFormat(9, hidden_field=field, hidden_width=WIDTH)


def states(count: int = 3) -> FloatRow:
    """Of a model with a massive activation: one number is thousands of times larger than the others."""
    numbers = np.random.default_rng(0).standard_normal((count, WIDTH)).astype(np.float32)
    numbers[:, 5] = 2.5e4
    return numbers


@pytest.mark.parametrize("field", list(FloatField))
def test_states_come_back_as_they_were_rounded(field: FloatField) -> None:
    wire, writer = wire_of(field), BitWriter()
    write_states(writer, states(), wire)
    assert writer.bits == 3 * state_bits(wire)
    reader = BitReader(writer.to_bytes())
    assert np.array_equal(read_states(reader, 3, wire), rounded_states(states(), wire))
    reader.finish()
    assert read_states(BitReader(b""), 0, wire).shape == (0, WIDTH)


@pytest.mark.parametrize(("field", "error"), [(FloatField.FP16, 1e-3), (FloatField.INT8, 0.02)])
def test_a_massive_number_spoils_its_own_group_alone(field: FloatField, error: float) -> None:
    """Eight bits have 127 steps up to the largest of 32 numbers."""
    found, given = rounded_states(states(), wire_of(field)), states()
    beyond = np.s_[:, 32:]
    assert np.abs(found[beyond] - given[beyond]).max() <= error * np.abs(given[beyond]).max()
    assert np.abs(found[:, 5] - given[:, 5]).max() <= error * 2.5e4


def test_numbers_beyond_half_precision_are_cut() -> None:
    huge = states()
    huge[0, 0], huge[0, 1] = 1e6, -1e6
    assert rounded_states(huge, wire_of(FloatField.FP16))[0, :2].tolist() == [65504.0, -65504.0]


@pytest.mark.parametrize("bad", [states()[:, 1:], states() * np.nan, states()[0]])
def test_what_are_no_states_is_refused(bad: FloatRow) -> None:
    with pytest.raises(MessageError, match=r"needs finite hidden states of 70 numbers, found shape"):
        write_states(BitWriter(), bad, wire_of(FloatField.FP16))


def test_damaged_states_are_refused() -> None:
    wire = wire_of(FloatField.FP16)
    with pytest.raises(MessageError, match="truncated"):
        read_states(BitReader(bytes(10)), 1, wire)
    infinite = np.full(WIDTH, -np.inf, np.float16).view(np.uint16)
    writer = BitWriter()
    writer.uints(infinite, 16)
    with pytest.raises(MessageError, match="finite hidden states"):
        read_states(BitReader(writer.to_bytes()), 1, wire)


@pytest.mark.parametrize("window", [1, 2, 7, 16, 64])
def test_a_question_names_each_mismatch(window: int) -> None:
    plan, step = DraftPlan("wisv_selective", window), Selective()
    for asked in ((0,), (window - 1,), tuple(range(window))):
        writer = BitWriter()
        step.encode_question(writer, asked, plan)
        assert writer.bits == window.bit_length() + len(asked) * index_bits(plan)
        assert step.decode_question(BitReader(writer.to_bytes()), plan) == asked


def test_a_question_out_of_order_is_damaged() -> None:
    plan, writer = DraftPlan("wisv_selective", 8), BitWriter()
    Selective().encode_question(writer, (3, 3), plan)
    with pytest.raises(MessageError, match="indices that ascend"):
        Selective().decode_question(BitReader(writer.to_bytes()), plan)

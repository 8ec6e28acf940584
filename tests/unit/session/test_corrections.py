from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outrider.contracts.errors import MessageError
from outrider.contracts.exchanged import Candidates, CorrectionSource, FloatField, TargetRow, WireFormat
from outrider.protocols.corrections import expected_candidate_bits, expected_row_bits, read_source, write_source
from outrider.wire.bits import BitReader, BitWriter
from tests.unit.session.random_rounds import random_correction, random_wire

ROW_FORM_BITS = 4  # that it is a row, and which form of it


@given(seed=st.integers(0, 2**32), vocab_size=st.sampled_from([3, 5, 257, 49152]))
@settings(max_examples=150)
def test_corrections_come_back_in_the_bits_expected(seed: int, vocab_size: int) -> None:
    rng = Random(seed)
    wire = random_wire(rng, vocab_size)
    correction = random_correction(rng, wire)
    writer = BitWriter()
    write_source(writer, correction, wire)
    if isinstance(correction, Candidates):
        distinct = len(np.unique(correction.token_ids))
        expected = expected_candidate_bits(wire, len(correction.token_ids), distinct)
        assert expected + 9 <= writer.bits <= expected + 25  # that they are candidates, and two counts
    elif correction.token_ids is not None:
        assert writer.bits == expected_row_bits(wire, len(correction.token_ids)) + ROW_FORM_BITS
    else:
        assert writer.bits <= expected_row_bits(wire) + ROW_FORM_BITS
    reader = BitReader(writer.to_bytes())
    assert read_source(reader, wire) == correction
    reader.finish()


def test_rows_take_the_smallest_form() -> None:
    wire = WireFormat(49152)
    assert expected_row_bits(wire) == 49152 * 32  # DSSD eq. 9
    assert expected_row_bits(wire, 50) == 50 * (16 + 32) + 8  # ids
    assert expected_row_bits(wire, 20_000) == 49152 + 20_000 * 32  # a bit for each token
    assert expected_row_bits(wire, 49152) == 49152 * 33  # sent sparse, comes back sparse


def test_a_whole_row_with_few_probabilities_is_sent_by_ids() -> None:
    wire = WireFormat(49152)
    probs = np.zeros(49152, dtype=np.float32)
    probs[[7, 40000]] = 0.5
    writer = BitWriter()
    write_source(writer, TargetRow(None, probs), wire)
    assert writer.bits == ROW_FORM_BITS + 4 + 2 * (16 + 32)
    assert read_source(BitReader(writer.to_bytes()), wire) == TargetRow(None, probs)


def test_repeated_candidates_are_cheap() -> None:
    wire = WireFormat(49152)
    writer = BitWriter()
    write_source(writer, Candidates(np.array([9] * 256), np.full(256, 0.5, dtype=np.float32)), wire)
    assert writer.bits == 1 + 16 + 48  # that they are candidates, counts, one id, one probability


@pytest.mark.parametrize(
    ("correction", "reason"),
    [
        (TargetRow(None, np.full(4, 0.25, np.float32)), "5 probabilities, found 4"),
        (TargetRow(None, np.zeros(5, np.float32)), "found 0 ids"),
        (TargetRow(None, np.array([np.nan, 1, 0, 0, 0], np.float32)), "in .0, 1."),
        (TargetRow(None, np.array([2, 1, 0, 0, 0], np.float32)), "in .0, 1."),
        (TargetRow(np.array([1, 1]), np.array([0.5, 0.5], np.float32)), "ascending"),
        (TargetRow(np.array([1, 2]), np.array([1.0], np.float32)), "one probability each"),
        (TargetRow(np.array([1, 5]), np.array([0.5, 0.5], np.float32)), r"0\.\.4"),
        (TargetRow(np.array([-1, 2]), np.array([0.5, 0.5], np.float32)), r"0\.\.4"),
        (TargetRow(np.arange(1, 6), np.full(5, 0.125, np.float32)), r"0\.\.4"),
        (TargetRow(np.array([1]), np.array([0.0], np.float32)), "one above 0"),
        (TargetRow(np.array([1]), np.array([0.3], np.float32)), "fp16 holds exactly"),
        (Candidates(np.array([], dtype=np.int64), np.array([], dtype=np.float32)), "found 0"),
        (Candidates(np.array([1, 1]), np.array([0.5, 0.25], np.float32)), "a token with several"),
        (Candidates(np.array([1, 2]), np.array([0.5], np.float32)), "a probability each"),
        (Candidates(np.array([7]), np.array([0.5], np.float32)), r"0\.\.4"),
        (Candidates(np.array([1]), np.array([-0.5], np.float32)), "in .0, 1."),
    ],
)
def test_what_is_no_correction_is_not_sent(correction: CorrectionSource, reason: str) -> None:
    wire = WireFormat(5, row_field=FloatField.FP16)
    with pytest.raises(MessageError, match=reason):
        write_source(BitWriter(), correction, wire)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ([(1, 1), (3, 2)], "form of row, found 3"),
        ([(0, 1), (0, 2)], "form of row, found 0"),  # a sparse row sent as a whole one
        ([(0, 1), (1, 2), (0, 4)], "one above 0"),  # no tokens
        ([(0, 1), (1, 2), (2, 4), (3, 3), (2, 3)], "ascending"),
        ([(0, 1), (2, 2), (1, 5), (0x4000, 16)], "in .0, 1."),
        ([(1, 1), (0, 2), (0x7E00, 16)], "NaN"),
    ],
)
def test_bits_that_are_no_row_are_refused(fields: list[tuple[int, int]], reason: str) -> None:
    writer = BitWriter()
    writer.flag(value=False)
    for value, width in fields:
        writer.uint(value, width)
    with pytest.raises(MessageError, match=reason):
        read_source(BitReader(writer.to_bytes() + bytes(20)), WireFormat(5, row_field=FloatField.FP16))


@pytest.mark.parametrize(
    ("draws", "distinct", "fields", "reason"),
    [
        (1, 2, [], "found 1 and 2"),
        (2**20, 1, [], "found 1048576 and 1"),  # a million draws of one token cost no bits
        (3, 2, [(3, 3), (3, 3)], "ascending"),
        (4, 3, [(1, 3), (2, 3), (3, 3), (0x3800, 16), (0x3400, 16), (0x3400, 16), (3, 2)], "below 3, found 3"),
        (1, 1, [(1, 3), (0xB800, 16)], "in .0, 1."),
    ],
)
def test_bits_that_are_no_candidates_are_refused(
    draws: int, distinct: int, fields: list[tuple[int, int]], reason: str
) -> None:
    writer = BitWriter()
    writer.flag(value=True)
    writer.count(draws - 1)
    writer.count(distinct - 1)
    for value, width in fields:
        writer.uint(value, width)
    with pytest.raises(MessageError, match=reason):
        read_source(BitReader(writer.to_bytes() + bytes(20)), WireFormat(5, row_field=FloatField.FP16))

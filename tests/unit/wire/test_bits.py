from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outrider.contracts.errors import MessageError
from outrider.contracts.exchanged import FloatField
from outrider.sampling.rounding import round_floats
from outrider.wire.bits import BitReader, BitWriter, id_bits


@given(st.lists(st.integers(0, 64).flatmap(lambda width: st.tuples(st.integers(0, 2**width - 1), st.just(width)))))
def test_numbers_of_any_width_come_back_in_order(numbers: list[tuple[int, int]]) -> None:
    writer = BitWriter()
    for value, width in numbers:
        writer.uint(value, width)
    assert writer.bits == sum(width for _, width in numbers)
    data = writer.to_bytes()
    assert len(data) == (writer.bits + 7) // 8
    reader = BitReader(data)
    assert [reader.uint(width) for _, width in numbers] == [value for value, _ in numbers]
    reader.finish()


@given(st.integers(1, 64), st.integers(0, 9), st.integers(0, 40), st.integers(0, 2**32))
def test_an_array_is_written_as_its_numbers_one_by_one(width: int, before: int, length: int, seed: int) -> None:
    rng = Random(seed)
    values = [rng.getrandbits(width) for _ in range(length)]
    together, singly = BitWriter(), BitWriter()
    for writer in (together, singly):
        writer.uint(2**before - 1, before)
    together.uints(np.array(values, dtype=np.uint64), width)
    for value in values:
        singly.uint(value, width)
    for writer in (together, singly):
        writer.uint(1, 1)
    assert together.to_bytes() == singly.to_bytes()
    reader = BitReader(together.to_bytes())
    reader.uint(before)
    assert reader.uints(length, width).tolist() == values
    assert reader.flag()
    reader.finish()


@given(st.integers(0, 2**30))
def test_counts_come_back(value: int) -> None:
    writer = BitWriter()
    writer.count(value)
    assert BitReader(writer.to_bytes()).count() == value


@pytest.mark.parametrize(("value", "bits"), [(0, 4), (7, 4), (8, 8), (71, 8), (72, 12), (583, 12), (584, 16)])
def test_small_counts_are_short(value: int, bits: int) -> None:
    writer = BitWriter()
    writer.count(value)
    assert writer.bits == bits


def test_a_count_without_end_is_refused() -> None:
    with pytest.raises(MessageError, match="count"):
        BitReader(b"\xff" * 100).count()


@pytest.mark.parametrize(("vocab_size", "bits"), [(2, 1), (3, 2), (5, 3), (256, 8), (257, 9), (49152, 16), (65537, 17)])
def test_an_id_takes_the_logarithm_of_the_vocabulary(vocab_size: int, bits: int) -> None:
    assert id_bits(vocab_size) == bits
    writer = BitWriter()
    writer.ids([0, vocab_size - 1], vocab_size)
    assert writer.bits == 2 * bits
    assert BitReader(writer.to_bytes()).ids(2, vocab_size).tolist() == [0, vocab_size - 1]


def test_ids_outside_the_vocabulary_are_neither_written_nor_read() -> None:
    with pytest.raises(MessageError, match=r"0\.\.4"):
        BitWriter().ids([5], 5)
    with pytest.raises(MessageError, match=r"0\.\.4"):
        BitWriter().ids([-1], 5)
    with pytest.raises(MessageError, match=r"found 7\.\.7"):
        BitReader(b"\xff").ids(1, 5)


def test_numbers_that_do_not_fit_are_not_written() -> None:
    with pytest.raises(MessageError, match=r"0\.\.7"):
        BitWriter().uint(8, 3)
    with pytest.raises(MessageError, match=r"0\.\.7"):
        BitWriter().uint(-1, 3)
    with pytest.raises(MessageError, match=r"0\.\.7"):
        BitWriter().uints([1, 8], 3)
    with pytest.raises(MessageError, match=r"0\.\.7"):
        BitWriter().uints([-1], 3)


@pytest.mark.parametrize("field", list(FloatField))
@given(seed=st.integers(0, 2**32), before=st.integers(0, 7))
@settings(max_examples=30)
def test_rounded_vectors_come_back(field: FloatField, seed: int, before: int) -> None:
    numbers = np.random.default_rng(seed)
    values = round_floats((numbers.standard_normal(numbers.integers(0, 30)) * 100).astype(np.float32), field)
    values[numbers.random(values.size) < 0.2] = -np.inf
    values = round_floats(values, field)
    writer = BitWriter()
    writer.uint(0, before)
    writer.floats(values, field)
    reader = BitReader(writer.to_bytes())
    reader.uint(before)
    decoded = reader.floats(values.size, field)
    assert decoded.dtype == np.float32
    assert np.array_equal(decoded, values)


def test_a_vector_that_was_not_rounded_is_not_written() -> None:
    with pytest.raises(MessageError, match="round them before"):
        BitWriter().floats(np.array([0.1], dtype=np.float32), FloatField.FP16)
    with pytest.raises(MessageError, match="below infinity"):
        BitWriter().floats(np.array([np.nan], dtype=np.float32), FloatField.FP32)


@pytest.mark.parametrize("field", list(FloatField))
def test_no_damage_makes_a_reader_return_nan_or_infinity(field: FloatField) -> None:
    rng = Random(1)
    refused = 0
    for _ in range(2000):
        data = bytes(rng.choice([0, 0x7F, 0x80, 0xFF, rng.randrange(256)]) for _ in range(12))
        try:
            values = BitReader(data).floats(2, field)
        except MessageError:
            refused += 1
            continue
        assert (values < np.inf).all()
    assert 0 < refused < 2000


@pytest.mark.parametrize("length", [1, 2**40, 2**62])
def test_nothing_is_allocated_for_what_is_not_there(length: int) -> None:
    reader = BitReader(b"")
    with pytest.raises(MessageError, match="truncated"):
        reader.uints(length, 16)
    with pytest.raises(MessageError, match="truncated"):
        reader.floats(length, FloatField.INT8)
    with pytest.raises(MessageError, match="truncated"):
        reader.ascending_ids(length, 49152)


def test_what_is_left_over_is_refused() -> None:
    reader = BitReader(b"\x80\x00")
    assert reader.flag()
    with pytest.raises(MessageError, match="oversized: 1 bytes"):
        reader.finish()
    reader = BitReader(b"\x81")
    assert reader.flag()
    with pytest.raises(MessageError, match="padding"):
        reader.finish()

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outrider.contracts.errors import ParameterError
from outrider.contracts.exchanged import FloatField, FloatRow, WireFormat
from outrider.sampling.distributions import softmax
from outrider.sampling.rounding import round_floats, rounded_logits, truncated

_STEPS = {FloatField.FP32: 2.0**-24, FloatField.FP16: 2.0**-11, FloatField.BF16: 2.0**-8}  # half a step, relative
FINITE = st.floats(-1e4, 1e4, width=32) | st.floats(-(2.0**-10), 2.0**-10, width=32) | st.just(-np.inf)
ROWS = st.lists(FINITE, min_size=1, max_size=40).map(lambda values: np.array(values, dtype=np.float32))
LOGITS = ROWS.filter(lambda row: bool(np.isfinite(row).any()))


@pytest.mark.parametrize("field", list(FloatField))
@given(row=ROWS)
def test_rounding_twice_is_rounding_once(field: FloatField, row: FloatRow) -> None:
    once = round_floats(row, field)
    assert once.dtype == np.float32
    assert np.array_equal(round_floats(once, field), once)
    assert np.array_equal(np.isneginf(once), np.isneginf(row))


@pytest.mark.parametrize("field", list(_STEPS))
@given(row=ROWS)
def test_rounding_is_to_the_nearest(field: FloatField, row: FloatRow) -> None:
    finite = row[np.isfinite(row)].astype(np.float64)
    smallest = 2.0**-25 if field is FloatField.FP16 else 2.0**-126  # half of fp16's absolute step near 0
    assert np.all(np.abs(round_floats(finite, field) - finite) <= np.abs(finite) * _STEPS[field] + smallest)


@given(row=ROWS)
def test_int8_rounds_to_127_steps(row: FloatRow) -> None:
    finite = row[np.isfinite(row)].astype(np.float64)
    largest = np.abs(finite).max(initial=0.0)
    # The scale is below twice the largest magnitude's 127th part.
    assert np.all(np.abs(round_floats(finite, FloatField.INT8) - finite) <= largest / 127 + 2.0**-150)


def test_bf16_rounds_ties_to_even() -> None:
    step = 2.0**-7
    halves = np.array([1 + step / 2, 1 + 3 * step / 2, 1 + step / 2 + 2.0**-20], dtype=np.float32)
    assert round_floats(halves, FloatField.BF16).tolist() == [1.0, 1 + 2 * step, 1 + step]


@pytest.mark.parametrize("field", list(FloatField))
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_what_is_no_number_is_refused(field: FloatField, bad: float) -> None:
    row = np.array([0.0, bad], dtype=np.float32)
    with pytest.raises(ParameterError, match="below infinity"):
        round_floats(row, field)
    with pytest.raises(ParameterError, match="finite largest"):
        rounded_logits(row, field)
    with pytest.raises(ParameterError, match="finite largest"):
        truncated(row, WireFormat(2, field))
    with pytest.raises(ParameterError, match="finite largest"):
        rounded_logits(np.full(3, -np.inf, dtype=np.float32), field)


def test_above_a_range_is_refused_and_below_it_is_removed() -> None:
    with pytest.raises(ParameterError, match="range of fp16"):
        round_floats([70000.0], FloatField.FP16)
    for field in (FloatField.BF16, FloatField.INT8):
        with pytest.raises(ParameterError, match="range"):
            round_floats([np.finfo(np.float32).max], field)
    assert round_floats([-70000.0], FloatField.FP16).tolist() == [-np.inf]


@pytest.mark.parametrize("field", list(FloatField))
@given(row=LOGITS)
def test_rounded_logits_end_at_zero_and_stay_what_they_are(field: FloatField, row: FloatRow) -> None:
    rounded = rounded_logits(row, field)
    assert rounded.max() == 0.0
    assert rounded[row.argmax()] == 0.0
    assert np.isneginf(rounded[np.isneginf(row)]).all()
    assert np.array_equal(rounded_logits(rounded, field), rounded)
    assert np.array_equal(round_floats(rounded, field), rounded)


def test_logits_below_the_range_are_removed() -> None:
    row = np.array([3e38, -3e38, 0.0], dtype=np.float32)
    for field in FloatField:
        assert rounded_logits(row, field)[1] == -np.inf
    row = np.array([0.0, -15.9, -15.8, -70000.0], dtype=np.float32)
    assert np.isneginf(rounded_logits(row, FloatField.INT8)).tolist() == [False, True, False, True]
    assert np.isneginf(rounded_logits(row, FloatField.FP16)).tolist() == [False, False, False, True]
    assert not np.isneginf(rounded_logits(row, FloatField.BF16)).any()


@given(
    row=LOGITS,
    field=st.sampled_from(list(FloatField)),
    top_k=st.integers(0, 45),
    top_rho=st.sampled_from([1.0, 0.999, 0.9, 0.5, 0.1, 1e-9]),
    tied=st.booleans(),
)
@settings(max_examples=400)
def test_truncation_keeps_the_smallest_set_of_the_best(
    row: FloatRow, field: FloatField, top_k: int, top_rho: float, *, tied: bool
) -> None:
    if tied:
        row = np.where(np.isfinite(row), np.round(row / 5000), row).astype(np.float32)
    wire = WireFormat(row.size, field, top_k=top_k, top_rho=top_rho)
    token_ids, logits = truncated(row, wire)
    # The reference: one token after the other, in order of logit and id, until both limits stop it.
    probs = softmax(row)
    wanted: list[int] = []
    for token_id in sorted(range(row.size), key=lambda i: (-row[i], i)):
        full = top_k and len(wanted) == top_k
        enough = top_rho < 1.0 and sum(probs[i] for i in wanted) >= top_rho - 1e-12
        if not np.isfinite(row[token_id]) or full or enough:
            break
        wanted.append(token_id)
    shifted = rounded_logits(row[sorted(wanted)], field)
    assert token_ids.dtype == np.int64
    assert token_ids.tolist() == np.array(sorted(wanted))[np.isfinite(shifted)].tolist()
    assert np.array_equal(logits, shifted[np.isfinite(shifted)])
    assert 1 <= token_ids.size <= (top_k or row.size)
    assert np.array_equal(round_floats(logits, field), logits)


def test_a_first_token_with_mass_rho_is_kept_alone() -> None:
    """TSLT eq. 14 as printed would keep nothing."""
    token_ids, logits = truncated(np.array([0.0, 5.0, 0.0], dtype=np.float32), WireFormat(3, top_rho=0.9))
    assert token_ids.tolist() == [1]
    assert logits.tolist() == [0.0]


def test_equal_logits_give_way_by_id() -> None:
    token_ids, _ = truncated(np.array([1, 2, 1, 1, 2], dtype=np.float32), WireFormat(5, top_k=3))
    assert token_ids.tolist() == [0, 1, 4]

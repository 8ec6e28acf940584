import itertools
from math import prod

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.bench.papers.wisv.rounds import Method, Mismatches, OperatingPoint, link, link_s, mismatches, round_s, up_bits

NONE = Mismatches(0.0, 0.0)


def test_uplink_bits_by_hand() -> None:
    """Token ids take 17 bits of 128,256; a hidden state 2,048 of 16; a distribution one of 16 for each token."""
    assert up_bits(Method.SD_GREEDY, 10) == up_bits(Method.WISV_SELECTIVE, 10) == 170
    assert up_bits(Method.WISV_FULL, 10) == 170 + 10 * 32_768
    assert up_bits(Method.SD_REJECT, 10) == 170 + 10 * 2_052_096
    assert up_bits(Method.SD_GREEDY, 10, OperatingPoint(overhead_bits=400)) == 570


def test_full_upload_is_eq_6_by_hand() -> None:
    up, down = 170 + 10 * 32_768, 4 + 17  # an index of 0..10 and the correction
    assert link_s(Method.WISV_FULL, link(20e6, 0.05), 10, NONE) == pytest.approx((up + down) / 20e6 + 0.05)
    expected = 10 * 0.01889 + (up + down) / 20e6 + 0.05
    assert round_s(Method.WISV_FULL, link(20e6, 0.05), 10, NONE) == pytest.approx(expected)


def test_selective_upload_is_eq_10_by_hand() -> None:
    found = Mismatches(expected=2.0, any=1.0)
    point = OperatingPoint(overhead_bits=300)
    first, feedback = 170 + 300, 21 + 300
    request, second = 2 * 4 + 300, 2 * 32_768 + 300
    total = first + feedback + request + second
    assert link_s(Method.WISV_SELECTIVE, link(1e6, 0.05), 10, found, point) == pytest.approx(total / 1e6 + 0.1)


def test_a_block_without_mismatches_is_one_exchange_of_ids() -> None:
    for rtt_s in (0.001, 0.01, 0.1):
        csi = link(20e6, rtt_s)
        assert link_s(Method.WISV_SELECTIVE, csi, 24, NONE) == link_s(Method.SD_GREEDY, csi, 24, NONE)


@given(st.lists(st.floats(0.0, 1.0), min_size=1, max_size=5))
def test_mismatches_are_those_of_every_outcome(matches: list[float]) -> None:
    none = expected = 0.0
    for outcome in itertools.product((False, True), repeat=len(matches)):
        chance = prod(match if hit else 1.0 - match for match, hit in zip(matches, outcome, strict=True))
        expected += chance * outcome.count(False)
        none = chance if all(outcome) else none
    found = mismatches(matches)
    assert found.expected == pytest.approx(expected, abs=1e-12)
    assert found.any == pytest.approx(1.0 - none, abs=1e-12)

import numpy as np
import pytest

from lab.bench.protocols.bits import bits
from outrider.contracts.exchanged import WireFormat
from tests.unit.lab.bench.protocols.made_rounds import response, timing


def test_bits_are_told_apart_and_add_up() -> None:
    wire = WireFormat(vocab_size=1000)
    found = bits([response("token_ids", timing(2, 1), timing(2, 1), timing(0))], wire)
    assert found.both.mean == pytest.approx(10_000 / 4)  # rounds without a draft are left out
    assert found.envelope + found.ids + found.rest == pytest.approx(found.both.mean)
    assert found.drafted == pytest.approx(1.0)
    assert found.id_limit == pytest.approx((4 + 2) * np.log2(1000) / 4)
    assert found.ids == (4 + 2) * 10 / 4

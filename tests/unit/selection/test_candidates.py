"""How many draws replace a row."""

from dataclasses import replace

import numpy as np
import pytest

from outrider.contracts.exchanged import Deferral, FloatField, WireFormat
from outrider.contracts.link import Csi
from outrider.contracts.requests import SamplingParams
from outrider.protocols.dssd_candidates import candidate_count, failure_probability
from outrider.protocols.protocol import RoundTerms
from outrider.protocols.registry import PROTOCOLS
from tests.unit.selection.simulated_rounds import VOCAB, WIRE, link


@pytest.mark.parametrize("mass", [0.1, 0.4, 0.9])
@pytest.mark.parametrize("count", [1, 16, 256])
def test_failure_probability_is_the_mean_over_rejected_positions(mass: float, count: int) -> None:
    rng = np.random.default_rng(7)
    masses = rng.beta(mass, 1.0 - mass, size=2_000_000)
    mean = float((masses * (1.0 - masses) ** count).mean() / masses.mean())
    assert failure_probability(count, mass) == pytest.approx(mean, rel=0.05, abs=2e-4)


def count(mass: float, csi: Csi | None, wire: WireFormat = WIRE, top_k: int = 0) -> int:
    return candidate_count(RoundTerms(SamplingParams(top_k=top_k), wire, csi, mass))


def test_hundreds_at_usual_links_and_more_where_models_agree_or_a_round_trip_is_dear() -> None:
    assert all(64 <= count(mass, link(20, 20)) <= 512 for mass in (0.1, 0.3, 0.6))
    assert count(0.1, link(20, 20)) > count(0.7, link(20, 20))
    assert count(0.3, link(500, 50)) > count(0.3, link(500, 1))
    assert count(0.4, None) == count(0.4, link(1, 0)), "bits alone count"


def test_the_row_goes_where_it_is_smaller() -> None:
    assert count(0.4, link(20, 20), WireFormat(5)) == 0
    assert count(0.4, link(20, 20), top_k=2) == 0
    assert count(0.4, link(20, 20), top_k=VOCAB) > 0


def test_who_draws_a_correction_from_what() -> None:
    terms = RoundTerms(SamplingParams(), WIRE, link(20, 20), 0.4)
    candidates = candidate_count(terms)
    assert candidates > 0

    def deferral(protocol: str, **changes: object) -> Deferral | None:
        return PROTOCOLS[protocol].deferral(replace(terms, **changes))  # type: ignore[arg-type]  # fields by name

    assert deferral("dssd") == Deferral(FloatField.FP32, 0)
    assert deferral("dssd_candidates") == Deferral(FloatField.FP32, candidates)
    assert deferral("dssd_candidates", params=SamplingParams(top_k=2)) == Deferral(FloatField.FP32, 0)
    assert deferral("tslt") is None
    assert deferral("dssd", params=SamplingParams(temperature=0.0)) is None

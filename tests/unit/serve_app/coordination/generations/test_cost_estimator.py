"""Which coefficients a coordinator begins with."""

import logging
from dataclasses import replace

import pytest

from lab.simulation.reading import shipped_profile
from outrider.contracts.cost import DEFAULT_COST_MODEL, LinearCostModel
from outrider.costs.prior import PROFILED_MACHINE, UNKNOWN_MACHINE
from outrider.costs.profiles import WISP_TABLE_12, CostProfile, ProfiledOn, profile_of
from serve_app.coordination.generations.generations import cost_estimator

HERE = ProfiledOn(hardware="Some CPU", device="cpu", threads=1, engine="torch", model="small", dtype="float32")
MEASURED = LinearCostModel(1e-3, 0.0, 1e-6, 2e-2)


def profile(name: str, machine: ProfiledOn) -> CostProfile:
    return profile_of(name, MEASURED, machine, "2026-01-01", {})


FITS, ALSO = profile("fits", HERE), replace(profile("also", HERE), seconds_per_batch=1.0)
OTHERS = [
    profile("other-model", replace(HERE, model="large")),
    profile("other-dtype", replace(HERE, dtype="bfloat16")),
    profile("other-threads", replace(HERE, threads=2)),
    profile("other-engine", replace(HERE, engine="vllm")),
    profile("other-hardware", replace(HERE, hardware="Other CPU")),
    shipped_profile(WISP_TABLE_12),
]


def test_the_first_profile_that_fits_is_taken_and_trusted(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        estimator = cost_estimator((*OTHERS, FITS, ALSO), HERE)
    assert (estimator.model, estimator.prior_spread) == (MEASURED, PROFILED_MACHINE)
    levels = [(record.message, record.levelname) for record in caplog.records]
    assert levels == [("cost_profile_refused", "WARNING")] * len(OTHERS) + [("cost_profile_taken", "INFO")]


@pytest.mark.parametrize("profiles", [(), OTHERS], ids=["none", "others"])
def test_without_one_that_fits_the_built_in_model_is_a_guess(profiles: list[CostProfile]) -> None:
    estimator = cost_estimator(profiles, HERE)
    assert (estimator.model, estimator.prior_spread) == (DEFAULT_COST_MODEL, UNKNOWN_MACHINE)


def test_a_verifier_that_does_not_tell_its_machine_takes_none() -> None:
    assert cost_estimator((FITS,), None).model == DEFAULT_COST_MODEL

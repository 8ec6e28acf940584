"""In float32 a service answers token for token what plain transformers answers."""

from functools import partial

import pytest

from outrider.models.loading import LoadedModel
from tests.cluster.exactness import Alone, check_greedy, check_penalised, check_seeded
from tests.cluster.reference import plain
from tests.cluster.served import Service


@pytest.fixture(scope="module")
def alone(target: LoadedModel) -> Alone:
    return partial(plain, target)


def test_greedy_output_is_the_targets_own(service: Service, target: LoadedModel, alone: Alone) -> None:
    check_greedy(service, target, alone)


@pytest.mark.parametrize(
    ("temperature", "top_p"),
    [(0.7, 0.9), pytest.param(1.0, 1.0, marks=pytest.mark.long)],
    ids=lambda value: f"{value:g}",
)
def test_seeded_output_is_the_same_for_every_window_and_company(
    service: Service, target: LoadedModel, alone: Alone, temperature: float, top_p: float
) -> None:
    check_seeded(service, target, alone, temperature, top_p)


def test_penalties_and_bias_stay_exact_under_speculation(service: Service, target: LoadedModel, alone: Alone) -> None:
    check_penalised(service, target, alone)

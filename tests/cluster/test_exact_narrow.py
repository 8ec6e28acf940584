"""In bfloat16 a service answers token for token what its engine says alone, without drafts and one by one."""

from collections.abc import Iterator

import pytest

from outrider.config.reading import load_config
from outrider.engines.torch.linears import computes_bfloat16
from outrider.models.loading import LoadedModel
from tests.cluster.conftest import crowded
from tests.cluster.exactness import Alone, check_greedy, check_penalised, check_seeded
from tests.cluster.reference import EngineAlone
from tests.cluster.served import Service, started

pytestmark = pytest.mark.skipif(not computes_bfloat16(), reason="this processor does not compute in bfloat16")


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    """The least memory there may be."""
    with started(crowded(load_config(), "bfloat16", kv_budget_mib=16)) as service:
        yield service


@pytest.fixture(scope="module")
def alone() -> Alone:
    return EngineAlone("bfloat16").answer


def test_greedy_output_is_the_engines_own(service: Service, target: LoadedModel, alone: Alone) -> None:
    check_greedy(service, target, alone, clients=16)


def test_seeded_output_is_the_same_for_every_window_and_company(
    service: Service, target: LoadedModel, alone: Alone
) -> None:
    check_seeded(service, target, alone, 0.7, 0.9)


def test_penalties_and_bias_stay_exact_under_speculation(service: Service, target: LoadedModel, alone: Alone) -> None:
    check_penalised(service, target, alone)

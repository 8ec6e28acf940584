"""Load rises, a second verifier starts and takes traffic; load falls, it drains and goes. Nobody notices."""

import time
from collections.abc import Iterator
from dataclasses import asdict, replace

import pytest

from outrider.config.reading import load_config
from outrider.config.replicas import VerifierScalingConfig
from tests.cluster.served import Service, eventually, started
from tests.cluster.test_updates import ASKED, Clients, answer, undisturbed

pytestmark = pytest.mark.long

PLACES = 2  # at each verifier: the clients of ``Clients`` are twice as many
_WITHIN_S = 240.0


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    """One verifier, of which there may be two, without drafters."""
    config = load_config()
    config = replace(
        config,
        model=replace(config.model, dtype="float32"),
        verifiers=replace(
            config.verifiers,
            kv_budget_mib=64,
            autoscaling=VerifierScalingConfig(max=2, down_after_s=20.0),
        ),
        drafters=(),
        limits=replace(config.limits, max_concurrent_generations=PLACES),
        cluster=replace(config.cluster, num_cpus=12),
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "serve_app.app.asdict", lambda scaling: {**asdict(scaling), "cold_start_s": 20.0, "trend_s": 20.0}
        )
        with started(config) as service:
            yield service


def verifiers(service: Service) -> int:
    """That serve, those that only end what they have left out."""
    return len(service.coordinators())


@pytest.mark.long
def test_a_second_verifier_comes_takes_traffic_and_goes(service: Service) -> None:
    assert verifiers(service) == 1
    expected = undisturbed(service)
    with Clients(service.url) as clients:
        eventually(lambda: verifiers(service) == 2, _WITHIN_S)

        def both_have_committed() -> bool:
            reports = service.get("/status").get("coordinators", [])
            return len([report for report in reports if report["committed_tokens"]]) == 2

        eventually(both_have_committed, _WITHIN_S)
    assert {text == expected[number] for number, text in clients.answered} == {True}
    give_up_at_s, few = time.monotonic() + _WITHIN_S, 0
    while verifiers(service) != 1:  # one client goes on meanwhile
        assert time.monotonic() < give_up_at_s
        assert answer(service.url, few % len(ASKED)) == expected[few % len(ASKED)]
        few += 1
    assert answer(service.url, 0) == expected[0]
    eventually(lambda: [set(each.values()) for each in service.coordinators()] == [{0}], _WITHIN_S)

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.capacity_check import Claim, drafter_claims, misfit, place, service_claims
from outrider.config.drafters import DrafterGroupConfig
from outrider.config.replicas import IngressConfig, VerifierConfig
from outrider.config.schema import Config

SERVER = {"CPU": 16.0, "GPU": 2.0}
JETSON = {"jetson": 1.0}

amounts = st.dictionaries(st.sampled_from(["CPU", "GPU", "jetson"]), st.floats(0.5, 8), min_size=1)
claims = st.lists(st.builds(Claim, st.just("it"), st.just("field"), amounts), max_size=6)


def config(verifiers: VerifierConfig, drafters: int = 1) -> Config:
    return replace(Config(), verifiers=verifiers, drafters=(DrafterGroupConfig(name="edge", count=drafters),))


def test_ingress_coordinators_and_verifiers_claim_cpus_and_gpus() -> None:
    claims = service_claims(config(VerifierConfig(count=2, device="cuda", num_gpus=1.0, num_cpus=3.0)))
    assert [(claim.who, dict(claim.resources)) for claim in claims] == [
        ("ingress", {"CPU": 0.5}),
        *[("coordinator", {"CPU": 0.5}), ("verifier", {"CPU": 3.0, "GPU": 1.0})] * 2,
    ]
    assert misfit(claims, [SERVER]) is None


@pytest.mark.parametrize(
    ("verifiers", "nodes", "message"),
    [
        (
            VerifierConfig(num_gpus=1.0),
            [{"CPU": 8.0}, JETSON],
            "verifiers needs a node with 1 CPU, 1 GPU for a verifier, found '1 jetson; 8 CPU'",
        ),
        (VerifierConfig(), [], "ingress.count needs a node with 0.5 CPU for a ingress, found 'no nodes'"),
        (
            VerifierConfig(num_gpus=1.0, count=3),
            [SERVER],
            "verifiers needs 3 GPU in the cluster for all of verifier: lower it, or add nodes, found '2'",
        ),
        (
            VerifierConfig(num_cpus=8.0, count=2),
            [SERVER],
            (
                "verifiers needs 17.5 CPU in the cluster for all of coordinator, ingress, verifier: "
                "lower it, or add nodes, found '16'"
            ),
        ),
        (
            VerifierConfig(resources={"verifier": 1.0}),
            [SERVER],
            "verifiers needs a node with 1 CPU, 1 verifier for a verifier, found '16 CPU, 2 GPU'",
        ),
    ],
)
def test_what_never_fits_is_named(verifiers: VerifierConfig, nodes: list[dict[str, float]], message: str) -> None:
    assert str(misfit(service_claims(config(verifiers)), nodes)) == message


def test_drafters_without_a_node_are_told() -> None:
    claims = drafter_claims(config(VerifierConfig(), drafters=3))
    assert place(claims, [SERVER, JETSON, JETSON]) == claims[:1]
    assert place(claims, [SERVER, {"jetson": 3.0}]) == ()


@given(claims, st.lists(amounts, max_size=4))
def test_what_can_be_placed_is_no_misfit(claims: list[Claim], nodes: list[dict[str, float]]) -> None:
    homeless = place(claims, nodes)
    assert set(map(id, homeless)) <= set(map(id, claims))
    if not homeless:
        assert misfit(claims, nodes) is None


def test_every_ingress_claims_its_share() -> None:
    claims = service_claims(replace(config(VerifierConfig()), ingress=IngressConfig(count=3)))
    assert [claim.who for claim in claims].count("ingress") == 3

"""Configurations of the papers' systems."""

import pytest

from outrider.config.reading import load_config
from tests.unit.deployment.manifests import ROOT

PAPERS = ROOT / "cluster" / "papers"
SYSTEMS = {  # scheduling, protocols that devices draft by
    "centralized": ("fcfs", None),
    "sled": ("fcfs", ("token_ids",)),
    "wisp": ("wisp", ("token_ids",)),
    "wisv": ("slo_aware", ("wisv_full", "wisv_selective")),
    "tslt": ("slo_aware", ("tslt_tree",)),
    "dssd": ("slo_aware", ("dssd",)),
}


def test_every_system_has_one() -> None:
    assert {file.stem for file in PAPERS.glob("*.yaml")} == set(SYSTEMS)


@pytest.mark.parametrize("system", SYSTEMS)
def test_it_is_the_papers_system(system: str) -> None:
    config = load_config(str(PAPERS / f"{system}.yaml"))
    scheduling, protocols = SYSTEMS[system]
    assert config.scheduling.policy == scheduling
    assert (config.speculation.protocols if config.drafters else None) == protocols
    assert config.speculation.lookup_window == 0, "no draft of a kind that the paper has not"
    assert not config.admission.enabled
    assert [group.stopping.rule for group in config.drafters] == ["stop_before" if system == "wisp" else "never"][
        : len(config.drafters)
    ]


def test_wisvs_requests_are_judged() -> None:
    config = load_config(str(PAPERS / "wisv.yaml"))
    assert config.slo.slo_classes[0].semantic

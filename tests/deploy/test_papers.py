"""The papers' systems, each served by its configuration: a request is answered by the protocol that is the paper's."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from outrider.protocols.registry import PROTOCOLS
from tests.cluster.served import TOKENS, served
from tests.unit.deployment.manifests import ROOT

pytestmark = [pytest.mark.cluster, pytest.mark.long]

_MOST_ASKED = 10  # times for a response with a draft: a device may not be ready at the first
SYSTEMS: dict[str, tuple[set[str], dict[str, Any]]] = {  # protocols of drafts, and what a request asks for
    "centralized": (set(), {"temperature": 1.0}),
    "sled": ({"token_ids"}, {"temperature": 1.0}),
    "wisp": ({"token_ids"}, {"temperature": 1.0}),
    "wisv": ({"wisv_full", "wisv_selective"}, {"temperature": 0}),
    "tslt": (
        {"tslt_tree"},
        {"temperature": 1.0, "outrider": {"protocol": "tslt_tree", "window": 3, "expansion": [2, 2, 2]}},
    ),
    "dssd": ({"dssd"}, {"temperature": 1.0}),
}


def test_no_file_is_left_out() -> None:
    assert {file.stem for file in (ROOT / "cluster" / "papers").glob("*.yaml")} == set(SYSTEMS)


@pytest.mark.parametrize("system", SYSTEMS)
def test_a_request_is_answered_as_the_paper_has_it(tmp_path: Path, system: str) -> None:
    protocols, request = SYSTEMS[system]
    settings = yaml.safe_load((ROOT / "cluster" / "papers" / f"{system}.yaml").read_text(encoding="utf-8"))
    told: dict[str, Any] = {}
    with served(tmp_path, settings) as service:
        for _ in range(_MOST_ASKED):
            answer = service.complete("Once upon a time", ignore_eos=True, **request)
            assert answer["usage"]["completion_tokens"] == TOKENS
            told = answer["usage"]["outrider"]["protocols"]
            if not protocols or protocols & set(told):
                break
    assert set(told) & set(PROTOCOLS) <= protocols
    assert bool(set(told) & protocols) == bool(protocols)

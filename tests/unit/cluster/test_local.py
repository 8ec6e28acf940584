"""Who listens on an embedded service's port."""

import pytest

from cluster.local import ingress_variables
from outrider.config.reading import load_config, override


def test_the_only_ingress_listens_on_the_services_port_and_no_other() -> None:
    variables = ingress_variables(override(load_config(), ["http.port=8123"]))
    assert variables["RAY_SERVE_ENABLE_DIRECT_INGRESS"] == "1"
    first, behind_last = (int(variables[f"RAY_SERVE_DIRECT_INGRESS_{end}_HTTP_PORT"]) for end in ("MIN", "MAX"))
    assert list(range(first, behind_last)) == [8123]


def test_several_ingresses_share_a_port_behind_a_proxy() -> None:
    assert not ingress_variables(override(load_config(), ["ingress.count=2"]))


def test_haproxy_is_left_to_whoever_asks_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_SERVE_ENABLE_HA_PROXY", "1")
    assert not ingress_variables(load_config())

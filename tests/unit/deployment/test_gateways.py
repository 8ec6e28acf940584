"""What is reached from outside is /v1 over TLS; the gateway of upgrades, in clear text, is not."""

import copy
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml

from tests.unit.deployment.manifests import ROOT, built
from tests.unit.deployment.test_kubernetes import KUBERNETES, README

FIELDS = yaml.safe_load((ROOT / "tests/unit/deployment/gateway_fields.yaml").read_text(encoding="utf-8"))
GATEWAY_CLASS, DEFAULTS = yaml.safe_load_all((ROOT / "k8s/gateway-class.yaml").read_text(encoding="utf-8"))


def accepted(document: dict[str, Any]) -> None:
    jsonschema.Draft202012Validator(FIELDS[document["kind"]]).validate(document)


def public() -> tuple[dict[str, Any], dict[str, Any]]:
    """The gateway that is reached from outside, and its only route."""
    (gateway,), (route,) = built("production").of_kind("Gateway"), built("production").of_kind("HTTPRoute")
    return gateway, route


def test_the_gateway_api_accepts_everything() -> None:
    for document in (*public(), GATEWAY_CLASS):
        accepted(document)
    kubernetes_validate.validate(DEFAULTS, KUBERNETES, strict=True)


def test_a_field_that_the_gateway_api_does_not_know_is_found() -> None:
    route = copy.deepcopy(public()[1])
    route["spec"]["rules"][0]["timeout"] = "0s"
    with pytest.raises(jsonschema.ValidationError, match="timeout"):
        accepted(route)


def test_the_gateway_of_upgrades_has_a_class_whose_services_are_not_public() -> None:
    options = built("production").upgrade["clusterUpgradeOptions"]
    assert options["gatewayClassName"] == GATEWAY_CLASS["metadata"]["name"]
    assert DEFAULTS["metadata"]["labels"] == {
        "gateway.istio.io/defaults-for-class": GATEWAY_CLASS["metadata"]["name"],
    }
    assert yaml.safe_load(DEFAULTS["data"]["service"]) == {"spec": {"type": "ClusterIP"}}


def test_outside_is_the_api_alone_over_tls() -> None:
    gateway, route = public()
    (listener,) = gateway["spec"]["listeners"]
    assert (listener["protocol"], listener["port"]) == ("HTTPS", 443)
    assert [parent["name"] for parent in route["spec"]["parentRefs"]] == [gateway["metadata"]["name"]]
    assert route["spec"]["hostnames"] == [listener["hostname"]]
    (rule,) = route["spec"]["rules"]
    assert rule["matches"] == [{"path": {"type": "PathPrefix", "value": "/v1"}}]
    service, options = built("production").service, built("production").upgrade["clusterUpgradeOptions"]
    inner = f"{service['metadata']['name']}-gateway-{options['gatewayClassName']}"  # as Istio names it
    assert rule["backendRefs"] == [{"name": inner, "port": 80}]
    assert f"http://{inner}.outrider" in README


def test_the_gateway_of_upgrades_is_reached_by_the_public_one_and_who_may_ask_inside() -> None:
    gateway = f"{built('production').service['metadata']['name']}-gateway"
    (policy,) = [
        one
        for one in built("production").of_kind("NetworkPolicy")
        if one["spec"]["podSelector"] == {"matchLabels": {"gateway.networking.k8s.io/gateway-name": gateway}}
    ]
    (rule,) = policy["spec"]["ingress"]
    assert [tuple(one) for one in rule["from"]] == [("podSelector",), ("namespaceSelector",)]
    name = public()[0]["metadata"]["name"]
    assert rule["from"][0]["podSelector"]["matchLabels"] == {"gateway.networking.k8s.io/gateway-name": name}

"""Devices that dial in on Kubernetes: what reaches gateways, and an ingress that ends TLS before them."""

import json
import re
from typing import Any

import pytest
import yaml

from outrider.wire.dialling import DEVICE_PATH, FILES_PATH
from tests.unit.deployment.chart import installed, preset, rendered
from tests.unit.deployment.manifests import ROOT, Overlay, built
from tests.unit.deployment.test_chart import accepted

TERMINATED: dict[str, Any] = {
    "gateways": {
        **preset("devices")["gateways"],
        "address": "devices.example:443",
        "serviceType": "ClusterIP",
        "ingress": {"className": "traefik", "namespace": "traefik", "annotations": {"a/b": "HTTPS"}},
    },
    "config": {**preset("devices")["config"], "gateway": {"proxies": ["10.0.0.0/8"]}},
}


def of_readme() -> list[dict[str, Any]]:
    """Values that k8s/README.md shows for an ingress: with device keys, and what certificates need besides."""
    blocks = re.findall(r"```yaml\n(.*?)```", (ROOT / "k8s/README.md").read_text(encoding="utf-8"), re.DOTALL)
    return [read for block in blocks if "gateways" in (read := yaml.safe_load(block))]


def test_the_ingress_of_the_readme_is_taken() -> None:
    keys, certificates = of_readme()
    ingress = {**keys["gateways"]["ingress"]}
    none: dict[str, str] = {}
    for more in (none, certificates["gateways"]["ingress"]["annotations"]):
        ingress["annotations"] = {**ingress["annotations"], **more}
        gateway = {**keys["config"]["gateway"], **(certificates["config"]["gateway"] if more else {})}
        values = {
            "gateways": {**preset("devices")["gateways"], **keys["gateways"], "ingress": ingress},
            "config": {**preset("devices")["config"], "gateway": gateway},
        }
        overlay = installed(values)
        accepted(overlay)
        (made,), config = overlay.of_kind("Ingress"), overlay.config.gateway
        assert made["metadata"]["annotations"] == ingress["annotations"]
        assert config.address == "devices.example.com:443"
        assert (config.identity_header is not None) is bool(more)


def policy_of(overlay: Overlay) -> dict[str, Any]:
    (policy,) = (one for one in overlay.of_kind("NetworkPolicy") if one["metadata"]["name"] == "outrider-devices")
    return policy


def test_devices_reach_gateways_and_nothing_else() -> None:
    overlay = built("devices")
    group, policy = overlay.groups["gateway"], policy_of(overlay)
    (service,), (budget,) = overlay.of_kind("Service"), overlay.of_kind("PodDisruptionBudget")
    labels = {"app.kubernetes.io/part-of": "outrider", "ray.io/group": group.name}
    (port,) = service["spec"]["ports"]
    assert group.ports[port["targetPort"]] == port["port"] == overlay.config.gateway.port
    assert policy["spec"]["ingress"] == [{"ports": [{"port": port["targetPort"]}]}]
    assert service["spec"]["selector"] == labels
    assert policy["spec"]["podSelector"]["matchLabels"] == budget["spec"]["selector"]["matchLabels"] == labels
    assert budget["spec"]["minAvailable"] == group.replicas - 1
    assert service["spec"]["externalTrafficPolicy"] == "Local", "a gateway bounds what one address costs"


def test_there_is_a_gateway_in_each_of_its_pods_with_the_files_that_it_reads() -> None:
    overlay = built("devices")
    group, config = overlay.groups["gateway"], overlay.config.gateway
    assert (config.count, config.actors) == (group.replicas, group.replicas)
    assert all(group.offered[name] >= claim for name, claim in config.resources.items())
    mounts = {one["mountPath"] for one in group.container["volumeMounts"]}
    files = (config.certificate, config.private_key, config.devices_file)
    assert {file.rpartition("/")[0] for file in files if file is not None} == mounts
    assert overlay.secrets() == {"outrider-gateway-tls", "outrider-devices"}


@pytest.mark.parametrize(
    ("address", "dialled"),
    [("devices.example", "devices.example:443"), ("devices.example:8444", "devices.example:8444")],
)
def test_behind_an_ingress_devices_are_told_its_port(address: str, dialled: str) -> None:
    overlay = installed({**TERMINATED, "gateways": {**TERMINATED["gateways"], "address": address}})
    assert overlay.config.gateway.address == dialled
    (ingress,) = overlay.of_kind("Ingress")
    assert ingress["spec"]["rules"][0]["host"] == "devices.example"


def test_an_ingress_that_ends_tls_leads_to_the_gateway_alone() -> None:
    overlay = installed(TERMINATED)
    accepted(overlay)
    (ingress,), (service,) = overlay.of_kind("Ingress"), overlay.of_kind("Service")
    assert service["spec"]["type"] == "ClusterIP", "nobody passes it by"
    (rule,) = policy_of(overlay)["spec"]["ingress"]
    assert rule["from"] == [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "traefik"}}}]
    (rule,), (tls,) = ingress["spec"]["rules"], ingress["spec"]["tls"]
    assert tls == {"hosts": ["devices.example"], "secretName": "outrider-devices-tls"}
    assert rule["host"] == "devices.example"
    paths = {path["path"]: path["backend"]["service"] for path in rule["http"]["paths"]}
    assert set(paths) == {DEVICE_PATH, FILES_PATH.rstrip("/")}
    for backend in paths.values():
        assert backend == {"name": service["metadata"]["name"], "port": {"name": service["spec"]["ports"][0]["name"]}}
    assert overlay.config.gateway.proxies == ("10.0.0.0/8",)


@pytest.mark.parametrize(
    "change",
    [
        {"gateways": {"serviceType": "LoadBalancer"}},
        {"gateways": {"ingress": {**TERMINATED["gateways"]["ingress"], "namespace": ""}}},
        {"config": preset("devices")["config"]},
    ],
    ids=json.dumps,
)
def test_whom_a_header_names_is_believed_of_the_ingress_alone(change: dict[str, Any]) -> None:
    values = {
        "gateways": {**TERMINATED["gateways"], **change.get("gateways", {})},
        "config": change.get("config", TERMINATED["config"]),
    }
    (answer,) = rendered(values)
    assert "gateways.ingress.className needs serviceType: ClusterIP" in answer["error"]

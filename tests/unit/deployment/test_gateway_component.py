"""Gateways on Kubernetes: what the component adds to an overlay is accepted, and agrees with itself."""

import json
import os
from pathlib import Path

import jsonschema
import pytest
import yaml

from outrider import __version__
from outrider.wire.dialling import DEVICE_PATH, FILES_PATH
from tests.unit.deployment.manifests import ROOT, Overlay, kustomized
from tests.unit.deployment.test_kubernetes import KUBERAY, accepted

COMPONENT = ROOT / "k8s" / "components" / "gateway"


def with_gateways(folder: Path, *components: str) -> Overlay:
    """The small overlay with this component, and others."""

    def place(*parts: str) -> str:
        return os.path.relpath(ROOT.joinpath("k8s", *parts), folder)

    text = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": [place("overlays", "small")],
        "components": [place("components", name) for name in ("gateway", *components)],
        "namespace": "outrider",
    }
    (folder / "kustomization.yaml").write_text(yaml.safe_dump(text), encoding="utf-8")
    return Overlay("gateway", kustomized(str(folder)))


@pytest.mark.parametrize("components", [(), ("gateway/terminated",)], ids=["passed through", "terminated"])
def test_kubernetes_and_kuberay_accept_it(components: tuple[str, ...], tmp_path: Path) -> None:
    overlay = with_gateways(tmp_path, *components)
    for document in overlay.documents:
        if document["kind"] != "RayService":
            accepted(document)
    template = overlay.groups["gateway"].spec["template"]
    accepted({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "pod"}, **template})
    jsonschema.Draft202012Validator(KUBERAY).validate(overlay.service)
    assert {"outrider-gateway-tls", "outrider-devices"} <= overlay.secrets()
    assert not overlay.of_kind("Secret")
    assert overlay.groups["gateway"].container["image"] == f"registry.example/outrider-cuda:{__version__}"


def test_devices_reach_gateways_and_nothing_else(tmp_path: Path) -> None:
    overlay = with_gateways(tmp_path)
    group = overlay.groups["gateway"]
    (service,) = overlay.of_kind("Service")
    (policy,) = (one for one in overlay.of_kind("NetworkPolicy") if one["metadata"]["name"] == "outrider-devices")
    (budget,) = overlay.of_kind("PodDisruptionBudget")
    labels = {"app.kubernetes.io/part-of": "outrider", "ray.io/group": group.name}
    (port,) = service["spec"]["ports"]
    assert group.ports[port["targetPort"]] == port["port"] == 8443
    assert policy["spec"]["ingress"] == [{"ports": [{"port": port["targetPort"]}]}]
    assert service["spec"]["selector"] == labels
    assert policy["spec"]["podSelector"]["matchLabels"] == budget["spec"]["selector"]["matchLabels"] == labels
    assert budget["spec"]["minAvailable"] == group.replicas - 1
    assert service["spec"]["externalTrafficPolicy"] == "Local", "a gateway bounds what one address costs"


def test_the_settings_that_it_asks_for_fit_its_pods(tmp_path: Path) -> None:
    group = with_gateways(tmp_path).groups["gateway"]
    text = (COMPONENT / "kustomization.yaml").read_text(encoding="utf-8")
    lines = [line.removeprefix("# ") for line in text.partition("#   gateway:")[2].splitlines()[1:] if line[:1] == "#"]
    asked = yaml.safe_load("\n".join(lines))
    assert asked["port"] == group.ports["devices"]
    assert asked["count"] == group.replicas
    offered = group.spec["resources"]
    assert all(float(offered[name]) >= claim for name, claim in asked["resources"].items())
    mounts = {one["mountPath"] for one in group.container["volumeMounts"]}
    assert {asked[name].rpartition("/")[0] for name in ("certificate", "private_key", "devices_file")} == mounts


def test_an_ingress_that_ends_tls_leads_to_the_gateway_alone(tmp_path: Path) -> None:
    overlay = with_gateways(tmp_path, "gateway/terminated")
    (ingress,), (service,) = overlay.of_kind("Ingress"), overlay.of_kind("Service")
    assert service["spec"]["type"] == "ClusterIP", "nobody passes it by"
    (policy,) = (one for one in overlay.of_kind("NetworkPolicy") if one["metadata"]["name"] == "outrider-devices")
    assert policy["spec"]["ingress"][0]["from"]
    (rule,), (tls,) = ingress["spec"]["rules"], ingress["spec"]["tls"]
    assert tls["hosts"] == [rule["host"]]
    paths = {path["path"]: path["backend"]["service"] for path in rule["http"]["paths"]}
    assert set(paths) == {DEVICE_PATH, FILES_PATH.rstrip("/")}
    for backend in paths.values():
        assert backend == {"name": service["metadata"]["name"], "port": {"name": service["spec"]["ports"][0]["name"]}}
    assert "HTTPS" in json.dumps(ingress["metadata"]["annotations"])

"""The Helm chart: overlays are its presets, Helm accepts it, and what it installs is accepted for each kind of site."""

import copy
from collections.abc import Callable
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml

from outrider import __version__
from tests.unit.deployment.chart import as_overlay, installed, lint, objects, preset, rendered
from tests.unit.deployment.helm_process import CHART
from tests.unit.deployment.manifests import OVERLAYS, ROOT, Group, Overlay
from tests.unit.deployment.test_gateways import FIELDS as GATEWAY_FIELDS
from tests.unit.deployment.test_kubernetes import KUBERAY, KUBERNETES
from tests.unit.deployment.test_monitoring import FIELDS as MONITORING_FIELDS

VERSIONS = ("1.31", KUBERNETES)
HUB = {"hub": {"repo": "Qwen/Qwen3-8B", "tokenSecret": "hf"}, "name": "qwen3-8b"}
DIALLED: dict[str, Any] = preset("devices")["gateways"]
SITES: dict[str, dict[str, Any]] = {
    "nothing but a GPU": {},
    "a model of the hub": {"model": HUB},
    "a model on a claim": {"model": {"claim": "weights", "name": "mine"}, "keys": {"secret": "keys"}},
    "vLLM on two GPUs": {
        "verifiers": {"image": "outrider-cuda-vllm", "gpus": 2, "sharedMemory": "8Gi", "runtimeClassName": "nvidia"},
        "config": {"verifiers": {"engine": "vllm", "num_gpus": 2, "tensor_parallel_size": 2}},
    },
    "behind an ingress": {
        "public": {"kind": "Ingress", "className": "traefik", "host": "a.example", "annotations": {"a/b": "c"}},
        "images": {"pullSecrets": ["registry"], "tag": "0.1.0-1"},
    },
    "a Redis of theirs": {"redis": {"external": "redis.example:6379"}, "priorityClasses": True},
    "a storage class": {"redis": {"enabled": True, "storageClassName": "fast"}},
    "monitored": {
        "monitoring": {"enabled": True, "labels": {"release": "theirs"}, "runbook": "https://r"},
        "model": {"claim": "c", "name": "m"},
    },
}


def accepted(overlay: Overlay, kubernetes: str = KUBERNETES) -> None:
    """By the schemas of whatever reads each object."""
    for document in overlay.documents:
        kind = document["kind"]
        if kind == "RayService":
            jsonschema.Draft202012Validator(KUBERAY).validate(document)
        elif kind in GATEWAY_FIELDS:
            jsonschema.Draft202012Validator(GATEWAY_FIELDS[kind]).validate(document)
        elif kind in MONITORING_FIELDS:
            jsonschema.Draft202012Validator(MONITORING_FIELDS[kind]).validate(document)
        else:
            kubernetes_validate.validate(document, kubernetes, strict=True)
    for group in overlay.groups.values():
        template = copy.deepcopy(group.spec["template"])
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "pod"}, **template}
        kubernetes_validate.validate(pod, kubernetes, strict=True)


def test_overlays_are_the_presets_rendered() -> None:
    """If not: ``python -m tests.unit.deployment.chart``."""
    for name, files in zip(OVERLAYS, rendered(*map(preset, OVERLAYS)), strict=True):
        assert "error" not in files, files["error"]
        written = (ROOT / "k8s" / "overlays" / name / "outrider.yaml").read_text(encoding="utf-8")
        assert as_overlay(name, files) == written, name


def test_helm_has_nothing_to_say() -> None:
    for name, said in zip(SITES, lint(*SITES.values()), strict=True):
        assert [line for line in said if "icon is recommended" not in line] == [], name


@pytest.mark.parametrize("site", SITES)
def test_what_is_installed_is_accepted(site: str) -> None:
    (files,) = (found for name, found in zip(SITES, rendered(*SITES.values()), strict=True) if name == site)
    assert "error" not in files, files["error"]
    overlay = Overlay(site, tuple(objects(files)))
    for kubernetes in VERSIONS:
        accepted(overlay, kubernetes)
    assert not {"Namespace", "Secret"} & {document["kind"] for document in overlay.documents}, "the operator's own"
    assert overlay.config.http.port == 8000


def test_an_image_volume_is_accepted_where_kubernetes_has_them() -> None:
    overlay = installed({"model": {"image": "registry.example/weights:1", "name": "mine"}})
    accepted(overlay)
    assert overlay.config.model.target == "/models/mine"
    assert mounts(overlay.groups["verifier"]) == {"/models/mine": True}


def test_versions_are_the_packages() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))
    assert (chart["version"], chart["appVersion"]) == (__version__, __version__)


def mounts(group: Group) -> dict[str, bool]:
    """Whether each place is read only."""
    return {one["mountPath"]: one.get("readOnly", False) for one in group.container.get("volumeMounts", [])}


def test_a_model_of_the_hub_is_fetched_before_ray_starts() -> None:
    overlay = installed({"model": HUB, "ingresses": {"replicas": 1}, "config": {"ingress": {"count": 1}}})
    assert overlay.config.model.target == "/models/qwen3-8b"
    for name in ("verifier", "ingress"):
        group = overlay.groups[name]
        (fetch,) = group.pod["initContainers"]
        given = {one["name"]: one.get("value") for one in fetch["env"]}
        assert (given["REPO"], given["FOLDER"], given["HF_HUB_OFFLINE"]) == ("Qwen/Qwen3-8B", "/models/qwen3-8b", "0")
        assert {"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": {"name": "hf", "key": "token"}}} in fetch["env"]
        compile(fetch["command"][-1], "fetch", "exec")
        assert mounts(group) == {"/models": True}
    assert "initContainers" not in overlay.groups["head"].pod, "which holds no model"
    (policy,) = [one for one in overlay.of_kind("NetworkPolicy") if one["metadata"]["name"] == "outrider"]
    assert {"ports": [{"port": 443}]} in policy["spec"]["egress"]


def test_keys_are_where_ingresses_run() -> None:
    """Serve's ingress runs beside a verifier where there is no group for it, and on a head that is alone."""
    keys: dict[str, Any] = {"keys": {"secret": "outrider-keys"}}
    for values, where in (
        ({}, "verifier"),
        ({"ingresses": {"replicas": 1}}, "ingress"),
        (preset("trial"), "head"),
    ):
        overlay = installed({**values, **keys})
        found = {name for name, group in overlay.groups.items() if "/etc/outrider/keys" in mounts(group)}
        assert found == {where}
        assert overlay.config.auth.keys_file == "/etc/outrider/keys/keys.yaml"


def test_gateways_are_dialled_over_tls_by_devices_that_are_known() -> None:
    values = {
        "gateways": {"replicas": 2, "address": "devices.example"},
        "keys": {"secret": "outrider-keys"},
        "config": {"ingress": {"count": 2}},
    }
    overlay = installed(values)
    accepted(overlay)
    gateway = overlay.groups["gateway"]
    assert gateway.offered == {"CPU": 2.0, "GPU": 0.0, "gateway": 1.0, "ingress": 1.0}
    (service,) = overlay.of_kind("Service")
    (port,) = service["spec"]["ports"]
    assert gateway.ports[port["targetPort"]] == 8443
    assert service["spec"]["selector"]["ray.io/group"] == "gateway"
    (application,) = overlay.serve.applications
    config = application.args["config"]["gateway"]
    assert (config["port"], config["count"], config["address"]) == (8443, 2, "devices.example")
    files = {config[name].rpartition("/")[0] for name in ("certificate", "private_key", "devices_file")}
    assert files < set(mounts(gateway)), "beside the keys, as an ingress runs there"
    assert overlay.secrets() == {"outrider-gateway-tls", "outrider-devices", "outrider-keys"}


def test_several_gpus_share_memory() -> None:
    verifier = installed(SITES["vLLM on two GPUs"]).groups["verifier"]
    assert verifier.offered == {"CPU": 4.0, "GPU": 2.0, "verifier": 1.0}
    assert verifier.container["resources"]["limits"]["nvidia.com/gpu"] == "2"
    assert mounts(verifier) == {"/dev/shm": False}  # noqa: S108  # where it is mounted
    (volume,) = verifier.pod["volumes"]
    assert volume["emptyDir"] == {"medium": "Memory", "sizeLimit": "8Gi"}


def test_logs_go_to_every_containers_stderr() -> None:
    overlay = installed({**preset("production"), "logs": {"toStderr": True}})
    for group in overlay.groups.values():
        assert {"name": "RAY_LOG_TO_STDERR", "value": "1"} in group.container["env"]


def test_monitors_have_the_operators_labels_and_boards_are_whole() -> None:
    overlay = installed(SITES["monitored"])
    for kind, count in (("PodMonitor", 2), ("PrometheusRule", 1)):
        found = overlay.of_kind(kind)
        assert [one["metadata"]["labels"] for one in found] == [{"release": "theirs"}] * count
    boards = {name: text for one in overlay.of_kind("ConfigMap") for name, text in one["data"].items()}
    for path in (ROOT / "cluster/monitoring/dashboards").iterdir():
        assert yaml.safe_load(boards[path.name]) == yaml.safe_load(path.read_text(encoding="utf-8"))
    (rule,) = overlay.of_kind("PrometheusRule")
    rules = (ROOT / "cluster/monitoring/rules.yaml").read_text(encoding="utf-8")
    theirs = rules.replace("model_name: outrider", "model_name: m").replace("docs/how-to/runbook.md", "https://r")
    assert rule["spec"] == yaml.safe_load(theirs)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"verifers": {}}, "verifers"),
        ({"verifiers": {"gpu": 1}}, "gpu"),
        ({"public": {"kind": "Route"}}, "kind"),
        ({"head": {"memory": "8 GB"}}, "memory"),
        ({"model": {"name": "../etc"}}, "name"),
        (
            {"public": {"kind": "Gateway", "className": "istio"}},
            "public.host needs the name that clients ask",
        ),
        ({"model": {**HUB, "claim": "weights"}}, "model needs at most one of hub.repo, claim and image"),
        (
            {"config": {"verifiers": {"num_gpus": 2}}},
            r"needs at least config.verifiers.num_gpus \(2\), found 1",
        ),
        ({"config": {"verifiers": {"count": 3}}}, "verifiers.replicas needs at least config.verifiers' 3, found 1"),
        ({"gateways": {"replicas": 2}}, "gateways.address needs the name that devices dial"),
        (
            {"gateways": {**DIALLED, "ingress": {"namespace": "traefik"}}},
            "gateways.ingress.namespace needs serviceType: ClusterIP, found LoadBalancer",
        ),
        (
            {"gateways": DIALLED, "config": {"gateway": {"port": 443}}},
            "config.gateway.port needs 8443, the pods' port, found 443",
        ),
        (
            {"gateways": DIALLED, "config": {"gateway": {"count": 4}}},
            r"gateways.replicas needs at least config.gateway.count \(4\), found 2",
        ),
        (
            {"config": {"drafters": preset("devices")["config"]["drafters"]}},
            "gateways.replicas needs at least 1 for the group edge",
        ),
        ({"config": {"http": {"port": 80}}}, "config.http.port needs 8000, the pods' port, found 80"),
        ({"redis": {"enabled": True, "external": "r:1"}}, "redis needs enabled: false beside external"),
        (
            {"upgrade": {"incremental": True}, "verifiers": {"replicas": 0}},
            "upgrade.incremental needs verifiers.replicas",
        ),
    ],
)
def test_mistakes_are_named(values: dict[str, Any], message: str) -> None:
    (answer,) = rendered(values)
    with pytest.raises(AssertionError, match=message):
        assert "error" not in answer, answer["error"]


def test_notes_say_how_to_ask_and_how_to_remove() -> None:
    small, production = (files["NOTES.txt"] for files in rendered(preset("small"), preset("production")))
    assert "port-forward service/outrider-serve-svc 8000:8000" in small
    assert "Open: whoever" in small
    assert "port-forward service/outrider-gateway-outrider-internal 8000:80" in production
    assert "curl https://outrider.example.com/v1/models -H 'Authorization: Bearer sk-...'" in production
    assert "Open: " not in production
    removal: Callable[[str], int] = production.index
    assert removal("k8s/down.sh outrider outrider") < removal("helm -n outrider uninstall") < removal("delete pvc")

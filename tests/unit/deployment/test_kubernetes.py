"""The Kubernetes files are true: Kubernetes, KubeRay, Serve and our loader accept them, and they agree."""

import copy
import json
import re
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml
from ray.autoscaler._private.kuberay.autoscaling_config import _derive_autoscaling_config_from_ray_cr
from ray.serve._private.application_state import override_deployment_info
from ray.serve._private.deploy_utils import get_app_code_version
from ray.serve._private.deployment_info import DeploymentInfo

from cluster.capacity_check import Claim, drafter_claims, misfit, place, service_claims
from outrider import __version__
from outrider.config.reloadable import with_reloadable
from outrider.config.replicas import VerifierScalingConfig
from serve_app.app import SHUTDOWN_GRACE_S, build_app, ingress_bundle
from tests.unit.deployment.manifests import OVERLAYS, ROOT, Overlay, built

KUBERNETES = "1.33"
KUBERAY = yaml.safe_load((ROOT / "tests/unit/deployment/kuberay_fields.yaml").read_text(encoding="utf-8"))


@pytest.fixture(params=OVERLAYS)
def overlay(request: pytest.FixtureRequest) -> Overlay:
    return built(request.param)


def accepted(document: dict[str, Any]) -> None:
    kubernetes_validate.validate(document, KUBERNETES, strict=True)


def test_kubernetes_accepts_everything(overlay: Overlay) -> None:
    for document in overlay.documents:
        if document["kind"] not in {"RayService", "Gateway", "HTTPRoute"}:
            accepted(document)
    for group in overlay.groups.values():
        template = copy.deepcopy(group.spec["template"])
        accepted({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "pod"}, **template})


def test_a_field_that_kubernetes_does_not_know_is_found() -> None:
    pod = built("small").groups["jetson"].spec["template"]
    with pytest.raises(kubernetes_validate.ValidationError):
        accepted({"apiVersion": "v1", "kind": "Pod", "spec": {**pod["spec"], "nodeSelectors": {}}})


def test_kuberay_accepts_the_service(overlay: Overlay) -> None:
    jsonschema.Draft202012Validator(KUBERAY).validate(overlay.service)


def test_a_field_that_kuberay_ignores_is_found() -> None:
    service = copy.deepcopy(built("small").service)
    service["spec"]["serviceUnhealthySecondThreshold"] = 900
    with pytest.raises(jsonschema.ValidationError, match="serviceUnhealthySecondThreshold"):
        jsonschema.Draft202012Validator(KUBERAY).validate(service)


def test_kuberays_own_checks_hold(overlay: Overlay) -> None:
    names = [group["groupName"] for group in overlay.cluster["workerGroupSpecs"]]
    assert len(set(names)) == len(names)
    for group in overlay.cluster["workerGroupSpecs"]:
        assert group["minReplicas"] <= group["replicas"] <= group["maxReplicas"]
    for each in overlay.groups.values():
        assert not {"num-cpus", "num-gpus", "memory", "resources"} & set(each.spec["rayStartParams"]), (
            "beside `resources`"
        )
    if options := overlay.upgrade.get("clusterUpgradeOptions"):
        assert overlay.cluster["enableInTreeAutoscaling"]
        assert options["stepSizePercent"] <= options["maxSurgePercent"]
    assert (overlay.upgrade["type"] == "NewClusterWithIncrementalUpgrade") == bool(options)


def test_ray_is_this_version_behind_a_token(overlay: Overlay) -> None:
    pins = (ROOT / "constraints.txt").read_text(encoding="utf-8")
    assert f"\nray=={overlay.cluster['rayVersion']}\n" in pins
    assert overlay.cluster["authOptions"] == {"mode": "token"}


def test_ray_reads_what_pods_offer(overlay: Overlay) -> None:
    """By its autoscaler's own reading of the custom resource."""
    cluster = {"metadata": {"name": "c", "namespace": "n"}, "spec": overlay.cluster}
    types = _derive_autoscaling_config_from_ray_cr(cluster)["available_node_types"]
    offered = {name.removesuffix("group"): kind["resources"] for name, kind in types.items()}
    for group in overlay.groups.values():
        read = {name: amount for name, amount in offered[group.name].items() if name != "memory"}
        assert {"GPU": 0.0, **read} == group.offered


def test_serve_accepts_the_application(overlay: Overlay) -> None:
    (application,) = overlay.serve.applications
    assert application.import_path == "serve_app.app:build"
    listens = overlay.serve.http_options
    assert (listens.host, listens.port) == (overlay.config.http.host, overlay.config.http.port)
    for group in overlay.groups.values():
        assert group.ports["serve"] == listens.port


def test_deployments_that_are_overridden_exist(overlay: Overlay) -> None:
    (application,) = overlay.serve.applications
    ingress = build_app(overlay.config)._bound_deployment  # noqa: SLF001  # Serve tells names nowhere else
    coordinator = ingress.init_args[0]._bound_deployment  # noqa: SLF001
    assert {one.name for one in application.deployments} <= {ingress.name, coordinator.name}


def test_light_settings_reach_replicas_that_run(overlay: Overlay) -> None:
    """By Serve's own word: the file names another ``user_config``, which is no other version."""
    (application,) = overlay.serve.applications
    said = application.model_dump(exclude_unset=True)
    given = {one["name"]: one for one in said.get("deployments", [])}
    light = {"limits": {"max_output_tokens": 7}}
    said["deployments"] = [
        {**given.get(name, {"name": name}), "user_config": light} for name in ("Ingress", "Coordinator")
    ]
    changed = type(application).model_validate(said)
    assert get_app_code_version(changed) == get_app_code_version(application)
    ingress = build_app(overlay.config)._bound_deployment  # noqa: SLF001  # Serve tells names nowhere else
    built = {
        one.name: DeploymentInfo(one._deployment_config, one._replica_config, 0, "", version="built")  # noqa: SLF001
        for one in (ingress, ingress.init_args[0]._bound_deployment)  # noqa: SLF001
    }
    before, after = (override_deployment_info(built, one) for one in (application, changed))
    for name, info in after.items():
        assert info.deployment_config.user_config == light
        assert with_reloadable(overlay.config, before[name].deployment_config.user_config) == overlay.config
        assert info.replica_config.ray_actor_options == before[name].replica_config.ray_actor_options


def test_probes_and_ports_agree(overlay: Overlay) -> None:
    for group in overlay.groups.values():
        for probe in (group.container["readinessProbe"], group.container["livenessProbe"]):
            port = probe["httpGet"]["port"]
            assert port == 52365 or port in group.ports


def claims(overlay: Overlay) -> list[Claim]:
    """Of the application, with what the overlay says of where ingresses run."""
    (application,) = overlay.serve.applications
    bundle = ingress_bundle()
    for one in application.deployments:
        if one.name == "Ingress":
            options = one.ray_actor_options
            bundle = {"CPU": float(options.num_cpus or 0), **options.resources}
    return [
        Claim(one.who, one.field, bundle) if one.who == "ingress" else one
        for one in (*service_claims(overlay.config), *drafter_claims(overlay.config))
    ]


def test_pods_have_room_for_the_application(overlay: Overlay) -> None:
    pods = [group.offered for group in overlay.groups.values() for _ in range(group.replicas)]
    assert misfit(claims(overlay), pods) is None
    assert place(claims(overlay), pods) == ()
    assert len([pod for pod in pods if "jetson" in pod]) == overlay.config.drafter_count
    jetsons = [pod for pod in pods if pod.get("jetson") and len(pods) > 1]
    assert place(service_claims(overlay.config), jetsons * 8), "verifiers stay off the Jetsons"


def test_every_group_of_devices_says_whether_it_is_trusted(overlay: Overlay) -> None:
    (application,) = overlay.serve.applications
    assert all(group["trust"] in {"trusted", "untrusted"} for group in application.args["config"]["drafters"])


def test_images_are_of_this_version(overlay: Overlay) -> None:
    for group in overlay.groups.values():
        registry, _, image = group.container["image"].rpartition("/")
        assert registry == "registry.example"
        assert image.partition(":")[2] == __version__


def longest_response_s(overlay: Overlay) -> float:
    """Of a response that is at least as fast as the slowest promise, from its request on."""
    slowest = min(one.tokens_per_s for one in overlay.config.slo.classes if one.tokens_per_s)
    waits_s = max(overlay.config.admission.max_wait_s, overlay.config.admission.best_effort_max_wait_s)
    return waits_s + overlay.config.limits.max_output_tokens / slowest


@pytest.mark.parametrize("name", ["small", "production"])
def test_what_ends_lets_the_longest_response_end_first(name: str) -> None:
    overlay = built(name)
    assert longest_response_s(overlay) <= SHUTDOWN_GRACE_S
    assert overlay.service["spec"]["rayClusterDeletionDelaySeconds"] >= SHUTDOWN_GRACE_S
    for group in overlay.groups.values():
        if group.name != "jetson":
            assert group.drain_s >= SHUTDOWN_GRACE_S + overlay.config.limits.verifier_start_deadline_s


def test_kubernetes_waits_for_ray(overlay: Overlay) -> None:
    for group in overlay.groups.values():
        assert group.pod["terminationGracePeriodSeconds"] >= group.drain_s + 30, group.name


def test_a_jetson_waits_for_nobody_who_stays() -> None:
    """Drafters are detached, so that a node with one is never idle, and Ray would wait for all of its time."""
    for name in ("small", "production"):
        assert built(name).groups["jetson"].drain_s <= 10


def test_an_upgrade_needs_no_gpu_that_is_not_said_to_be_free(overlay: Overlay) -> None:
    """By a step at a time, of verifiers, from no pods; or not at all by itself."""
    limits = {group.name: group.container["resources"]["limits"] for group in overlay.groups.values()}
    if overlay.upgrade["type"] == "None":
        return
    options = overlay.upgrade["clusterUpgradeOptions"]
    with_gpus = [overlay.groups[name] for name, limit in limits.items() if "nvidia.com/gpu" in limit]
    assert round(overlay.config.verifiers.count * options["maxSurgePercent"] / 100) == 1
    assert [group.spec["minReplicas"] for group in with_gpus] == [0]


def test_an_idle_pod_outlives_the_policy_that_takes_verifiers_away() -> None:
    idle_s = built("production").cluster["autoscalerOptions"]["idleTimeoutSeconds"]
    assert idle_s > VerifierScalingConfig().down_after_s


def test_jetsons_run_on_jetsons_alone_and_two_clusters_share_them() -> None:
    for name in ("small", "production"):
        group = built(name).groups["jetson"]
        assert group.pod["nodeSelector"]["kubernetes.io/arch"] == "arm64"
        (toleration,) = group.pod["tolerations"]
        assert group.pod["nodeSelector"][toleration["key"]] == toleration["value"]
        (term,) = group.pod["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        assert term["labelSelector"]["matchLabels"] == {"ray.io/group": group.name}
        assert term["matchLabelKeys"] == ["ray.io/cluster"]
        asked = group.container["resources"]["requests"]["memory"]
        assert 2 * int(asked.removesuffix("Gi")) < 7, "two fit a Jetson of 8 GB"


def test_verifiers_alone_tolerate_gpu_nodes_and_others_prefer_to_stay_off_them() -> None:
    for name in ("small", "production"):
        for group in built(name).groups.values():
            if group.name == "jetson":
                continue
            assert group.pod["nodeSelector"] == {"kubernetes.io/arch": "amd64"}
            taints = [(one["key"], one["operator"], one["effect"]) for one in group.pod.get("tolerations", [])]
            if group.name == "verifier":
                assert taints == [("nvidia.com/gpu", "Exists", "NoSchedule")]
                continue
            assert not taints
            assert "outrider-cpu:" in group.container["image"]
            (term,) = group.pod["affinity"]["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
            (rule,) = term["preference"]["matchExpressions"]
            assert rule == {"key": "nvidia.com/gpu.present", "operator": "DoesNotExist"}


def test_nobody_is_root(overlay: Overlay) -> None:
    for group in overlay.groups.values():
        assert group.pod["securityContext"]["runAsNonRoot"]
        assert group.pod["securityContext"]["runAsUser"] == 10001
        assert group.container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
        assert not group.container["securityContext"]["allowPrivilegeEscalation"]


def test_budgets_leave_one_pod_free_to_go() -> None:
    overlay = built("production")
    budgets = overlay.of_kind("PodDisruptionBudget")
    assert len(budgets) == 2
    for budget in budgets:
        group = overlay.groups[budget["spec"]["selector"]["matchLabels"]["ray.io/group"]]
        assert "maxUnavailable" not in budget["spec"], "Kubernetes refuses it for pods of an operator"
        assert budget["spec"]["minAvailable"] == group.replicas - 1


@pytest.mark.parametrize("name", OVERLAYS)
def test_policies_name_ports_and_labels_that_are_there(name: str) -> None:
    overlay = built(name)
    everybody = {"matchLabels": {"app.kubernetes.io/part-of": "outrider"}}
    assert {"Ingress", "Egress"} in [
        set(policy["spec"]["policyTypes"])
        for policy in overlay.of_kind("NetworkPolicy")
        if policy["spec"]["podSelector"] == everybody
    ], "nothing is open that no policy names"
    ports = {name for group in overlay.groups.values() for name in group.ports} | {"redis"}
    for policy in overlay.of_kind("NetworkPolicy"):
        rules = [*policy["spec"].get("ingress", []), *policy["spec"].get("egress", [])]
        named = [port["port"] for rule in rules for port in rule.get("ports", []) if isinstance(port["port"], str)]
        assert set(named) <= ports
        assert policy["spec"]["podSelector"]["matchLabels"].items() & {
            ("app.kubernetes.io/part-of", "outrider"),
            ("app.kubernetes.io/name", "outrider-redis"),
            ("gateway.networking.k8s.io/gateway-name", "outrider-gateway"),
        }
    for group in overlay.groups.values():
        assert group.spec["template"]["metadata"]["labels"]["app.kubernetes.io/part-of"] == "outrider"


@pytest.mark.parametrize("name", OVERLAYS)
def test_only_a_head_with_an_autoscaler_may_ask_the_kubernetes_api(name: str) -> None:
    overlay = built(name)
    asks = {group.name: group.pod["automountServiceAccountToken"] for group in overlay.groups.values()}
    assert asks.pop("head") is overlay.cluster["enableInTreeAutoscaling"]
    assert not any(asks.values())


def test_no_pod_gets_variables_of_services(overlay: Overlay) -> None:
    """A Service named ``outrider-home`` would give each pod an OUTRIDER_HOME_PORT, and the like."""
    redis = [
        one["spec"]["template"]["spec"] for one in overlay.documents if one["kind"] in {"Deployment", "StatefulSet"}
    ]
    pods = [*(group.pod for group in overlay.groups.values()), *redis]
    assert [pod["enableServiceLinks"] for pod in pods] == [False] * len(pods)


@pytest.mark.parametrize("name", OVERLAYS)
def test_an_overlay_has_keys_or_says_that_it_is_open(name: str) -> None:
    text = (ROOT / "k8s/chart/outrider/presets" / f"{name}.yaml").read_text(encoding="utf-8")
    assert (built(name).config.auth.keys_file is None) is ("# Open: " in text)


def test_redis_is_told_its_password_beside_its_arguments() -> None:
    (redis,) = built("production").of_kind("StatefulSet")
    (container,) = redis["spec"]["template"]["spec"]["containers"]
    assert "$(" not in json.dumps([container["command"], container.get("args")]), "Kubernetes would put it there"
    found = re.fullmatch(r"redis:(\d+)\.(\d+)\.(\d+)@sha256:[0-9a-f]{64}", container["image"])
    assert found
    assert tuple(map(int, found.groups())) >= (8, 6, 3)
    assert container["securityContext"]["readOnlyRootFilesystem"] is True


def test_priority_classes_exist() -> None:
    overlay = built("production")
    known = {one["metadata"]["name"]: one["value"] for one in overlay.of_kind("PriorityClass")}
    used = {group.name: group.pod["priorityClassName"] for group in overlay.groups.values()}
    assert set(used.values()) == set(known)
    assert known[used["jetson"]] < known[used["verifier"]]


def test_keys_lie_where_ingresses_run_and_nowhere_else() -> None:
    overlay = built("production")
    group = overlay.groups["ingress"]
    (mount,) = group.container["volumeMounts"]
    keys_file = overlay.config.auth.keys_file
    assert keys_file is not None
    assert keys_file.rpartition("/")[0] == mount["mountPath"]
    (claim,) = {json.dumps(one.resources) for one in claims(overlay) if one.who == "ingress"}
    hosts = [one.name for one in overlay.groups.values() if set(json.loads(claim)) <= set(one.offered)]
    assert hosts == ["ingress"]
    assert group.replicas == overlay.config.ingress.count


def test_the_head_finds_its_redis() -> None:
    overlay = built("production")
    (service,) = overlay.of_kind("Service")
    (port,) = service["spec"]["ports"]
    address = overlay.cluster["gcsFaultToleranceOptions"]["redisAddress"]
    assert address == f"{service['metadata']['name']}:{port['port']}"


def test_no_secret_stands_in_a_manifest(overlay: Overlay) -> None:
    assert not overlay.of_kind("Secret")
    text = yaml.safe_dump_all(overlay.documents)
    assert not re.search(r"(?i)(password|secret|token)\s*:\s*[^\s{]{16,}", text.replace("secretName: outrider", ""))


README = (ROOT / "k8s" / "README.md").read_text(encoding="utf-8")


def test_the_readme_has_an_operator_make_every_secret() -> None:
    made = set(re.findall(r"create secret (?:generic|tls) (\S+)", README))
    assert made == built("production").secrets() | built("devices").secrets() | {"hub"}, "of a model that is not public"


def test_every_file_and_place_to_set_that_the_readme_names_exists() -> None:
    for path in re.findall(r"`(k8s/[^` ]+|docs/[^` ]+)`", README):
        assert (ROOT / path).exists(), path
    for path in re.findall(r"apply -k ([\w/-]+)", README):
        assert path.removeprefix("k8s/overlays/") in OVERLAYS
    for path in re.findall(r"\]\((\.\.?/[^)#]+)\)", README):
        assert (ROOT / "k8s" / path).exists(), path


def test_every_figure_of_the_readmes_table_of_grace_is_the_files_own() -> None:
    rows = dict(re.findall(r"^\| (.+?) \| (\d+) s \|", README, flags=re.MULTILINE))
    overlay = built("production")
    expected = {
        "the longest response": longest_response_s(overlay),
        "a replica's grace in Serve": SHUTDOWN_GRACE_S,
        "`rayClusterDeletionDelaySeconds`": overlay.service["spec"]["rayClusterDeletionDelaySeconds"],
        "`RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S`": overlay.groups["verifier"].drain_s,
        "`terminationGracePeriodSeconds`": overlay.groups["verifier"].pod["terminationGracePeriodSeconds"],
    }
    assert {name: float(value) for name, value in rows.items()} == expected

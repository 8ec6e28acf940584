"""The files that deploy to other machines are true: Ray and our loader accept them, and what is claimed is offered."""

import json
import re
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from ray.autoscaler._private.util import prepare_config, validate_config
from ray.serve.schema import ServeDeploySchema

from cluster.capacity_check import drafter_claims, misfit, place, service_claims
from outrider.config.reading import load_config
from outrider.config.schema import Config
from serve_app.app import config_of

ROOT = Path(__file__).parents[2]
ONPREM = ROOT / "cluster" / "onprem.yaml"
RAYSERVICE = ROOT / "k8s" / "rayservice.yaml"


def everything_fits(config: Config, nodes: list[dict[str, float]]) -> None:
    claims = (*service_claims(config), *drafter_claims(config))
    assert misfit(claims, nodes) is None
    assert place(claims, nodes) == ()


@pytest.fixture(scope="module")
def onprem() -> dict[str, Any]:
    prepared: dict[str, Any] = prepare_config(yaml.safe_load(ONPREM.read_text(encoding="utf-8")))
    validate_config(prepared)
    return prepared


@pytest.fixture(scope="module")
def rayservice() -> dict[str, Any]:
    (document,) = yaml.safe_load_all(RAYSERVICE.read_text(encoding="utf-8"))
    assert isinstance(document, dict)
    return document


def started(commands: list[str]) -> dict[str, str]:
    """Options of the ``ray start`` among a node's commands."""
    (line,) = [command for command in commands if "ray start" in command]
    options = re.findall(r"--([a-z-]+)(?:=(\"\$\(.*?\)\"|'.*?'|\S+))?", line)
    return {name: value.strip("'") for name, value in options}


def started_on(folder: Path, commands: list[str], **files: str) -> dict[str, str]:
    """The same on a machine that has these files in /etc/outrider, as its shell reads them: what ``ray`` is told."""
    folder.mkdir()
    for name, content in {"env": "", **files}.items():
        (folder / name.replace("_json", ".json")).write_text(content, encoding="utf-8")
    ray = folder / "ray"
    ray.write_text('#!/bin/sh\nfor each in "$@"; do echo "$each"; done\n', encoding="utf-8")
    ray.chmod(0o755)
    (line,) = [command.replace("/etc/outrider", str(folder)) for command in commands if "ray start" in command]
    environment = {"PATH": f"{folder}:/usr/bin:/bin", "RAY_HEAD_IP": "192.0.2.10"}
    done = subprocess.run(["/bin/bash", "-c", line], env=environment, capture_output=True, text=True, check=True)
    told = (each.removeprefix("--").partition("=") for each in done.stdout.splitlines()[1:])
    return {name: value for name, _, value in told}


def offered(options: dict[str, str], cpus: float) -> dict[str, float]:
    """Ray resources of a node that was started so; ``cpus`` are what it has, unless told otherwise."""
    custom = re.search(r"\{.*\}", options["resources"])
    assert custom is not None
    resources = {"CPU": float(options.get("num-cpus", cpus)), "GPU": float(options["num-gpus"])}
    resources.update(json.loads(custom[0]))
    return resources


def test_machines_of_your_own_have_room_for_what_is_deployed(onprem: dict[str, Any], tmp_path: Path) -> None:
    config = load_config(ONPREM.with_name("onprem-config.yaml"))
    head = offered(started(onprem["head_start_ray_commands"]), cpus=4)
    jetson = offered(started_on(tmp_path / "jetson", onprem["worker_start_ray_commands"]), cpus=4)
    assert jetson == {"CPU": 0.0, "GPU": 1.0, "jetson": 1.0}
    everything_fits(config, [head, *[jetson] * len(onprem["provider"]["worker_ips"])])
    assert config.drafter_count == len(onprem["provider"]["worker_ips"])


def test_a_further_gpu_server_takes_a_verifier_and_its_coordinator(onprem: dict[str, Any], tmp_path: Path) -> None:
    config = load_config(ONPREM.with_name("onprem-config.yaml"))
    grown = replace(config, verifiers=replace(config.verifiers, count=2))
    head = offered(started(onprem["head_start_ray_commands"]), cpus=4)
    files = {"resources_json": '{"verifier": 1}', "cpus": "8\n"}
    server, jetson = (
        offered(started_on(tmp_path / name, onprem["worker_start_ray_commands"], **says), cpus=4)
        for name, says in {"server": files, "jetson": {"resources_json": '{"jetson": 1}'}}.items()
    )
    assert server == {"CPU": 8.0, "GPU": 1.0, "verifier": 1.0}
    everything_fits(grown, [head, server, jetson, jetson])
    assert misfit(service_claims(grown), [head, jetson, jetson]) is not None


def test_machines_of_your_own_find_the_head(onprem: dict[str, Any]) -> None:
    head, worker = (started(onprem[f"{role}_start_ray_commands"]) for role in ("head", "worker"))
    assert worker["address"] == f"$RAY_HEAD_IP:{head['port']}"
    assert head["autoscaling-config"] == "~/ray_bootstrap_config.yaml"


def test_every_command_on_your_own_machines_has_the_token(onprem: dict[str, Any]) -> None:
    commands = [*onprem["head_start_ray_commands"], *onprem["worker_start_ray_commands"]]
    assert len(commands) == 4
    assert all(command.startswith(". /etc/outrider/env;") for command in commands)
    comments = ONPREM.read_text(encoding="utf-8")
    assert "RAY_AUTH_MODE=token" in comments
    assert "RAY_enable_autoscaler_v2=0" in comments


def test_the_rayservice_has_what_kuberay_requires(rayservice: dict[str, Any]) -> None:
    assert (rayservice["apiVersion"], rayservice["kind"]) == ("ray.io/v1", "RayService")
    assert set(rayservice) == {"apiVersion", "kind", "metadata", "spec"}
    cluster = rayservice["spec"]["rayClusterConfig"]
    groups = [cluster["headGroupSpec"], *cluster["workerGroupSpecs"]]
    names = [group["groupName"] for group in cluster["workerGroupSpecs"]]
    assert len(set(names)) == len(names)
    for group in groups:
        assert all(isinstance(value, str) for value in group["rayStartParams"].values())
        (container,) = group["template"]["spec"]["containers"]
        assert {"name", "image", "resources", "readinessProbe", "livenessProbe", "ports"} <= set(container)
        ports = {port["name"]: port["containerPort"] for port in container["ports"]}
        for probe in (container["readinessProbe"], container["livenessProbe"]):
            port = probe["httpGet"]["port"]
            assert port == 52365 or port in ports
    for group in cluster["workerGroupSpecs"]:
        assert group["minReplicas"] <= group["replicas"] <= group["maxReplicas"]


def test_the_rayservice_runs_this_version_of_ray_behind_a_token(rayservice: dict[str, Any]) -> None:
    cluster = rayservice["spec"]["rayClusterConfig"]
    pins = (ROOT / "constraints.txt").read_text(encoding="utf-8")
    assert f"\nray=={cluster['rayVersion']}\n" in pins
    assert cluster["authOptions"] == {"mode": "token"}


def serve_config(rayservice: dict[str, Any]) -> ServeDeploySchema:
    return ServeDeploySchema.model_validate(yaml.safe_load(rayservice["spec"]["serveConfigV2"]))


def test_serve_accepts_the_rayservices_application(rayservice: dict[str, Any]) -> None:
    schema = serve_config(rayservice)
    (application,) = schema.applications
    assert application.import_path == "serve_app.app:build"
    config = config_of(application.args)
    assert (schema.http_options.host, schema.http_options.port) == (config.http.host, config.http.port)
    for group in rayservice["spec"]["rayClusterConfig"]["workerGroupSpecs"]:
        (container,) = group["template"]["spec"]["containers"]
        assert {"name": "serve", "containerPort": config.http.port} in container["ports"]


def pod(group: dict[str, Any]) -> dict[str, float]:
    """Ray resources of a group's pod: Ray's start parameters before Kubernetes's limits, as KubeRay has it."""
    parameters = group["rayStartParams"]
    limits = group["template"]["spec"]["containers"][0]["resources"]["limits"]
    custom = json.loads(json.loads(parameters["resources"].strip("'"))) if "resources" in parameters else {}
    cpus, gpus = parameters.get("num-cpus", limits["cpu"]), parameters.get("num-gpus", limits.get("nvidia.com/gpu", 0))
    return {"CPU": float(cpus), "GPU": float(gpus), **custom}


def test_the_rayservices_pods_have_room_for_its_application(rayservice: dict[str, Any]) -> None:
    cluster = rayservice["spec"]["rayClusterConfig"]
    pods = [pod(group) for group in cluster["workerGroupSpecs"] for _ in range(group["replicas"])]
    config = config_of(serve_config(rayservice).applications[0].args)
    everything_fits(config, [pod(cluster["headGroupSpec"]), *pods])
    jetsons = [resources for resources in pods if "jetson" in resources]
    assert len(jetsons) == config.drafter_count
    assert place(service_claims(config), jetsons * 8), "verifiers stay off the Jetsons"


def test_jetsons_run_on_jetsons_alone(rayservice: dict[str, Any]) -> None:
    (group,) = [
        g
        for g in rayservice["spec"]["rayClusterConfig"]["workerGroupSpecs"]
        if "jetson" in g["rayStartParams"]["resources"]
    ]
    spec = group["template"]["spec"]
    assert spec["nodeSelector"]["kubernetes.io/arch"] == "arm64"
    (toleration,) = spec["tolerations"]
    assert spec["nodeSelector"][toleration["key"]] == toleration["value"]
    (term,) = spec["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert term["labelSelector"]["matchLabels"] == {"ray.io/group": group["groupName"]}


def test_no_secret_stands_in_a_manifest() -> None:
    for path in (ONPREM, RAYSERVICE):
        assert not re.search(r"(?i)(password|secret|token)\s*:\s*\S{16,}", path.read_text(encoding="utf-8"))

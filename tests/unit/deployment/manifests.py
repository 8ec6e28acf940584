"""The Kubernetes overlays as ``kubectl kustomize`` builds them, and what tests read out of them."""

import shutil
import subprocess
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from ray.serve.schema import ServeDeploySchema

from outrider.config.schema import Config
from serve_app.app import config_of

ROOT = Path(__file__).parents[3]
OVERLAYS = ("trial", "small", "devices", "production")
DRAIN = "RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S"


@dataclass(frozen=True)
class Group:
    """Pods of one kind: the head, or one of the workers' groups."""

    name: str
    spec: dict[str, Any]

    @property
    def pod(self) -> dict[str, Any]:
        pod: dict[str, Any] = self.spec["template"]["spec"]
        return pod

    @property
    def container(self) -> dict[str, Any]:
        (container,) = self.pod["containers"]
        assert isinstance(container, dict)
        return container

    @property
    def replicas(self) -> int:
        return int(self.spec.get("replicas", 1))

    @property
    def ports(self) -> dict[str, int]:
        return {port["name"]: port["containerPort"] for port in self.container["ports"]}

    @property
    def drain_s(self) -> float:
        """How long Ray lets a node's work go elsewhere or end, once its pod is to end."""
        environment = {one["name"]: one.get("value") for one in self.container["env"]}
        return float(environment[DRAIN])

    @property
    def offered(self) -> dict[str, float]:
        """Ray resources of a pod, by the group's own field, which KubeRay and Ray's autoscaler both read."""
        return {"GPU": 0.0, **{name: float(amount) for name, amount in self.spec["resources"].items()}}


@dataclass(frozen=True)
class Overlay:
    """All documents of an overlay."""

    name: str
    documents: tuple[dict[str, Any], ...]

    def of_kind(self, kind: str) -> list[dict[str, Any]]:
        return [document for document in self.documents if document["kind"] == kind]

    @property
    def service(self) -> dict[str, Any]:
        (service,) = self.of_kind("RayService")
        return service

    @property
    def cluster(self) -> dict[str, Any]:
        cluster: dict[str, Any] = self.service["spec"]["rayClusterConfig"]
        return cluster

    @property
    def upgrade(self) -> dict[str, Any]:
        upgrade: dict[str, Any] = self.service["spec"]["upgradeStrategy"]
        return upgrade

    @property
    def groups(self) -> dict[str, Group]:
        workers = [Group(spec["groupName"], spec) for spec in self.cluster["workerGroupSpecs"]]
        return {group.name: group for group in (Group("head", self.cluster["headGroupSpec"]), *workers)}

    @cached_property
    def serve(self) -> ServeDeploySchema:
        return ServeDeploySchema.model_validate(yaml.safe_load(self.service["spec"]["serveConfigV2"]))

    @cached_property
    def config(self) -> Config:
        (application,) = self.serve.applications
        return config_of(application.args)

    def secrets(self) -> set[str]:
        """Names of all Secrets that anything refers to, and that an operator therefore has to make."""
        return set(_named(self.documents))


def _named(value: Any) -> list[str]:
    if isinstance(value, dict):
        found = [one for key, one in value.items() if key == "secretName"]
        found += [one["name"] for key, one in value.items() if key == "secretKeyRef"]
        found += [one["name"] for key, refs in value.items() if key == "certificateRefs" for one in refs]
        return found + [name for one in value.values() for name in _named(one)]
    if isinstance(value, list | tuple):
        return [name for one in value for name in _named(one)]
    return []


@lru_cache
def built(name: str) -> Overlay:
    """An overlay, built."""
    return Overlay(name, kustomized(f"overlays/{name}"))


def kustomized(folder: str) -> tuple[Any, ...]:
    """What is in a folder of ``k8s/``, built."""
    if shutil.which("kubectl") is None:
        pytest.skip("needs kubectl 1.27 or later, found none")
    command = ["kubectl", "kustomize", str(ROOT / "k8s" / folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    assert not done.stderr, "no warnings, of deprecated fields say"
    return tuple(yaml.safe_load_all(done.stdout))

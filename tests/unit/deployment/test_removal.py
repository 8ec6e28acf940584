"""Removing an Outrider from Kubernetes, rolling it back and changing its secrets end, and name what is there."""

import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.unit.deployment.chart import installed, preset
from tests.unit.deployment.manifests import OVERLAYS, ROOT, built

README = (ROOT / "k8s" / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", OVERLAYS)
def test_no_overlay_owns_the_namespace(name: str) -> None:
    """Deleted with the rest, it would forbid the Job that clears Redis, which its clusters wait for."""
    assert not built(name).of_kind("Namespace")
    assert "kubectl create namespace outrider" in README


def test_removal_ends_clusters_before_redis_and_the_namespace() -> None:
    (block,) = re.findall(r"^## Remove\n\n```sh\n(.*?)```", README, flags=re.MULTILINE | re.DOTALL)
    steps = [line.partition(" #")[0] for line in block.splitlines()]
    assert steps == ["k8s/down.sh", "helm -n outrider uninstall outrider", "kubectl delete namespace outrider"]


def ran_by_down(folder: Path, fails: str = "nothing") -> tuple[int, list[list[str]]]:
    """Exit status of ``k8s/down.sh``, and what it has kubectl do."""
    log = folder / "log"
    kubectl = folder / "kubectl"
    said = f'printf "%s " "$@" >> "{log}"; echo >> "{log}"; ! printf "%s " "$@" | grep -q "{fails}"'
    kubectl.write_text(f"#!/bin/sh\n{said}\n", encoding="utf-8")
    kubectl.chmod(0o755)
    environment = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"}
    command = ["sh", str(ROOT / "k8s/down.sh"), "here", "mine"]
    done = subprocess.run(command, env=environment, capture_output=True, check=False, timeout=30)
    return done.returncode, [line.split() for line in log.read_text(encoding="utf-8").splitlines()]


def test_down_ends_responses_then_pods_and_waits_for_the_clusters(tmp_path: Path) -> None:
    status, ran = ran_by_down(tmp_path)
    assert status == 0
    assert all(command[:2] == ["-n", "here"] for command in ran)
    kinds = [(command[2], command[3]) for command in ran]
    assert kinds == [
        ("patch", "rayservice"),
        ("exec", "service/mine-head-svc"),
        ("delete", "rayservice"),
        ("delete", "pod"),
        ("wait", "--for=delete"),
        ("wait", "--for=delete"),
    ]
    assert [command[4] for command in ran[-2:]] == ["pod", "raycluster"]
    assert all("app.kubernetes.io/part-of=mine" in " ".join(command) for command in ran if command[3:4] == ["pod"])
    for command in ran[2:]:
        assert any(option.startswith("--timeout=") for option in command), command
    assert not {"namespace", "-k", "statefulset", "secret", "pvc"} & {word for command in ran for word in command}


def test_down_goes_on_without_a_head_and_stops_at_a_wait_that_ran_out(tmp_path: Path) -> None:
    assert ran_by_down(tmp_path, fails="exec")[0] == 0
    assert ran_by_down(tmp_path, fails="raycluster")[0] != 0


@pytest.mark.parametrize("name", OVERLAYS)
def test_down_selects_labels_that_pods_have(name: str) -> None:
    text = (ROOT / "k8s/down.sh").read_text(encoding="utf-8")
    assert set(re.findall(r"app\.kubernetes\.io/part-of=([$\w]+)", text)) == {"$service"}, "the chart's release"
    for group in built(name).groups.values():
        assert group.spec["template"]["metadata"]["labels"]["app.kubernetes.io/part-of"] == "outrider"


def test_every_command_of_rotation_ends_and_names_what_is_there() -> None:
    (section,) = re.findall(r"^## Rotate\n(.*?)^## ", README, flags=re.MULTILINE | re.DOTALL)
    overlays = [built(name) for name in ("production", "devices")]
    (statefulset,) = overlays[0].of_kind("StatefulSet")
    secrets = set[str]().union(*(overlay.secrets() for overlay in overlays))
    rotated = set(re.findall(r"`(outrider-[a-z-]+)`|create secret \w+ (outrider-[a-z-]+)", section))
    assert {one or other for one, other in rotated} == secrets
    for written in re.findall(r"kubectl [^`\n]*create secret[^`\n]*", section):
        assert re.search(r"--dry-run=client -o yaml \\?\| kubectl apply -f -", written), "one that is there is replaced"
    (block,) = re.findall(r"```sh\n(.*?)```", section, flags=re.DOTALL)
    for command in block.splitlines():
        if re.search(r" (rollout status|wait|delete) ", command):
            assert "--timeout=" in command, command
    assert re.findall(r"statefulset (\S+)", block) == [statefulset["metadata"]["name"]] * 2
    assert "-l ray.io/node-type=head" in block


def test_a_new_token_is_another_cluster() -> None:
    """KubeRay makes one for each, and another one where the pods of the head are described otherwise."""
    before = preset("production")
    env = [{"name": "ROTATED", "value": "2026-12"}]
    rotated = installed({**before, "head": {**before.get("head", {}), "env": env}})
    assert env[0] in rotated.groups["head"].container["env"]
    assert "--set head.env[0].name=ROTATED --set-string head.env[0].value=2026-12" in README


def test_a_rollback_is_the_release_before_after_what_is_down() -> None:
    (section,) = re.findall(r"^## Rollback\n(.*?)^## ", README, flags=re.MULTILINE | re.DOTALL)
    assert "helm -n outrider rollback outrider" in section
    assert "k8s/down.sh comes first" in section, "with one GPU"

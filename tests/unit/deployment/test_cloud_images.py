"""``ray up`` with images: what cluster/docker.yaml puts in place of an installation is merged by Ray and starts."""

import re
import shlex
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from ray.autoscaler._private.command_runner import DockerCommandRunner
from ray.autoscaler._private.util import prepare_config, validate_config

from outrider import __version__
from tests.unit.deployment.manifests import ROOT

CLUSTER = ROOT / "cluster"
TEXT = (CLUSTER / "docker.yaml").read_text(encoding="utf-8")


@pytest.fixture(params=["aws", "gcp"])
def prepared(request: pytest.FixtureRequest) -> dict[str, Any]:
    joined = (CLUSTER / f"{request.param}.yaml").read_text(encoding="utf-8") + TEXT
    found: dict[str, Any] = prepare_config(yaml.safe_load(joined))
    validate_config(found)
    return found | {"written": request.param}


def test_commands_are_those_for_containers(prepared: dict[str, Any]) -> None:
    written = yaml.safe_load(TEXT)
    assert prepared["worker_setup_commands"] == []
    assert prepared["head_setup_commands"] == written["head_setup_commands"]
    assert prepared["initialization_commands"] == written["initialization_commands"]
    inside = [*prepared["head_setup_commands"], *prepared["head_start_ray_commands"]]
    assert not [command for command in inside if "sudo" in command or "uv " in command], "an image has neither"
    cloud = yaml.safe_load((CLUSTER / f"{prepared['written']}.yaml").read_text(encoding="utf-8"))
    for kept in ("head_start_ray_commands", "worker_start_ray_commands", "file_mounts"):
        assert prepared[kept] == cloud[kept]


def test_the_comment_tells_how_to_join_the_files() -> None:
    assert "cat cluster/aws.yaml cluster/docker.yaml > outrider.yaml" in TEXT
    assert "#     export PATH=/opt/outrider/bin:$PATH" in TEXT, "a login shell forgets the image's own"
    for image in ("cpu", "cuda"):
        dockerfile = (ROOT / "docker" / f"{image}.Dockerfile").read_text(encoding="utf-8")
        assert "PATH=/opt/outrider/bin:$PATH" in dockerfile
        assert re.search(r"apt-get install .*\brsync\b", dockerfile), "by which Ray brings files into a container"
    assert re.search(r"install .*\bopenssh-client\b", (ROOT / "docker/cpu.Dockerfile").read_text(encoding="utf-8"))


@pytest.mark.parametrize(("docker", "ours"), [(False, False), (True, False), (True, True)])
def test_a_machine_has_docker_and_its_socket_is_ours(docker: bool, ours: bool, tmp_path: Path) -> None:
    (tools := tmp_path / "tools").mkdir()
    socket, log = tmp_path / "docker.sock", tmp_path / "log"
    if ours:
        socket.touch()
    for name in ("sudo", *(["docker"] if docker else [])):
        (tools / name).write_text(f'#!/bin/sh\necho "$*" >> {log}\n', encoding="utf-8")
        (tools / name).chmod(0o755)
    for command in yaml.safe_load(TEXT)["initialization_commands"]:
        shell = ["/bin/sh", "-c", command.replace("/run/docker.sock", str(socket))]
        subprocess.run(shell, env={"PATH": str(tools), "USER": "me"}, check=True, timeout=60)
    ran = log.read_text(encoding="utf-8") if log.exists() else ""
    assert ("apt-get install --yes docker.io" in ran) is not docker
    assert (f"chown me {socket}" in ran) is not ours


class _Machine:
    """Answers as a machine with Docker would, and keeps what Ray has it run."""

    def __init__(self) -> None:
        self.ran: list[str] = []

    def answer(self, command: list[str], **_: object) -> bytes:
        line = " ".join(command)
        self.ran.append(line)
        answers = {"inspect -f": b'["PATH=/opt/outrider/bin"]', "command -v": b"/usr/bin/docker", ".State": b"false"}
        return next((said for part, said in answers.items() if part in line), b"{}")

    check_call = check_output = answer


@pytest.mark.parametrize(("as_head", "image"), [(True, "outrider-cpu"), (False, "outrider-cuda")])
def test_ray_starts_the_container_with_our_files_where_commands_look(
    prepared: dict[str, Any], as_head: bool, image: str
) -> None:
    machine = _Machine()
    begin: Any = DockerCommandRunner
    runner = begin(
        prepared["docker"],
        log_prefix="",
        node_id="1",
        provider=SimpleNamespace(internal_ip=lambda _: "10.0.0.1", external_ip=lambda _: "10.0.0.1"),
        auth_config={"ssh_user": "ubuntu"},
        cluster_name="outrider",
        process_runner=machine,
        use_internal_ip=True,
    )
    runner.run_init(as_head=as_head, file_mounts=prepared["file_mounts"], sync_run_yet=True)
    (line,) = [one for one in machine.ran if "docker run" in one]
    words = shlex.split(line.replace("'", " "))
    assert f"registry.example/{image}:{__version__}" in words
    (mounted,) = [words[number + 1] for number, word in enumerate(words) if word == "-v"]
    assert mounted.endswith(":/root/.outrider")
    assert "--user=root" in words, "whose home is /root"
    assert "--net=host" in words

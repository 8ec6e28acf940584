"""The files of `ray up` are true: Ray and our loader accept them, and what is claimed is offered."""

import json
import re
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from ray.autoscaler._private.util import prepare_config, validate_config

from cluster.capacity_check import drafter_claims, misfit, place, service_claims
from outrider.config.reading import load_config
from outrider.config.schema import Config

ROOT = Path(__file__).parents[2]
ONPREM = ROOT / "cluster" / "onprem.yaml"


def everything_fits(config: Config, nodes: list[dict[str, float]]) -> None:
    claims = (*service_claims(config), *drafter_claims(config))
    assert misfit(claims, nodes) is None
    assert place(claims, nodes) == ()


@pytest.fixture(scope="module")
def onprem() -> dict[str, Any]:
    prepared: dict[str, Any] = prepare_config(yaml.safe_load(ONPREM.read_text(encoding="utf-8")))
    validate_config(prepared)
    return prepared


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


def test_no_secret_stands_in_a_file() -> None:
    assert not re.search(r"(?i)(password|secret|token)\s*:\s*\S{16,}", ONPREM.read_text(encoding="utf-8"))

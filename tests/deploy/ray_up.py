"""The shipped file for machines of one's own, from ``ray up`` to ``ray down``, on machines with ssh servers.

Takes many minutes, so it is no part of the suite: ``make test PYTEST_ARGS=tests/deploy/ray_up.py``, as root, with the
Debian packages openssh-server and rsync.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cluster.served import MODEL, eventually
from tests.deploy.conftest import ROOT
from tests.deploy.machines import Machine, Machines, machines

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="makes network namespaces: needs root")

HEAD, SERVER, JETSON = 10, 21, 22  # the last part of their addresses
_WITHIN_S = 240.0
_CLIENTS, _TOKENS, _LONG = 2, 40, 200
_ASK = """
import json, sys
from tests.cluster.streams import streams
made = streams(sys.argv[1], clients=int(sys.argv[2]), tokens=int(sys.argv[3]))
accepted = sum(one.usage["outrider"]["accepted_tokens"] for one in made)
print(json.dumps({"told": [[one.text, one.token_logprobs] for one in made], "accepted": accepted}))
"""
_STATUS = "import httpx, sys; print(httpx.get(sys.argv[1] + '/status', timeout=60).text)"
_ON_HEAD = "deploy --address auto --config /etc/outrider/config.yaml"


@dataclass(frozen=True)
class Site:
    """What an operator has: machines, and the two files, filled in."""

    machines: Machines
    cluster_file: Path
    config_file: Path
    url: str

    def ray(self, command: str, *arguments: str) -> str:
        """As the file's head says."""
        return self.machines.operator.run("ray", command, str(self.cluster_file), *arguments, timeout_s=400).stdout

    def outrider(self, arguments: str) -> str:
        """On the head."""
        return self.ray("exec", f". /etc/outrider/env; outrider {arguments}")

    def ssh(self, machine: Machine, command: str) -> None:
        """Say something on a machine, as the file's head does."""
        known = ("-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null")
        self.machines.operator.run("ssh", "-i", str(self.machines.key), *known, f"root@{machine.address}", command)

    def deploy(self, changes: dict[str, Any]) -> str:
        """The configuration of the shipped file, with these changes."""
        text = (ROOT / "cluster" / "onprem-config.yaml").read_text(encoding="utf-8")
        self.config_file.write_text(yaml.safe_dump(_merged(yaml.safe_load(text), changes)), encoding="utf-8")
        self.ray("rsync-up", str(self.config_file), "/etc/outrider/config.yaml")
        return self.outrider(_ON_HEAD)

    def status(self) -> Any:
        """As the service tells it."""
        return json.loads(self.machines.operator.run(sys.executable, "-c", _STATUS, self.url).stdout)

    def ready_drafters(self) -> int:
        """How many are."""
        return sum(drafter["state"] == "ready" for drafter in self.status()["drafters"])

    @contextmanager
    def asking(self, tokens: int) -> Iterator["subprocess.Popen[str]"]:
        """Clients that stream meanwhile."""
        command = self.machines.operator.command(sys.executable, "-c", _ASK, self.url, str(_CLIENTS), str(tokens))
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            try:
                yield process
            finally:
                process.kill()

    def asked(self, tokens: int) -> Any:
        """What clients were told."""
        with self.asking(tokens) as process:
            return _answer(process)


def _answer(process: "subprocess.Popen[str]") -> Any:
    output, errors = process.communicate(timeout=_WITHIN_S)
    assert process.returncode == 0, errors
    return json.loads(output)


def _merged(base: Any, changes: Any) -> Any:
    if not isinstance(base, dict) or not isinstance(changes, dict):
        return changes
    return base | {name: _merged(base.get(name), value) for name, value in changes.items()}


def changes(verifiers: int) -> dict[str, Any]:
    """What these machines lack, which are no GPU servers; the embedded pair."""
    return {
        "model": {"target": "embedded", "served_name": MODEL, "dtype": "float32"},
        "verifiers": {"count": verifiers, "device": "cpu", "kv_budget_mib": 64},
        "drafters": [
            {
                "name": "jetson",
                "trust": "trusted",
                "model": "embedded",
                "device": "cpu",
                "dtype": "float32",
                "count": 1,
                "num_gpus": 1.0,
                "resources": {"jetson": 1.0},
                "kv_budget_mib": 64,
            }
        ],
        "speculation": {"window": 2, "lookup_window": 0},  # what is accepted comes from a device
    }


@pytest.fixture
def site() -> Iterator[Site]:
    """Machines that nothing runs on yet."""
    with machines() as made:
        made.boot(HEAD)
        made.boot(SERVER, {"resources.json": '{"verifier": 1}', "cpus": "4"})
        made.boot(JETSON)
        addresses = {host: f"192.0.2.{host}" for host in (HEAD, SERVER, JETSON)}
        file = yaml.safe_load((ROOT / "cluster" / "onprem.yaml").read_text(encoding="utf-8"))
        file["provider"] |= {"head_ip": addresses[HEAD], "worker_ips": [addresses[SERVER], addresses[JETSON]]}
        file["auth"] = {"ssh_user": "root", "ssh_private_key": str(made.key)}
        cluster_file = made.folder / "onprem.yaml"
        cluster_file.write_text(yaml.safe_dump(file, sort_keys=False), encoding="utf-8")
        yield Site(made, cluster_file, made.folder / "config.yaml", f"http://{addresses[HEAD]}:8000")


def _nodes(head: Machine) -> int:
    asks = "import ray; ray.init('auto', logging_level=50, log_to_driver=False)"
    counts = f"{asks}; print(sum(node['Alive'] for node in ray.nodes()))"
    return int(head.run(sys.executable, "-c", counts).stdout.splitlines()[-1])


def _autoscaler_log(head: Machine) -> str:
    """Its last lines."""
    return head.run("sh", "-c", "tail -n 100 /tmp/ray/session_latest/logs/monitor.*").stdout


def test_up_to_down(site: Site) -> None:
    head, server, jetson = (site.machines.at(host) for host in (HEAD, SERVER, JETSON))
    site.ray("up", "--yes", "--no-config-cache")
    try:
        eventually(lambda: _nodes(head) == 3, _WITHIN_S)
    except AssertionError as error:
        raise AssertionError(_autoscaler_log(head)) from error

    assert "Ready: " in site.deploy(changes(verifiers=1))
    eventually(lambda: site.ready_drafters() == 1, _WITHIN_S)
    alone = site.asked(_LONG)
    assert alone["accepted"] > 0

    with site.asking(_LONG) as process:  # a machine dies under its responses, and they go on without it
        eventually(lambda: site.status()["drafters"][0]["generations"] > 0, _WITHIN_S)
        jetson.cut()
        assert _answer(process)["told"] == alone["told"]
    eventually(lambda: site.ready_drafters() == 0, _WITHIN_S)
    jetson = site.machines.boot(JETSON)  # nobody does more than switch it on
    eventually(lambda: site.ready_drafters() == 1, _WITHIN_S)
    assert site.asked(_TOKENS)["accepted"] > 0

    assert "Ready: " in site.deploy(changes(verifiers=2))
    eventually(lambda: any("VerifierActor" in line for line in server.programs()), _WITHIN_S)
    eventually(lambda: len(site.status()["coordinators"]) == 2, _WITHIN_S)
    assert site.asked(_LONG)["told"] == alone["told"]

    site.outrider(f"{_ON_HEAD} --remove")
    site.ray("down", "--yes")
    for machine in (server, jetson):
        site.ssh(machine, ". /etc/outrider/env; ray stop")
    eventually(lambda: not any(machine.programs() for machine in (head, server, jetson)), _WITHIN_S)

"""The application comes up on a cluster that was started by others: by the command line, and as KubeRay does it."""

import json
import re
import subprocess
import time
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from tests.cluster.served import eventually, free_ports
from tests.deploy.conftest import Head
from tests.unit.deployment.manifests import built

pytestmark = pytest.mark.cluster

_UP_WITHIN_S = 300


def completes(url: str, model: str) -> None:
    """Send one completion, whose answer is known."""
    body = {
        "model": model,
        "messages": [{"role": "user", "content": "Name the capital of France."}],
        "temperature": 0,
        "max_tokens": 12,
    }
    answer = httpx.post(f"{url}/v1/chat/completions", json=body, timeout=120)
    assert answer.status_code == httpx.codes.OK, answer.text
    assert "Paris" in answer.json()["choices"][0]["message"]["content"]


def refuses_connections(url: str) -> bool:
    try:
        httpx.get(url, timeout=10)
    except httpx.ConnectError:
        return True
    return False


@pytest.mark.parametrize("scheme", ["", "ray://"])
def test_no_cluster_there(head: Head, scheme: str) -> None:
    (port,) = free_ports(1)
    done = head.outrider("deploy", "--address", f"{scheme}127.0.0.1:{port}")
    assert done.returncode == 2
    assert f"at {scheme}127.0.0.1:{port}, found: [Errno 111] Connection refused" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_no_room_for_the_verifier(head: Head) -> None:
    done = head.outrider("deploy", "--address", head.address, "--set", "verifiers.num_gpus=1")
    assert done.returncode == 2
    assert "verifiers needs a node with 1 CPU, 1 GPU for a verifier, found" in done.stderr


@pytest.mark.long
def test_a_rayservice_comes_up(head: Head) -> None:
    """The trial's Serve configuration, in less memory, by the call KubeRay makes. Deleted, it holds nothing."""
    serve_config = yaml.safe_load(built("trial").service["spec"]["serveConfigV2"])
    (port,) = free_ports(1)
    (application,) = serve_config["applications"]
    config = application["args"]["config"]
    config["verifiers"] = {"kv_budget_mib": 64}
    config["drafters"][0] |= {"kv_budget_mib": 64}
    serve_config["http_options"] |= {"host": "127.0.0.1", "port": port}
    applications = f"{head.dashboard_url}/api/serve/applications/"
    with httpx.Client(headers={"Authorization": f"Bearer {head.token}"}, timeout=60) as client:
        accepted = client.put(applications, json=serve_config)
        assert accepted.is_success, accepted.text
        give_up_at_s = time.monotonic() + _UP_WITHIN_S
        while (state := state_of(client.get(applications).json(), application["name"]))["status"] != "RUNNING":
            assert state["status"] in {"NOT_STARTED", "DEPLOYING"}, state
            assert time.monotonic() < give_up_at_s, state
            time.sleep(0.2)
        completes(f"http://127.0.0.1:{port}", "smollm2-135m-instruct")
        eventually(lambda: head.available("jetson") == 0.0, _UP_WITHIN_S)
        assert client.delete(applications).is_success
    eventually(lambda: head.available("jetson") == 1.0, _UP_WITHIN_S)


def state_of(details: dict[str, Any], name: str) -> dict[str, Any]:
    """An application's state, as the dashboard tells it; it may take a moment to know it."""
    state: dict[str, Any] = details["applications"].get(name, {"status": "NOT_STARTED"})
    return state


def test_deploy_update_and_remove(head: Head, tmp_path: Path) -> None:
    (port,) = free_ports(1)
    file = tmp_path / "my.yaml"
    file.write_text(f"model: {{served_name: first}}\nhttp: {{port: {port}}}\n", encoding="utf-8")
    deploy = ("deploy", "--address", head.address, "--config", str(file))
    url = f"http://127.0.0.1:{port}"

    done = head.outrider(*deploy)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == f"Cluster: 1 node(s) at {head.address}"
    assert any(re.fullmatch(r"Application: deploying; Coordinator: 1 starting; .*", line) for line in lines), lines
    *lines, page, to_try = lines
    assert (lines[-3], lines[-1]) == ("Drafters: 1 of 1 ready", f"Ready: first at {url}/v1")
    assert page == f"Page: {url}/"
    assert httpx.get(page.removeprefix("Page: ")).headers["content-type"].startswith("text/html")
    tried = subprocess.run(
        ["/bin/bash", "-c", to_try.removeprefix("Try: ")], capture_output=True, timeout=120, check=True
    )
    assert json.loads(tried.stdout)["model"] == "first"
    computes = re.fullmatch(r"Verifier: torch in (bfloat16|float32) on .+, 1 thread\(s\)", lines[-2])
    assert computes, lines
    completes(url, "first")

    taken = head.outrider(*deploy, "--set", "http.port=1")
    assert taken.returncode == 2
    assert f"http.port needs {port} as Serve on this cluster already listens there" in taken.stderr

    other = {"bfloat16": "float32", "float32": "bfloat16"}[computes[1]]
    changes = ("model.served_name=second", f"model.dtype={other}", "drafters.0.count=2")
    updated = head.outrider(*deploy, *(part for change in changes for part in ("--set", change)))
    assert updated.returncode == 0, updated.stdout + updated.stderr
    assert "Note: a drafter of group embedded waits for a node with 1 jetson" in updated.stdout
    *lines, _, to_try = updated.stdout.splitlines()
    assert '"model": "second"' in to_try
    assert (lines[-3], lines[-1]) == ("Drafters: 1 of 2 ready", f"Ready: second at {url}/v1")
    assert lines[-2] == computes[0].replace(computes[1], other), "of the new verifier, though the old one is remembered"
    completes(url, "second")

    removed = head.outrider(*deploy, "--remove")
    assert removed.returncode == 0, removed.stdout + removed.stderr
    assert removed.stdout.splitlines() == [
        "Serve: removing the application, once the responses under way have ended",
        "Ended: fleet",
        "Ended: drafter-embedded-0, drafter-embedded-1",
        "Removed",
    ]
    assert refuses_connections(url)
    again = head.outrider(*deploy, "--remove")
    assert again.stdout.splitlines() == ["Serve: the application does not run here", "Removed"]

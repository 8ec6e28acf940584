"""Processes die in mid-stream; the clients notice nothing and get the very same tokens."""

import contextlib
import json
import os
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from tests.cluster.conftest import Service, eventually
from tests.cluster.prompts import CHATS

TOKENS = 60
CLIENTS = 4


def actor_pids(class_name: str) -> list[int]:
    """Processes of this test's cluster that run an actor of one class (Ray names them so)."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                command = (folder / "cmdline").read_text()
            except OSError:
                continue
            if command.startswith(f"ray::{class_name}") and os.getpid() in ancestors(int(folder.name)):
                found.append(int(folder.name))
    return sorted(found)


def ancestors(pid: int) -> Iterator[int]:
    """Parents of a process, nearest first."""
    while pid > 1:
        try:
            status = Path(f"/proc/{pid}/stat").read_text()
        except OSError:
            return
        pid = int(status.rpartition(")")[2].split()[1])
        yield pid


def streamed(service: Service, act: Callable[[], None]) -> list[str]:
    """Four responses at once, greedy and seeded; ``act`` runs when the first of them is under way."""
    acted: list[bool] = []

    def one(i: int) -> str:
        body = {
            "model": service.config.model.public_name,
            "messages": [{"role": "user", "content": CHATS[i]}],
            "max_tokens": TOKENS,
            "temperature": 0.8 * (i % 2),
            "seed": i,
            "ignore_eos": True,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        events = []
        with httpx.stream("POST", f"{service.url}/v1/chat/completions", json=body, timeout=300) as response:
            assert response.status_code == httpx.codes.OK
            for line in response.iter_lines():
                if line.startswith("data: {"):
                    events.append(json.loads(line.removeprefix("data: ")))
                    if i == 0 and len(events) == 8:
                        act()
                        acted.append(True)
        assert line == "" or line.endswith("[DONE]")
        assert events[-1]["usage"]["completion_tokens"] == TOKENS
        return "".join(event["choices"][0]["delta"].get("content", "") for event in events if event["choices"])

    with ThreadPoolExecutor(CLIENTS) as pool:
        texts = list(pool.map(one, range(CLIENTS)))
    assert acted, "the response ended before anything could happen to it"
    return texts


@pytest.fixture(scope="module")
def undisturbed(service: Service) -> list[str]:
    """What the clients get when nothing happens."""
    return streamed(service, lambda: None)


def kill(class_name: str) -> None:
    """Kill every process of an actor class at once, as a power cut would."""
    pids = actor_pids(class_name)
    assert pids, f"no {class_name} runs"
    for pid in pids:
        os.kill(pid, signal.SIGKILL)


def all_idle(service: Service) -> bool:
    """Whether every drafter is ready again and nothing is leased."""
    loads = service.drafter_loads()
    return len(loads) == service.config.drafters[0].count and not any(loads.values())


def test_killed_drafters_cost_no_token(service: Service, undisturbed: list[str]) -> None:
    assert streamed(service, lambda: kill("DrafterActor")) == undisturbed
    eventually(lambda: all_idle(service), within_s=120)
    assert streamed(service, lambda: None) == undisturbed, "with the restarted drafters"


def test_a_drafter_that_hangs_is_left_behind_and_replaced(service: Service, undisturbed: list[str]) -> None:
    stopped = []

    def stop_all() -> None:
        for pid in actor_pids("DrafterActor"):
            os.kill(pid, signal.SIGSTOP)
            stopped.append(pid)

    assert streamed(service, stop_all) == undisturbed
    assert stopped
    eventually(lambda: all_idle(service), within_s=120)


def test_a_killed_verifier_costs_no_token(service: Service, undisturbed: list[str]) -> None:
    assert streamed(service, lambda: kill("VerifierActor")) == undisturbed
    eventually(lambda: all_idle(service), within_s=120)


def test_clients_that_hang_up_leave_nothing_behind(service: Service) -> None:
    """At different moments: before the first token, between two chunks, in the middle of a round."""
    body = {
        "model": service.config.model.public_name,
        "prompt": "Once upon a time",
        "max_tokens": 400,
        "ignore_eos": True,
        "stream": True,
    }
    for events in range(12):
        with httpx.stream("POST", f"{service.url}/v1/completions", json=body, timeout=60) as response:
            assert response.status_code == httpx.codes.OK
            lines = (line for line in response.iter_lines() if line)
            assert all("data:" in next(lines) for _ in range(events))
    with contextlib.suppress(httpx.ReadTimeout):
        httpx.post(f"{service.url}/v1/completions", json={**body, "stream": False}, timeout=0.7)
    eventually(lambda: service.ready().get("generations") == 0, within_s=60)
    eventually(lambda: service.ready()["kv"]["used_blocks"] == 0, within_s=60)
    eventually(lambda: all_idle(service), within_s=60)

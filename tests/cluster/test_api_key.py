"""``outrider serve`` with flags: the key opens the API, and is nowhere that another process or a log tells it."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.cluster.served import PLAIN, Service, served
from tests.hostile.measures import descendants

KEY, WRONG = "token-abc123-of-one-operator", "token-abc123-of-another"
FLAGS = ("embedded", "--served-model-name", "mine", "--max-model-len", "512", "--dtype", "float32", "--api-key", KEY)


@pytest.fixture(scope="module")
def keyed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Service, Path]]:
    """A service, and the folder with its output."""
    folder = tmp_path_factory.mktemp("keyed")
    with served(folder, {}, FLAGS) as service:
        yield service, folder


def ask(service: Service, key: str) -> httpx.Response:
    headers = {"authorization": f"Bearer {key}"} if key else {}
    body = {"model": "mine", "prompt": "One, two,", "max_tokens": 2}
    return httpx.post(f"{service.url}/v1/completions", json=body, headers=headers, timeout=300, verify=PLAIN)


def test_the_key_opens_the_service_that_flags_describe(keyed: tuple[Service, Path]) -> None:
    service, _ = keyed
    assert [ask(service, key).status_code for key in (KEY, WRONG, "")] == [200, 401, 401]
    headers = {"authorization": f"Bearer {KEY}"}
    (model,) = httpx.get(f"{service.url}/v1/models", headers=headers, timeout=60, verify=PLAIN).json()["data"]
    assert (model["id"], model["max_model_len"]) == ("mine", 512)


def test_the_key_stands_in_no_process_and_no_file(keyed: tuple[Service, Path]) -> None:
    """Of children neither arguments nor environment; of the service itself, whose owner gave it, no arguments."""
    service, folder = keyed
    ask(service, KEY)
    told = list[str]()
    children = list(descendants(service.pid))
    assert len(children) > 3
    for pid in (service.pid, *children):
        told += [f"cmdline of {pid}"] * holds(Path(f"/proc/{pid}/cmdline"))
    for pid in children:
        told += [f"environ of {pid}"] * holds(Path(f"/proc/{pid}/environ"))
    session = service.logs.parent
    files = [path for root in (session.parents[1], folder) for path in root.rglob("*") if path.is_file()]
    assert any(path.parent == service.logs for path in files)
    told += [str(path) for path in files if holds(path)]
    assert told == []


def holds(path: Path) -> bool:
    """Whether the key is in a file, which may have gone, or be a process that has ended."""
    try:
        return KEY.encode() in path.read_bytes()
    except OSError:
        return False

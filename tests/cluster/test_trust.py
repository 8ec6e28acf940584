"""A service that trusts nobody: an untrusted device helps and changes nothing, and keys hold over two ingresses."""

import contextlib
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
import ray

from outrider.config.access import AuthConfig
from outrider.config.reading import load_config
from outrider.config.replicas import IngressConfig
from outrider.contracts.requests import SamplingParams
from outrider.protocols.registry import PROTOCOLS, untrusted_safe_protocols
from tests.cluster.served import MODEL, PLAIN, Service, eventually, started

FULL, SCALAR_LIMIT, NEW = "sk-everything-0123456", "sk-three-a-minute-012", "sk-later-added-012345"
DRAFTER = "drafter-visitors-0"
_WITHIN_S = 240.0
KEYS = f"""
keys:
  - {{name: full, key: {FULL}}}
  - {{name: few, key: {SCALAR_LIMIT}, requests_per_minute: 3.0, slo: {{allowed: [best_effort]}}}}
"""


@pytest.fixture(scope="module")
def keys_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("keys") / "keys.yaml"
    file.write_text(KEYS)
    return file


@pytest.fixture(scope="module")
def service(keys_file: Path) -> Iterator[Service]:
    """One untrusted device, two ingresses, keys."""
    config = load_config()
    group = replace(config.drafters[0], name="visitors", trust="untrusted")
    config = replace(config, drafters=(group,), ingress=IngressConfig(2), auth=AuthConfig(str(keys_file)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("serve_app.api.service.KEYS_RELOAD_S", 0.5)
        with started(config) as service:
            yield service


def ask(service: Service, key: str | None = FULL, **fields: Any) -> httpx.Response:
    body = {"model": MODEL, "prompt": "Once upon a time", "max_tokens": 24, "temperature": 0} | fields
    headers = {} if key is None else {"authorization": f"Bearer {key}"}
    return httpx.post(f"{service.url}/v1/completions", json=body, headers=headers, timeout=300, verify=PLAIN)


def answer(service: Service, **fields: Any) -> tuple[str, dict[str, Any]]:
    response = ask(service, **fields)
    assert response.status_code == httpx.codes.OK, response.text
    made = response.json()
    return made["choices"][0]["text"], made["usage"]["outrider"]


def helps(service: Service) -> bool:
    return bool(answer(service, outrider={"window": 4})[1]["accepted_tokens"])


@pytest.mark.parametrize("sampling", [{"temperature": 0}, {"temperature": 0.8, "seed": 5}], ids=["greedy", "seeded"])
def test_an_untrusted_device_drafts_what_cannot_change_the_answer(service: Service, sampling: dict[str, Any]) -> None:
    eventually(lambda: helps(service), _WITHIN_S)
    alone, _ = answer(service, **sampling, outrider={"window": 0, "lookup": False})
    helped, told = answer(service, **sampling, outrider={"window": 4})
    assert helped == alone
    safe = untrusted_safe_protocols(PROTOCOLS, SamplingParams(**sampling))
    assert set(told["protocols"]) <= {*safe, "lookup", "none"}


@pytest.mark.parametrize("protocol", ["dsd", "tslt", "dssd"])
def test_what_would_need_trust_is_refused(service: Service, protocol: str) -> None:
    refused = ask(service, temperature=0.8, outrider={"protocol": protocol})
    assert refused.status_code == httpx.codes.BAD_REQUEST
    assert "as none of its drafters is trusted" in refused.json()["error"]["message"]
    judged = ask(service, outrider={"verification": "semantic"})
    assert judged.status_code == httpx.codes.BAD_REQUEST


def test_keys_hold_over_both_ingresses_and_change_without_a_restart(service: Service, keys_file: Path) -> None:
    assert ask(service, None).status_code == ask(service, FULL + "x").status_code == httpx.codes.UNAUTHORIZED
    assert ask(service, SCALAR_LIMIT, outrider={"slo_class": "speed_2"}).status_code == httpx.codes.FORBIDDEN
    with ThreadPoolExecutor(12) as pool:
        responses = list(pool.map(lambda _: ask(service, SCALAR_LIMIT, max_tokens=4), range(12)))
    counted = Counter(response.status_code for response in responses)
    assert set(counted) == {httpx.codes.OK, httpx.codes.TOO_MANY_REQUESTS}
    refused = [each for each in responses if each.status_code == httpx.codes.TOO_MANY_REQUESTS]
    assert {each.json()["error"]["code"] for each in refused} == {"rate_limit_exceeded"}
    waits = [int(each.headers["retry-after"]) for each in refused]
    assert min(waits) >= 1
    assert max(waits) <= 20, "three a minute"
    keys_file.write_text(KEYS + f"  - {{name: new, key: {NEW}}}\n")
    eventually(lambda: ask(service, NEW, max_tokens=1).status_code == httpx.codes.OK, _WITHIN_S)
    service.check_released()


def test_a_key_sees_its_own_cache_alone(service: Service, keys_file: Path) -> None:
    keys_file.write_text(KEYS + f"  - {{name: new, key: {NEW}}}\n")
    eventually(lambda: all(ask(service, NEW, max_tokens=1).status_code == httpx.codes.OK for _ in range(8)), _WITHIN_S)
    prompt = "A prompt that two customers have in common, and neither is to know of the other. " * 8

    def cached(key: str, **fields: Any) -> int:
        usage = ask(service, key, prompt=prompt, max_tokens=1, **fields).json()["usage"]
        return int(usage["prompt_tokens_details"]["cached_tokens"])

    assert cached(FULL) == 0
    assert cached(FULL) > 0
    assert cached(NEW) == cached(FULL, cache_salt="mine") == 0
    assert cached(NEW) == cached(FULL, cache_salt="mine") > 0


class BombError(Exception):
    """Leaves a trace where it is unpickled, returned or raised."""

    def __init__(self, trace: str) -> None:
        super().__init__(trace)
        self.trace = trace

    def __reduce__(self) -> tuple[Any, tuple[()]]:
        """To be read as a call."""
        return Path(self.trace).touch, ()


class Bomber:
    """Runs under a drafter's name."""

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder)
        self._asked = 0

    async def who(self) -> str:
        """Give itself away."""
        return "bomber"

    async def reply(self, *_: object) -> BombError:
        """By turns."""
        self._asked += 1
        (self._folder / f"asked-{self._asked}").touch()
        bomb = BombError(str(self._folder / "gone_off"))
        if self._asked % 2:
            return bomb
        raise bomb


@pytest.mark.long
def test_nothing_that_it_sends_is_unpickled(service: Service, tmp_path: Path) -> None:
    eventually(lambda: bool(service.drafters("ready")), _WITHIN_S)

    def moved_in() -> bool:
        actor: Any = ray.remote(Bomber).options(
            name=DRAFTER,
            namespace=service.config.cluster.namespace,
            lifetime="detached",
            num_cpus=0,
            max_restarts=-1,
            get_if_exists=True,
        )
        try:
            if ray.get(actor.remote(str(tmp_path)).who.remote(), timeout=60) == "bomber":
                return True
        except (ray.exceptions.RayError, AttributeError):  # a dead one whose name is not free yet, or a genuine one
            pass
        with contextlib.suppress(ValueError):
            ray.kill(service.drafter(DRAFTER), no_restart=True)
        return False

    eventually(moved_in, _WITHIN_S)
    eventually((tmp_path / "asked-1").exists, _WITHIN_S)
    eventually(lambda: helps(service), _WITHIN_S)  # a genuine one is back
    assert not (tmp_path / "gone_off").exists()
    service.check_released()

"""Drafters that are not what they should be: refused by the handshake, or dropped for nonsense; responses go on."""

import contextlib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import pytest
import ray

from actors.messages import PROTOCOL_VERSION, DraftReply, ModelCard
from outrider.engines.base import Draft, DraftRequest, OpenGeneration
from tests.cluster.conftest import Service
from tests.cluster.served import MODEL, eventually

IMPOSTORS = ("drafter-embedded-0", "drafter-embedded-1", "drafter-embedded-2")
_WITHIN_S = 120.0
_TOKENS = 32


@dataclass(frozen=True)
class Nonsense:
    """What an impostor says of itself and how it changes its drafts."""

    card: object
    kind: str = "honest"


class Impostor:
    """Runs under a drafter's name. It drafts token 1 again and again, spoilt as told."""

    def __init__(self, nonsense: Nonsense) -> None:
        self._nonsense = nonsense

    async def nonsense(self) -> Nonsense:
        """Give itself away."""
        return self._nonsense

    async def card(self) -> object:
        """Who it claims to be."""
        return self._nonsense.card

    async def held(self) -> tuple[str, ...]:
        """Nothing."""
        if self._nonsense.kind == "silent":
            raise RuntimeError("the fleet is to look closer")
        return ()

    async def open(self, request: OpenGeneration) -> None:
        """Agree to everything."""

    async def close(self, generation: str) -> None:
        """Agree to everything."""

    async def draft(self, request: DraftRequest) -> object:
        """Answer, not quite what was asked."""
        position = request.feedback_position + len(request.feedback)
        honest = Draft(request.generation, request.round, position, (1,) * request.window, ())
        if request.window == 0:
            return DraftReply(honest, 0.0)
        spoilt: dict[str, object] = {
            "wrong_round": replace(honest, round=request.round + 7),
            "wrong_length": replace(honest, token_ids=(1,) * (request.window + 1)),
            "out_of_range": replace(honest, token_ids=(10**9,)),
            "oversized": replace(honest, token_ids=(1,) * 1_000_000),
            "not_a_draft": "hello",
        }
        return DraftReply(spoilt[self._nonsense.kind], 0.0)  # type: ignore[arg-type]


def card(service: Service) -> ModelCard:
    """A genuine drafter's card."""
    drafter: Any = ray.get_actor(IMPOSTORS[0], namespace=service.config.cluster.namespace)
    genuine: ModelCard = ray.get(drafter.card.remote(), timeout=60)
    return genuine


def usurp(service: Service, nonsense: Sequence[Nonsense]) -> None:
    """Put these impostors in the place of as many drafters."""
    namespace = service.config.cluster.namespace

    def moved_in(name: str, spoilt: Nonsense) -> bool:
        actor: Any = ray.remote(Impostor).options(
            name=name, namespace=namespace, lifetime="detached", num_cpus=0, get_if_exists=True
        )
        try:
            handle = actor.remote(spoilt)
            found: Nonsense = ray.get(handle.nonsense.remote(), timeout=60)
        except (ray.exceptions.RayError, AttributeError):  # a dead one whose name is not free yet, or a genuine one
            with contextlib.suppress(ValueError):
                ray.kill(ray.get_actor(name, namespace=namespace), no_restart=True)
            return False
        return found == spoilt

    for name, spoilt in zip(IMPOSTORS, nonsense, strict=False):
        eventually(lambda name=name, spoilt=spoilt: moved_in(name, spoilt), _WITHIN_S)  # type: ignore[misc]


def drafters(service: Service) -> list[dict[str, Any]]:
    """What the fleet says of its drafters."""
    found: Any = service.get("/status")["drafters"]
    return list(found)


def all_ready(service: Service) -> bool:
    return all(drafter["state"] == "ready" for drafter in drafters(service))


@pytest.fixture(autouse=True)
def genuine_again(service: Service) -> Iterator[None]:
    """Afterwards the fleet has put genuine drafters back by itself."""
    eventually(lambda: all_ready(service), _WITHIN_S)
    yield
    eventually(lambda: all_ready(service), _WITHIN_S)
    assert complete(service)["usage"]["outrider"]["accepted_tokens"] > 0


def complete(service: Service) -> Any:
    """A response whose drafts are accepted in part."""
    body = {"model": MODEL, "prompt": "Once upon a time there was", "max_tokens": _TOKENS, "temperature": 0}
    return service.post("/v1/completions", {**body, "outrider": {"window": 4}})


@pytest.mark.parametrize(
    "kinds", [("wrong_round", "wrong_length", "out_of_range"), ("oversized", "not_a_draft", "wrong_round")]
)
def test_those_that_answer_nonsense_are_dropped_and_the_responses_go_on(
    service: Service, kinds: tuple[str, ...]
) -> None:
    genuine, undisturbed = card(service), complete(service)["choices"][0]["text"]
    usurp(service, [Nonsense(genuine, kind) for kind in kinds])
    with ThreadPoolExecutor(6) as pool:
        answers = list(pool.map(lambda _: complete(service), range(6)))
    assert {answer["choices"][0]["text"] for answer in answers} == {undisturbed}
    eventually(lambda: all(d["state"] == "refused" and "needs" in d["reason"] for d in drafters(service)), _WITHIN_S)


@pytest.mark.parametrize(
    "faults",
    [
        {"needs protocol version": {"protocol_version": PROTOCOL_VERSION + 1}, "needs model": {"model_hash": "f" * 64}},
        {"needs token map": {"token_map_hash": "f" * 64}},
    ],
    ids=", ".join,
)
def test_those_that_fail_the_handshake_are_refused_with_the_reason(
    service: Service, faults: dict[str, dict[str, Any]]
) -> None:
    genuine = card(service)
    usurp(service, [Nonsense(replace(genuine, **change), "silent") for change in faults.values()])
    seen: set[str] = set()

    def all_refused() -> bool:
        told = [drafter["reason"] or "" for drafter in drafters(service) if drafter["state"] == "refused"]
        seen.update(reason for reason in faults for said in told if said.startswith(reason))
        return seen == set(faults)

    eventually(all_refused, _WITHIN_S)
    assert complete(service)["usage"]["completion_tokens"] == _TOKENS

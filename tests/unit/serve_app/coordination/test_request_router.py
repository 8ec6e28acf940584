"""Routing as Serve comes by this project's router: who is meant is reached, whoever else waits to be routed."""

import asyncio
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

import pytest
from ray.serve._private.common import DeploymentHandleSource, DeploymentID, ReplicaID, RequestMetadata
from ray.serve._private.request_router.common import PendingRequest
from ray.serve._private.request_router.replica_wrapper import RunningReplica
from ray.serve.config import RequestRouterConfig

from serve_app.app import ROUTER
from serve_app.coordination.draining import should_migrate
from serve_app.coordination.listener import BY_RESPONSES, PLACES, TAKEN, TARGET, TOKEN_MAP, VERIFIER_UP, Listener
from serve_app.coordination.request_router import PrefixRouter
from tests.unit.serve_app.api.in_memory_service import request_for
from tests.unit.virtual_clock import on_loop

Stats = Mapping[str, bool | str | float]
DEPLOYMENT = DeploymentID("Coordinator", "outrider")
NAMES = ("x", "y", "z")


@dataclass(frozen=True)
class Replica:
    """As far as a router looks at one; it answers after a while, and is full now and then."""

    name: str
    chance: random.Random
    max_ongoing_requests: int = 10
    node_id: str = "node"
    availability_zone: str | None = None
    multiplexed_model_ids: frozenset[str] = field(default_factory=frozenset)
    routing_stats: dict[str, bool | str | float] = field(default_factory=dict)

    @property
    def replica_id(self) -> ReplicaID:
        return ReplicaID(self.name, DEPLOYMENT)

    async def get_queue_len(self, *, deadline_s: float) -> int:  # noqa: ARG002 (interface)
        await asyncio.sleep(self.chance.choice((0.0, 0.001, 0.01)))
        return self.chance.choice((0, 0, 10))


@dataclass(frozen=True)
class IdleReplica(Replica):
    """It has nothing to do."""

    async def get_queue_len(self, *, deadline_s: float) -> int:  # noqa: ARG002 (interface)
        return 0


def call_of(
    name: str, first: object, *, shared: str | None = None, lost: tuple[str, ...] | None = None
) -> PendingRequest:
    arguments = [first] if lost is None else [first, "ingress", lost]
    return PendingRequest(arguments, {}, RequestMetadata(name, shared or name, is_streaming=True))


def router_of(chance: random.Random, *, counts: bool, of: type[Replica] = IdleReplica, path: str = ROUTER) -> Any:
    """As Serve makes one of this project's, by path."""
    sent = RequestRouterConfig(request_router_class=path)  # type: ignore[arg-type]
    router: Any = sent.get_request_router_class()(
        DEPLOYMENT, DeploymentHandleSource.REPLICA, use_replica_queue_len_cache=counts
    )
    router.initialize_state()
    router.update_replicas(cast("list[RunningReplica]", [of(name, chance) for name in NAMES]))
    return router


def tell(router: Any, sent: Mapping[str, Stats], chance: random.Random, of: type[Replica] = IdleReplica) -> None:
    """Serve's word: these are all there are, and what each has said."""
    replicas = [of(name, chance, 1000, routing_stats=dict(said)) for name, said in sent.items()]
    router.update_replicas(cast("list[RunningReplica]", replicas))


async def routed(router: Any, call: PendingRequest) -> str:
    replica: RunningReplica = await router._choose_replica_for_request(call)  # noqa: SLF001 (what Serve calls)
    return replica.replica_id.unique_id


@pytest.mark.parametrize("seed", range(4))
@on_loop
async def test_a_call_that_is_meant_for_one_coordinator_reaches_it(seed: int) -> None:
    chance = random.Random(seed)
    router = router_of(chance, counts=False, of=Replica)

    async def one(number: int) -> None:
        await asyncio.sleep(chance.uniform(0.0, 0.5))
        meant = chance.choice((None, *NAMES))
        first: Any = request_for(str(number)) if meant is None else Listener("ingress", meant)
        routing = asyncio.ensure_future(
            routed(router, call_of(f"call {number}", first, shared=None if meant else f"HTTP request {number % 7}"))
        )
        if chance.random() < 0.2:
            await asyncio.sleep(chance.uniform(0.0, 0.02))
            routing.cancel()
        found = (await asyncio.gather(routing, return_exceptions=True))[0]
        assert isinstance(found, asyncio.CancelledError) or found == meant or meant is None

    async with asyncio.timeout(600.0):
        await asyncio.gather(*map(one, range(200)))
        gone = call_of("gone", Listener("ingress", "gone"))
        assert await routed(router, gone) in NAMES, "who will say so"


@on_loop
async def test_a_stream_that_stays_open_is_no_load() -> None:
    """A conversation's next turn finds its prefix while the chunks' stream of the turn before is open still."""
    router = router_of(random.Random(0), counts=True)

    async def send(call: PendingRequest) -> ReplicaID:
        replica = ReplicaID(await routed(router, call), DEPLOYMENT)
        router.on_send_request(replica)
        router.on_request_routed(call, replica, None)
        return replica

    def end(call: PendingRequest, replica: ReplicaID) -> None:
        router.on_request_completed(replica, call.metadata.internal_request_id)
        router.decrement_queue_len_cache(replica)

    turn = request_for(prompt=tuple(range(48)))  # tokens: worth less than a response under way
    made_by = await send(first := call_of("first", turn))
    stream = call_of("stream", Listener("ingress", made_by.unique_id))
    assert await send(stream) == made_by
    end(first, made_by)
    for number in range(3):
        call = call_of(f"turn {number}", turn)
        assert await send(call) == made_by
        end(call, made_by)
    end(stream, made_by)
    under_way = [await send(call_of(f"load {number}", turn)) for number in range(8)]
    assert set(under_way) > {made_by}, "responses are load, which moves some of them elsewhere"


@on_loop
async def test_a_coordinator_without_its_verifier_is_given_nothing_and_what_it_held_is_forgotten() -> None:
    chance = random.Random(0)
    router, turn = router_of(chance, counts=False), request_for(prompt=tuple(range(1600)))

    def verifiers(**up: bool) -> None:
        """What each has said of its verifier; nothing, if it is not named."""
        tell(router, {name: {VERIFIER_UP: up[name]} if name in up else {} for name in NAMES}, chance)

    async def made_by(name: str) -> str:
        found = await routed(router, call := call_of(name, turn))
        router.on_request_routed(call, ReplicaID(found, DEPLOYMENT), None)
        return found

    verifiers()
    home = await made_by("first")
    assert [await made_by(f"turn {number}") for number in range(3)] == [home] * 3
    verifiers(**{home: False})
    away = {await made_by(f"away {number}") for number in range(3)}
    assert home not in away
    assert await routed(router, call_of("asks it", Listener("ingress", home))) == home
    (refuge,) = away
    elsewhere = await routed(router, call_of("elsewhere", turn, lost=(refuge,)))
    assert elsewhere not in (home, refuge), "as its ingress has found out"
    verifiers(**{home: True})
    assert await made_by("back") == refuge, "its KV is gone"
    others = [name for name in NAMES if name != home]
    left = call_of("none left", turn, lost=(home, *others))
    assert await routed(router, left) == home, "it lost its verifier first"


@on_loop
async def test_what_one_target_has_begun_goes_on_at_the_same_as_long_as_there_is_one() -> None:
    chance = random.Random(0)
    router = router_of(chance, counts=False)

    def serve(**targets: str) -> None:
        """What each has said of its target and, before the slash, of its token ids; nothing, if it is not named."""
        sent: dict[str, Stats] = {name: {} for name in NAMES}
        for name, target in targets.items():
            sent[name] = {VERIFIER_UP: True, TARGET: target, TOKEN_MAP: target.partition("/")[0]}
        tell(router, sent, chance, Replica)

    new, old, *others = NAMES
    begun = replace(request_for(prompt=tuple(range(64))), target="ids/float32", token_map="ids")  # noqa: S106 (no password)
    serve(**{new: "ids/bfloat16", old: "ids/float32"}, **dict.fromkeys(others, "other/float32"))
    assert {await routed(router, call_of(f"begun {number}", begun)) for number in range(9)} == {old}
    fresh = replace(begun, target="")
    found = set()
    for number in range(40):
        router.on_send_request(ReplicaID(await routed(router, call_of(f"fresh {number}", fresh)), DEPLOYMENT))
        found.add(await routed(router, call_of(f"again {number}", fresh)))
    assert found == {new, old}
    serve(**{new: "ids/bfloat16"}, **dict.fromkeys([old, *others], "other/float32"))
    assert await routed(router, call_of("left", begun)) in NAMES, "somebody has to refuse it"


@on_loop
async def test_who_is_drained_or_dead_is_given_nothing_from_then_on_and_is_forgotten() -> None:
    chance = random.Random(0)
    router = router_of(chance, counts=False)

    def there(*names: str) -> None:
        tell(router, {name: {} for name in names}, chance)

    turns = [request_for(prompt=tuple(range(first, first + 320))) for first in range(0, 12000, 320)]
    homes = dict[int, str]()
    there(*NAMES)
    for number, turn in enumerate(turns):
        homes[number] = await routed(router, call := call_of(f"turn {number}", turn))
        router.on_request_routed(call, ReplicaID(homes[number], DEPLOYMENT), None)
    assert set(homes.values()) == set(NAMES)
    drained, *left = NAMES
    there(*left)
    for number, turn in enumerate(turns):
        found = await routed(router, call_of(f"again {number}", turn))
        assert found == homes[number] if homes[number] != drained else found in left
    router.on_replica_actor_died(ReplicaID(left[0], DEPLOYMENT))
    there(left[1])
    there(left[1])
    assert {await routed(router, call_of(f"last {number}", turn)) for number, turn in enumerate(turns)} == {left[1]}
    assert {one.unique_id for held in router._affinity._index._holders.values() for one in held} == {left[1]}  # noqa: SLF001


@on_loop
async def test_the_process_of_a_router_knows_whom_it_is_not_told_of_any_more() -> None:
    """Serve makes the router of a class that it sent by value."""
    chance = random.Random(0)
    router = router_of(chance, counts=False)

    def there(**full: float) -> None:
        tell(router, {name: {VERIFIER_UP: True, TARGET: "big", TAKEN: share} for name, share in full.items()}, chance)

    there(x=0.2, y=0.2)
    assert not should_migrate("x", 0.0)
    there(y=0.2)
    assert should_migrate("x", 0.0)
    assert not should_migrate("x", 600.0)
    assert not should_migrate("x", None)
    assert not should_migrate("y", 0.0)
    there(y=0.95)
    assert not should_migrate("x", 0.0), "nobody has room"


@on_loop
async def test_who_is_missing_from_one_word_has_kept_its_kv() -> None:
    """Serve leaves out a replica for as long as it takes other settings."""
    chance = random.Random(0)
    router, turn = router_of(chance, counts=False), request_for(prompt=tuple(range(1600)))

    def there(*names: str) -> None:
        tell(router, {name: {} for name in names}, chance)

    there(*NAMES)
    home = await routed(router, call := call_of("first", turn))
    router.on_request_routed(call, ReplicaID(home, DEPLOYMENT), None)
    others = [name for name in NAMES if name != home]
    there(*others)
    assert await routed(router, call_of("meanwhile", turn)) in others
    there(home, others[0])
    assert {await routed(router, call_of(f"again {number}", turn)) for number in range(5)} == {home}


@on_loop
async def test_who_has_told_that_it_is_full_comes_last_whatever_it_holds() -> None:
    chance = random.Random(0)
    router, turn = router_of(chance, counts=False), request_for(prompt=tuple(range(1600)))

    tell(router, {name: {PLACES: 2} for name in NAMES}, chance)
    home = await routed(router, call := call_of("first", turn))
    router.on_request_routed(call, ReplicaID(home, DEPLOYMENT), None)
    router.on_send_request(ReplicaID(home, DEPLOYMENT))
    assert await routed(router, call_of("second", turn)) == home
    tell(router, {name: {PLACES: 1} for name in NAMES}, chance)
    assert await routed(router, call_of("third", turn)) != home


@on_loop
async def test_what_other_ingresses_sent_counts_as_it_is_told_until_the_next_word() -> None:
    chance = random.Random(0)
    router = router_of(chance, counts=False)

    def make(**responses: float) -> None:
        said = {name: {TAKEN: 0.2 * count, BY_RESPONSES: count} for name, count in responses.items()}
        tell(router, said, chance)

    def loads() -> list[int]:
        return list(router.loads([ReplicaID(name, DEPLOYMENT) for name in NAMES]).values())

    x = ReplicaID("x", DEPLOYMENT)
    make(x=2, y=1, z=0)
    assert loads() == [2, 1, 0]
    assert await routed(router, call_of("new", request_for(prompt=tuple(range(32))))) == "z"
    router.on_send_request(x)
    assert loads() == [3, 1, 0], "its own since then"
    make(x=2, y=0, z=0)
    assert loads() == [3, 0, 0], "no news of x"
    make(x=3, y=0, z=0)
    assert loads() == [3, 0, 0], "it is among these"
    router.on_request_completed(x, "sent")
    assert loads() == [2, 0, 0]
    make(x=0, y=0, z=0)
    assert loads() == [0, 0, 0]


@on_loop
async def test_responses_count_for_what_they_take_of_what_is_allowed() -> None:
    """Two with fast promises take as much as eight without."""
    chance = random.Random(0)
    router, sent = router_of(chance, counts=True), {"x": (0.8, 2), "y": (0.4, 4), "z": (0.6, 6)}
    await asyncio.sleep(0.1)  # they are asked how many they have, and say none: Serve's word is about requests
    for name, (_, number) in sent.items():
        for _ in range(number):
            router.on_send_request(ReplicaID(name, DEPLOYMENT))
    tell(router, {name: {TAKEN: taken, BY_RESPONSES: number} for name, (taken, number) in sent.items()}, chance)
    chosen = list[str]()
    for number in range(7):
        chosen.append(await routed(router, call_of(f"{number}", request_for(str(number)))))
        router.on_send_request(ReplicaID(chosen[-1], DEPLOYMENT))
    assert chosen == ["y", "y", "z", "y", "z", "x", "y"], "x counts for 5.3, y for 2.7 and z for 4 in the beginning"


@on_loop
async def test_ingresses_that_know_nothing_of_one_another_send_a_conversation_to_the_same_coordinator() -> None:
    routers = [router_of(random.Random(seed), counts=False) for seed in range(3)]
    chance = random.Random(0)
    for number, router in enumerate(routers):
        names = NAMES[number:] + NAMES[:number]
        router.update_replicas(cast("list[RunningReplica]", [IdleReplica(name, chance, 1000) for name in names]))
    chosen = set[str]()
    for first in range(0, 38400, 1600):
        turn = request_for(prompt=tuple(range(first, first + 1600)))
        found = set[str]()
        for number, router in enumerate(routers):
            found.add(name := await routed(router, call := call_of(f"{first} at {number}", turn)))
            router.on_request_routed(call, ReplicaID(name, DEPLOYMENT), None)
        assert len(found) == 1
        chosen |= found
    assert chosen == set(NAMES)
    busy = request_for(prompt=tuple(range(50000, 51600)))
    for router in routers:
        own = await routed(router, call_of("own", busy))
        for _ in range(40):
            router.on_send_request(ReplicaID(own, DEPLOYMENT))
        assert await routed(router, call_of("another", busy)) != own, "as long as it is not overloaded"


class LastFirstRouter(PrefixRouter):
    """Another rule: by name, and told what was asked."""

    def initialize_state(self, **options: object) -> None:
        super().initialize_state(**options)
        self.asked = list[int | None]()

    def order(
        self, offered: Sequence[RunningReplica], digests: Sequence[bytes] | None, affinity: bytes = b""
    ) -> Sequence[ReplicaID]:
        assert affinity == b""
        self.asked.append(None if digests is None else len(digests))
        return sorted((replica.replica_id for replica in offered), key=str, reverse=True)


@on_loop
async def test_another_rule_orders_who_may_be_given_a_request_and_no_others() -> None:
    chance = random.Random(0)
    router = router_of(chance, counts=False, path=f"{__name__}:LastFirstRouter")
    down: dict[str, bool | str | float] = {VERIFIER_UP: False}
    up = [IdleReplica(name, chance, 1000, routing_stats={} if name != "z" else down) for name in NAMES]
    router.update_replicas(cast("list[RunningReplica]", up))
    assert await routed(router, call_of("first", request_for(prompt=tuple(range(40))))) == "y", "z has no verifier"
    assert await routed(router, call_of("meant", Listener("ingress", "z"))) == "z"
    assert router.asked == [2, None]

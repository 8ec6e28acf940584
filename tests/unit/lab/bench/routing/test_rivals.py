"""Each rule as Serve comes by it: by path, sent by value."""

import random

import pytest
from ray.serve._private.common import ReplicaID

from lab.bench.routing.service import RULES
from serve_app.coordination.listener import Listener
from tests.unit.serve_app.api.in_memory_service import request_for
from tests.unit.serve_app.coordination.test_request_router import DEPLOYMENT, NAMES, call_of, routed, router_of
from tests.unit.virtual_clock import on_loop


class Ingress:
    """Sends prompts of so many blocks from a number on."""

    def __init__(self, rule: str) -> None:
        self.router = router_of(random.Random(0), counts=True, path=RULES[rule])
        self._calls = 0

    async def send(self, first: int, blocks: int = 4, *, ends: bool = False) -> str:
        """Who makes it; it is under way from then on, unless it ends at once."""
        self._calls += 1
        prompt = tuple(range(first, first + 16 * blocks))
        call = call_of(f"call {self._calls}", request_for(prompt=prompt))
        name = await routed(self.router, call)
        replica = ReplicaID(name, DEPLOYMENT)
        self.router.on_send_request(replica)
        self.router.on_request_routed(call, replica, None)
        if ends:
            self.router.on_request_completed(replica, call.metadata.internal_request_id)
            self.router.decrement_queue_len_cache(replica)
        return name


@on_loop
async def test_round_robin_sends_to_each_in_turn_whatever_is_under_way_or_known() -> None:
    ingress = Ingress("round_robin")
    sent = [await ingress.send(0, ends=number % 2 == 0) for number in range(9)]
    assert sent == list(NAMES) * 3


@on_loop
async def test_the_least_loaded_is_who_has_fewest_under_way() -> None:
    ingress = Ingress("least_loaded")
    assert [await ingress.send(0) for _ in range(3)] == list(NAMES)
    assert await ingress.send(0, ends=True) == "x"
    assert await ingress.send(0, ends=True) == "y", "of equals who was sent fewest"
    assert await ingress.send(0) == "z"
    assert {await ingress.send(0) for _ in range(2)} == {"x", "y"}


@on_loop
async def test_serve_llm_s_rule_follows_the_prefix_whatever_is_under_way() -> None:
    ingress = Ingress("serve_llm")
    home = await ingress.send(0)
    assert [await ingress.send(0) for _ in range(5)] == [home] * 5
    others = {await ingress.send(first) for first in (1000, 2000)}
    assert others == set(NAMES) - {home}, "what is not known goes to who has least in the tree"
    assert await ingress.send(0, blocks=5) == home
    assert await ingress.send(3000) in others


@pytest.mark.parametrize("rule", list(RULES))
@on_loop
async def test_who_is_meant_is_reached_by_every_rule(rule: str) -> None:
    router = router_of(random.Random(0), counts=False, path=RULES[rule])
    for name in NAMES:
        assert await routed(router, call_of(f"to {name}", Listener("ingress", name))) == name

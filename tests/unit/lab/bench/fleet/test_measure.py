"""A small fleet is measured whole: what is shown of a large one is all there."""

import asyncio
from dataclasses import replace

from actors.fleet.fleet import Fleet
from actors.fleet.timeouts import FleetTimeouts
from lab.bench.fleet.measure import Effort, Size, measured
from lab.bench.fleet.traffic import traffic
from lab.bench.fleet.world import VirtualActors, callers_of, settings_of

SIZE = Size(drafters=8, streams=40, each=10, places=8)
SHORT = Effort(call_s=0.01, watch_s=0.01, warmup_s=2.0, traffic_s=5.0, response_s=1.0)


def test_every_kind_of_call_is_measured_and_small_fleets_lease_one_by_one() -> None:
    found = asyncio.run(measured(SIZE, SHORT))
    kinds = ["heartbeat of everything", "heartbeat", "lease", "release", "status", "lost drafter reported"]
    assert [cost.what for cost in found.costs] == kinds
    assert all(cost.calls and cost.cpu_s > 0.0 and cost.sent_bytes for cost in found.costs)
    assert found.one_by_one.calls == found.in_bulk.calls, "four coordinators are few"
    assert found.one_by_one.calls["heartbeat"] == SIZE.coordinators
    assert found.one_by_one.calls["lease"] == found.one_by_one.calls["release"] > 20.0  # 40 a second on average


def test_with_places_at_hand_leases_need_next_to_no_calls() -> None:
    async def run() -> None:
        actors, settings = VirtualActors(), settings_of(SIZE.drafters, SIZE.places)
        callers = callers_of(settings, SIZE.drafters, SIZE.streams, SIZE.each)
        fleet = Fleet(actors, replace(FleetTimeouts(owner_ttl_s=1e9), spares_from=1))
        for caller in callers:
            await fleet.beat(caller.first())
        while sum(one.state == "ready" for one in (await fleet.status()).drafters) < SIZE.drafters:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        flow = await traffic(fleet, callers, response_s=20.0, warmup_s=10.0, measured_s=20.0)
        assert flow.unplaced == 0.0
        assert flow.calls.get("release", 0.0) == 0.0
        assert flow.calls.get("lease", 0.0) < 0.5  # of two responses that begin in a second

    asyncio.run(run())

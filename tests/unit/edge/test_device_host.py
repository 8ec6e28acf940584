"""Generations of coordinators that left end."""

import asyncio
from concurrent.futures import ThreadPoolExecutor

from actors.waiting import within
from edge.device_host import IDLE_S, MOST_GENERATIONS, DeviceHost
from outrider.contracts.verifying import OpenGeneration
from tests.unit.actors.coordinator.transport_suite import CARD, PARAMS, PROMPT, SOON_S, TERMS, SuiteDrafter
from tests.unit.edge.test_host import order_of


def test_the_longest_unused_is_closed_where_there_are_many_and_all_that_are_idle() -> None:
    async def held() -> None:
        now_s, drafter = 0.0, SuiteDrafter()
        host = DeviceHost(drafter, CARD, ThreadPoolExecutor(1), clock=lambda: now_s)
        names = [f"g{number}" for number in range(MOST_GENERATIONS)]
        for name in names:
            await host.open(OpenGeneration(name, PROMPT, PARAMS), TERMS)
        assert (await host.exchange("g0", order_of("g0"))).data
        await host.open(OpenGeneration("more", PROMPT, PARAMS), TERMS)
        assert set((await host.held()).generations) == {*names, "more"} - {"g1"}
        assert drafter.usage().generations == MOST_GENERATIONS
        now_s = IDLE_S
        assert (await host.exchange("g2", order_of("g2"))).data
        now_s = IDLE_S + 1
        await host.close_unused()
        assert (await host.held()).generations == ("g2",)
        assert (await host.exchange("g0", order_of("g0"))).data == b"", "it is to be opened again"

    asyncio.run(within(SOON_S, held()))

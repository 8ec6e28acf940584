"""Requests of several accounts at one event loop."""

import asyncio
import socket

from serve_app.api.http.turns import LoopTurns
from tests.unit.serve_app.api.listening import on_a_loop


async def _goes_on(turns: LoopTurns, account: str, seen: list[str]) -> None:
    await turns.next(account)
    seen.append(account)


@on_a_loop
async def test_one_request_goes_on_behind_one_of_each_other_account() -> None:
    turns, seen = LoopTurns(), list[str]()
    crowd = [asyncio.create_task(_goes_on(turns, "many", seen)) for _ in range(1000)]
    await asyncio.sleep(0)
    await asyncio.gather(*(_goes_on(turns, account, seen) for account in ("one", "other")))
    assert sorted(seen[:4]) in (["many", "many", "one", "other"], ["many", "one", "other"])
    await asyncio.gather(*crowd)
    assert len(seen) == 1002


@on_a_loop
async def test_the_loop_looks_at_its_sockets_between_two_requests() -> None:
    turns, seen = LoopTurns(), list[str]()
    here, there = socket.socketpair()
    with here, there:
        here.setblocking(False)
        hears = asyncio.create_task(asyncio.get_running_loop().sock_recv(here, 1))
        crowd = [asyncio.create_task(_goes_on(turns, "many", seen)) for _ in range(1000)]
        await asyncio.sleep(0)
        there.send(b"x")
        await hears
        assert len(seen) < 10
        await asyncio.gather(*crowd)


@on_a_loop
async def test_who_left_meanwhile_takes_no_turn() -> None:
    turns, seen = LoopTurns(), list[str]()
    leaving = [asyncio.create_task(_goes_on(turns, "many", seen)) for _ in range(1000)]
    await asyncio.sleep(0)
    stays = asyncio.create_task(_goes_on(turns, "many", seen))
    for task in leaving:
        task.cancel()
    await asyncio.sleep(0)
    before = len(seen)
    await stays
    assert len(seen) == before + 1

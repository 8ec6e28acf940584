"""Drafters that say too much, or nothing: each is taken out with the reason, at a cost that is bounded."""

import asyncio
from dataclasses import replace

import pytest

from actors.fleet.drafter_actors import DrafterPhase
from actors.fleet.fleet import Fleet
from actors.messages import DrafterState
from outrider.contracts.errors import ContextTooLongError
from outrider.wire.replies import DrafterHoldings, plain, plain_failure
from tests.unit.actors.fleet.test_fleet import (
    CARD,
    FIRST,
    PACE,
    SECOND,
    MemoryActors,
    MemoryDrafter,
    beat,
    bounded,
    ready,
    told,
    until,
)


async def refused(fleet: Fleet) -> str:
    """Why the first drafter is, once it is."""
    while True:
        first = (await told(fleet)).drafters[0]
        if first.state is DrafterState.REFUSED:
            return first.reason or ""
        await asyncio.sleep(0.001)


def names_bytes(count: int, name: bytes = b'"orphan-%d"') -> bytes:
    """A list of so many generations, as a device may make it."""
    content = b",".join(name % number if b"%" in name else name for number in range(count))
    return plain(DrafterHoldings(()))[:-2] + b"[" + content + b"]"


@pytest.mark.parametrize(
    ("held", "reason"),
    [
        (names_bytes(200_000), "needs a reply of at most 65536 bytes"),
        (names_bytes(73), "needs at most 72 generations, found 73"),
        (names_bytes(1, b'"' + b"g" * 201 + b'"'), "needs a reply in plain bytes"),
        (b"\x03" + bytes(16) + b"[" * 60_000, "needs a reply in plain bytes"),
        (bytes(2**26), "found 67108864"),
        (plain(CARD), "found a DrafterCard"),
    ],
    ids=["200,000 names", "73 names", "a long name", "nested", "64 MiB", "a card"],
)
def test_one_that_says_to_hold_too_much_is_taken_out_with_the_reason(
    held: bytes, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def run() -> None:
        fleet = Fleet(actors := MemoryActors(), replace(PACE, owner_ttl_s=1e9, retry_s=1.0, sweep_s=0.5))
        await ready(fleet, 2, beat())
        actors.processes[FIRST].raw["held"] = held
        assert reason in await refused(fleet)
        assert (await told(fleet)).drafters[1].state is DrafterState.READY
        await until(lambda: actors.stopped == [FIRST])
        await ready(fleet, 2, beat())  # another process of it tells better

    caplog.set_level("INFO", logger="actors")
    bounded(run())
    assert len(caplog.records) <= 5
    assert sum(len(str(record.__dict__)) for record in caplog.records) < 20_000


def test_all_orphans_of_a_device_are_closed_by_one_call_and_told_in_one_line(caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        fleet = Fleet(actors := MemoryActors(), replace(PACE, owner_ttl_s=1e9))
        await ready(fleet, 2, beat())
        process = actors.processes[FIRST]
        orphans = {f"orphan-{number:02d}" for number in range(70)}
        process.generations |= orphans
        await until(lambda: not process.generations)
        assert process.forgets == [sorted(orphans)]

    caplog.set_level("INFO", logger="actors")
    bounded(run())
    (line,) = [record for record in caplog.records if record.getMessage() == "generations_orphaned"]
    assert vars(line)["fields"] == {
        "drafter": "drafter-edge-0",
        "generations": 70,
        "some": ["orphan-00", "orphan-01", "orphan-02", "orphan-03"],
    }


@pytest.mark.parametrize(
    "card",
    [bytes(2**16 + 1), b"\x02{}", plain(DrafterHoldings(())), plain_failure(ContextTooLongError("no room"))],
    ids=["large", "empty", "a list", "a failure"],
)
def test_one_whose_card_cannot_be_read_is_refused_with_the_reason(card: bytes) -> None:
    async def run() -> None:
        fleet = Fleet(actors := MemoryActors(), PACE)
        actors.processes[FIRST] = MemoryDrafter(CARD)
        actors.processes[FIRST].raw["card"] = card
        assert await refused(fleet)
        await ready(fleet, 2, beat())

    bounded(run())


@pytest.mark.parametrize("phase", [DrafterPhase.LOADING, DrafterPhase.RUNNING])
def test_one_that_never_answers_once_its_process_runs_is_told_and_started_anew(phase: DrafterPhase) -> None:
    async def run() -> None:
        timeouts = replace(PACE, start_deadline_s=5.0, proof_deadline_s=3.0, start_poll_s=0.5, retry_s=1.0)
        fleet = Fleet(actors := MemoryActors(), timeouts)
        hung = actors.processes[FIRST] = MemoryDrafter(CARD)
        hung.hangs, hung.phase = True, phase
        assert f"found its process {phase} and silent" in await refused(fleet)
        await ready(fleet, 2, beat())
        assert (actors.stopped, actors.processes[FIRST] is hung) == ([FIRST], False)

    bounded(run())


def test_one_whose_node_has_not_joined_is_waited_for() -> None:
    async def run() -> None:
        timeouts = replace(PACE, start_deadline_s=5.0, start_poll_s=0.5, sweep_s=10.0, owner_ttl_s=1e9)
        fleet = Fleet(actors := MemoryActors(), timeouts)
        absent = actors.processes[FIRST] = MemoryDrafter(CARD)
        absent.hangs, absent.phase = True, DrafterPhase.ABSENT
        await ready(fleet, 1, beat())
        await asyncio.sleep(100.0)
        assert (await told(fleet)).drafters[0].state is DrafterState.STARTING
        absent.phase = DrafterPhase.LOADING
        await asyncio.sleep(4.0)
        assert actors.stopped == []

    bounded(run())


def test_the_configuration_says_which_model_serves_whoever_joins_first() -> None:
    async def run() -> None:
        fleet = Fleet(actors := MemoryActors(), replace(PACE, retry_s=50.0, sweep_s=5.0, owner_ttl_s=1e9))
        actors.processes[FIRST] = MemoryDrafter(replace(CARD, model_hash="impostor"))
        heartbeat = beat(models={"edge": CARD.model_hash})
        await fleet.beat(heartbeat)
        await until(lambda: actors.stopped == [FIRST])
        await ready(fleet, 1, heartbeat)
        impostor, honest = (await fleet.status()).drafters
        assert (impostor.state, honest.state) == (DrafterState.REFUSED, DrafterState.READY)
        assert impostor.reason is not None
        assert "needs model model as its group, found impostor" in impostor.reason

    bounded(run())


def test_another_model_of_a_group_is_another_drafter() -> None:
    async def run() -> None:
        fleet = Fleet(actors := MemoryActors(), replace(PACE, owner_ttl_s=1e9))
        await ready(fleet, 2, beat(models={"edge": CARD.model_hash}))
        actors.card = replace(CARD, model_hash="newer")
        await ready(fleet, 2, beat("d", models={"edge": "newer"}))
        assert set(actors.stopped) == {FIRST, SECOND}

    bounded(run())

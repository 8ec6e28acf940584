"""A verifier is lost and takes long to load: responses stay, or are handed to a coordinator that has one."""

import asyncio
from dataclasses import replace
from functools import partial
from math import inf

import pytest

from actors.heartbeats import CoordinatorState
from outrider.contracts.errors import VerifierAwayError, VerifierLostError
from outrider.contracts.requests import GenerationChunk
from outrider.rounds.states import GenerationState
from serve_app.coordination.peers import FailoverTargets, Peers
from tests.unit.serve_app.api.in_memory_service import Service, drafter, request_for, tokens_of, truth_of
from tests.unit.serve_app.coordination.in_memory import SAMPLED, Gate, until
from tests.unit.virtual_clock import now_s, on_loop


def sent(**verifiers: str) -> list[CoordinatorState]:
    return [CoordinatorState(name, verifier, "") for name, verifier in verifiers.items()]


class Loading:
    """A verifier that takes a while to come up."""

    def __init__(self, seconds: float, *, is_up: bool = False) -> None:
        self.is_up, self._seconds = is_up, seconds

    async def wait_until_up(self) -> None:
        await asyncio.sleep(self._seconds)
        self.is_up = True


@on_loop
async def test_others_count_while_the_fleet_tells_of_them() -> None:
    peers = Peers("own", now_s)
    assert not peers.ready(), "of nobody yet"
    peers.heard(sent(own="ready", other="restarting"))
    assert not peers.ready()
    peers.heard(sent(own="restarting", other="ready"))
    since_s = now_s()
    assert peers.ready()
    assert not peers.ready(after_s=since_s)
    await asyncio.sleep(2.0)
    peers.heard(sent(other="ready"))
    assert not peers.ready(after_s=since_s), "it was ready all the time"
    peers.heard(sent(other="restarting"))
    peers.heard(sent(other="ready"))
    assert peers.ready(after_s=since_s)
    await asyncio.sleep(60.0)
    assert not peers.ready(), "the fleet has told nothing for long"


@on_loop
async def test_who_has_another_target_cannot_go_on() -> None:
    peers = Peers("own", now_s)
    peers.target = "old"
    reports = sent(other="ready")
    peers.heard([report._replace(target="new") for report in reports])
    assert not peers.ready()
    peers.heard([report._replace(target="old") for report in reports])
    assert peers.ready()


@pytest.mark.parametrize("is_up", [False, True])
@on_loop
async def test_a_response_is_handed_back_at_once_where_another_verifier_is_ready(*, is_up: bool) -> None:
    """``is_up``: it hangs, and nobody knows yet."""
    peers = Peers("own", now_s)
    peers.heard(sent(other="ready"))
    homes, begun_s = FailoverTargets(Loading(300.0, is_up=is_up), peers), now_s()
    with pytest.raises(VerifierLostError, match="handed to another"):
        await homes.verifier_answers(-inf)
    assert now_s() - begun_s < 1.0
    await until(lambda: asyncio.all_tasks() == {asyncio.current_task()})


@on_loop
async def test_who_may_have_cost_the_verifier_its_process_is_not_sent_to_the_next_one() -> None:
    peers = Peers("own", now_s)
    peers.heard(sent(other="ready"))
    begun_s = now_s()
    await FailoverTargets(Loading(300.0), peers).verifier_answers(-inf, stays=lambda: True)
    assert now_s() - begun_s >= 300.0


@on_loop
async def test_a_verifier_that_is_well_keeps_its_responses() -> None:
    peers = Peers("own", now_s)
    peers.heard(sent(other="ready"))
    await FailoverTargets(Loading(0.1, is_up=True), peers).verifier_answers(-inf)


@pytest.mark.parametrize("known", [False, True])
@on_loop
async def test_it_waits_for_whoever_comes_first(*, known: bool) -> None:
    """``known``: the other one was ready before, and the response was sent here all the same."""
    peers, begun_s = Peers("own", now_s), now_s()
    if known:
        peers.heard(sent(other="ready"))
    homes = FailoverTargets(Loading(300.0), peers)
    waiting = asyncio.create_task(homes.verifier_answers(now_s()))
    await asyncio.sleep(10.0)
    assert not waiting.done()
    peers.heard(sent(other="restarting"))
    await asyncio.sleep(1.0)
    peers.heard(sent(other="ready"))
    with pytest.raises(VerifierLostError, match="handed to another"):
        await waiting
    assert now_s() - begun_s < 20.0
    await FailoverTargets(Loading(300.0), peers).verifier_answers(now_s())
    await FailoverTargets(Loading(300.0), None).verifier_answers(-inf)


@on_loop
async def test_nothing_is_begun_without_a_verifier_where_another_has_one() -> None:
    peers, verifier = Peers("own", now_s), Loading(300.0)
    homes = FailoverTargets(verifier, peers)
    homes.check(-inf)
    peers.heard(sent(other="ready"))
    with pytest.raises(VerifierAwayError, match="another coordinator has one"):
        homes.check(-inf)
    homes.check(now_s())
    verifier.is_up = True
    homes.check(-inf)


@on_loop
async def test_a_response_that_is_handed_back_leaves_nothing_and_goes_on_exactly() -> None:
    """Lost in its fifth step, by a verifier that does not come back."""
    peers, service, request = Peers("own", now_s), Service(drafter()), request_for(params=SAMPLED)
    peers.heard(sent(other="ready"))
    service.verifier.dies_after, service.verifier.restarting = (5,), Gate()
    homes = FailoverTargets(service.verifier, peers)
    service.services = replace(service.services, await_verifier=partial(homes.verifier_answers, -inf))
    got = list[GenerationChunk]()
    with pytest.raises(VerifierLostError, match="handed to another"):
        await service.make(request, got.append)
    assert service.generations["g"].state is GenerationState.FAILED
    assert service.fleet.empty
    tokens = tokens_of(got)
    assert 0 < len(tokens) < request.max_tokens
    elsewhere = Service(drafter())
    rest = await elsewhere.response(replace(request, generation="g.1", output_ids=tuple(tokens), stats=got[-1].stats))
    assert tokens + tokens_of(rest) == truth_of(request)
    await elsewhere.idle()

"""Two coordinators. Processes die or hang in mid-stream; the clients notice nothing and get the very same tokens."""

import contextlib
import os
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any

import httpx
import pytest
from ray import serve

from cluster.local import APP_NAME
from outrider.config.reading import load_config
from serve_app.coordination.settings import CoordinatorSettings, coordinator_settings
from tests.cluster.conftest import judged
from tests.cluster.judged_beside import judged_beside
from tests.cluster.prompts import CHATS
from tests.cluster.served import HEALERS, MODEL, PACE, PLAIN, Service, eventually, started
from tests.cluster.streams import CLIENTS, Streamed, begins, streams, told

COORDINATORS, DRAFTERS = 2, 2
COORDINATOR = "ServeReplica:outrider:Coordinator"
RELOAD_S = 45.0  # of a verifier: longer than responses take to go on elsewhere and end there
LONG = 120  # tokens
HANG_UPS = 12
KV_BLOCK_TOKENS = 16
BACK_WITHIN_S = 180.0
AT_WORK_WITHIN_S = 150.0  # one question may take a minute
HEARD_WITHIN_S = 10.0  # coordinators beat every second


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """Two coordinators, each with its verifier, and two drafters, which draft in every round and have a head."""
    config = judged(load_config(), tmp_path_factory.mktemp("head") / "head.safetensors")
    config = replace(
        config,
        verifiers=replace(config.verifiers, count=COORDINATORS),
        drafters=(replace(config.drafters[0], count=DRAFTERS),),
        speculation=replace(config.speculation, window=2),
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("serve_app.app.coordinator_settings", _slow_to_reload)
        with started(config) as service:
            yield service


def _slow_to_reload(*pieces: Any) -> CoordinatorSettings:
    settings = coordinator_settings(*pieces)
    return replace(settings, verifier=replace(settings.verifier, emulated_reload_s=RELOAD_S))


@pytest.fixture(scope="module")
def undisturbed(service: Service) -> list[Streamed]:
    """What the clients get when nothing happens; once both are up, as prompts stay where they were first."""
    eventually(lambda: len(service.coordinators()) == COORDINATORS, BACK_WITHIN_S)
    with judged_beside(service) as beside:
        responses = streams(service.url)
    assert sum(response.usage["outrider"]["accepted_tokens"] for response in responses) > 0
    assert sum(len(response.result().overrides) for response in beside) > 0
    service.check_released()
    return responses


def check(
    service: Service,
    undisturbed: list[Streamed],
    act: Callable[[], object],
    loss: str,
    workers: Callable[[], list[dict[str, Any]]] | None = None,
) -> None:
    """Nothing may differ, though the act cost somebody what this event tells of. ``workers`` as in ``at_work``.

    Of semantic responses beside, which need not be the same again, what they say of themselves has to be true.
    """
    before = len(service.events(loss))
    with judged_beside(service) as beside:
        assert told(streams(service.url, at_work(workers or service.coordinators, act))) == told(undisturbed)
    assert len(service.events(loss)) > before, "nobody missed what was lost"
    for response in beside:
        response.result().check(service)


def at_work(workers: Callable[[], list[dict[str, Any]]], act: Callable[[], object]) -> Callable[[], None]:
    """Act once all of those who may be lost by it have generations: whichever is lost then is missed."""
    counts: list[int] = []

    def all_work() -> bool:
        counts[:] = [each["generations"] for each in workers()]
        return bool(counts) and all(counts)

    def act_then() -> None:
        try:
            eventually(all_work, AT_WORK_WITHIN_S)
        except AssertionError as error:
            raise AssertionError(f"{error}: generations of each, last seen: {counts}") from error
        act()

    return act_then


def drafters(service: Service) -> Callable[[], list[dict[str, Any]]]:
    """Those that are ready."""
    return partial(service.drafters, "ready")


@pytest.fixture(autouse=True)
def complete(service: Service) -> None:
    """Before each test all are back whom the one before has killed."""
    eventually(lambda: len(service.drafters("ready")) == DRAFTERS, BACK_WITHIN_S)
    eventually(lambda: len(service.coordinators()) == COORDINATORS, BACK_WITHIN_S)


def test_there_is_one_door(service: Service) -> None:
    """The ingress listens by itself; Serve has no proxy, which would be another way in."""
    assert service.get("/health")
    assert not serve.status().proxies


def test_conversations_stay_where_their_kv_is(service: Service) -> None:
    """Begun at once, so that they are spread; each later turn finds the turns before it."""
    talks: list[list[dict[str, str]]] = [[] for _ in range(CLIENTS)]

    def turn(i: int) -> dict[str, Any]:
        talks[i].append({"role": "user", "content": f"Talk {i}, message {len(talks[i])}: " + CHATS[i] * 2})
        request = {"model": MODEL, "messages": talks[i], "max_tokens": 8, "temperature": 0, "n": 2}
        answer = service.post("/v1/chat/completions", request)
        talks[i].append(answer["choices"][0]["message"])
        usage: dict[str, Any] = answer["usage"]
        return usage

    def rounds() -> dict[str, int]:
        return {report["id"]: report["rounds"] for report in service.get("/status")["coordinators"]}

    before = rounds()
    with ThreadPoolExecutor(CLIENTS) as pool:
        first = list(pool.map(turn, range(CLIENTS)))
    for earlier in (first, [turn(i) for i in range(CLIENTS)]):
        for i, usage in enumerate(earlier):
            later = turn(i)
            assert later["prompt_tokens_details"]["cached_tokens"] >= usage["prompt_tokens"] - KV_BLOCK_TOKENS
    eventually(lambda: all(now > before[name] for name, now in rounds().items()), HEARD_WITHIN_S)


@pytest.mark.long
def test_a_drafter_is_killed(service: Service, undisturbed: list[Streamed]) -> None:
    check(service, undisturbed, lambda: service.kill("DrafterActor", most=1), "drafter_given_up", drafters(service))
    service.check_released()


@pytest.mark.long
def test_all_drafters_are_killed(service: Service, undisturbed: list[Streamed]) -> None:
    check(service, undisturbed, lambda: service.kill("DrafterActor"), "drafter_given_up", drafters(service))
    service.check_released()


@pytest.mark.long
def test_drafters_hang(service: Service, undisturbed: list[Streamed]) -> None:
    check(
        service,
        undisturbed,
        lambda: service.kill("DrafterActor", number=signal.SIGSTOP),
        "drafter_given_up",
        drafters(service),
    )
    service.check_released()


def check_found_out(service: Service) -> None:
    """A dead coordinator cannot tell its drafters: the fleet ends its leases, and sees them unleased in two sweeps."""
    service.check_released(PACE.owner_ttl_s + 4 * PACE.sweep_s)
    found_out = {name for event in service.events("generations_orphaned") for name in event["some"]}
    assert found_out <= {event["generation"] for event in service.events("response_resumed")}, "others can be told"


@pytest.mark.long
def test_a_coordinator_is_killed_and_the_other_one_goes_on(service: Service, undisturbed: list[Streamed]) -> None:
    before = service.pids(COORDINATOR)
    check(service, undisturbed, partial(service.kill, COORDINATOR, most=1), "response_resumed")
    assert set(before[1:]) <= set(service.pids(COORDINATOR))
    check_found_out(service)


@pytest.mark.long
def test_both_coordinators_are_killed(service: Service, undisturbed: list[Streamed]) -> None:
    """Then the responses wait until one is back."""
    check(service, undisturbed, partial(service.kill, COORDINATOR), "response_resumed")
    check_found_out(service)


@pytest.mark.long
def test_the_fleet_is_killed_and_learns_the_leases_anew(service: Service, undisturbed: list[Streamed]) -> None:
    """From the coordinators, whose rounds go on with the drafters they have leased."""
    before = service.pids("FleetActor")

    def kill() -> None:
        service.kill("FleetActor")
        eventually(lambda: any(drafter["generations"] for drafter in service.drafters()), AT_WORK_WITHIN_S)

    responses = streams(service.url, at_work(drafters(service), kill), tokens=LONG)
    assert before
    assert not set(before) & set(service.pids("FleetActor"))
    assert begins(undisturbed, responses)
    assert sum(response.usage["outrider"]["accepted_tokens"] for response in responses) > 0
    service.check_released()


def test_an_ingress_is_killed_and_its_generations_end(service: Service) -> None:
    """Its clients' connections break; what they had is freed, and the next ingress serves."""
    cancelled, found_out = len(service.events("generation_cancelled")), len(service.events(*HEALERS))
    under_way = 0

    def counted() -> bool:
        nonlocal under_way
        under_way = sum(coordinator["generations"] for coordinator in service.coordinators())
        return under_way > 0

    def kill() -> None:
        eventually(counted, AT_WORK_WITHIN_S)
        service.kill("ServeReplica:outrider:Ingress")

    with pytest.raises((httpx.HTTPError, AssertionError)):
        streams(service.url, at_work(service.coordinators, kill), tokens=LONG)
    eventually(lambda: bool(service.get("/ready")), BACK_WITHIN_S)
    service.check_released()
    assert len(service.events("generation_cancelled")) - cancelled >= under_way > 0
    assert len(service.events(*HEALERS)) == found_out, "all were told, nobody had to find out"


@pytest.mark.long
def test_a_verifier_is_killed_and_takes_long_to_load(service: Service, undisturbed: list[Streamed]) -> None:
    """What it made goes on at the other coordinator, and nothing new is begun at its own until it is back.

    After the others, as from then on an ingress knows all of these prompts at one coordinator.
    """
    before, lost = service.pids("VerifierActor"), len(service.events("round_lost"))
    silent = len(service.events("verifier_silent"))
    with judged_beside(service) as beside:
        responses = streams(service.url, at_work(service.coordinators, partial(service.kill, "VerifierActor", most=1)))
    print(f"without a token for at most {max(response.longest_gap_s for response in responses):.2f} s")  # noqa: T201 (no test's business)
    assert told(responses) == told(undisturbed)
    for response in beside:
        response.result().check(service)
    assert len(service.events("round_lost")) > lost, "nobody missed what was lost"
    assert set(before[1:]) <= set(service.pids("VerifierActor"))
    begun = [service.get("/v1/models")] and [service.complete("Once upon a time", max_tokens=2) for _ in range(4)]
    assert all(answer["usage"]["completion_tokens"] == 2 for answer in begun)
    eventually(lambda: bool(service.events("verifier_back")), BACK_WITHIN_S)
    (away,), (back,) = service.events("verifier_lost"), service.events("verifier_back")
    found_out = min(event["time"] for event in (away, *service.events("verifier_silent")[silent:]))
    resumed, finished = (
        [event for event in service.events(what) if event["time"] > found_out]
        for what in ("response_resumed", "generation_finished")
    )
    assert resumed
    assert {event["reason"] for event in resumed} <= {"VerifierLostError", "VerifierAwayError"}
    ends = [event for event in finished if "." in event["generation"]]
    assert len({event["generation"] for event in finished}) > len(ends) > 0
    assert all(event["time"] < back["time"] for event in ends), "elsewhere, and before it was back"
    service.check_released()


@pytest.mark.long
def test_a_verifier_stands_still_and_its_responses_go_on_elsewhere(
    service: Service, undisturbed: list[Streamed]
) -> None:
    """All end while it stands still, long before it is taken for dead; it goes on once it may, and serves again."""
    lost, silent = len(service.events("round_lost")), len(service.events("verifier_silent"))
    for victim in range(COORDINATORS):  # all prompts may be at home with one of them
        with standing_still(service, "VerifierActor", victim) as stand_still:
            responses = streams(service.url, stand_still)
        assert told(responses) == told(undisturbed)
        if len(service.events("round_lost")) > lost:
            break
    else:
        pytest.fail("nobody missed the one that stood still")
    print(f"without a token for at most {max(response.longest_gap_s for response in responses):.2f} s")  # noqa: T201 (no test's business)
    since = service.events("verifier_silent")[silent]["time"]
    resumed = service.events("response_resumed", reason="VerifierLostError")
    assert any(event["time"] >= since for event in resumed)

    def back() -> bool:
        return any(event["time"] > since for event in service.events("verifier_gets_on", "verifier_back"))

    eventually(back, BACK_WITHIN_S)
    eventually(lambda: service.complete("Once upon a time", max_tokens=2)["usage"]["completion_tokens"] == 2, 60.0)
    service.check_released()


@pytest.mark.long
def test_a_coordinator_stands_still_and_its_responses_go_on_elsewhere(
    service: Service, undisturbed: list[Streamed]
) -> None:
    """All end while it stands still, and no health check has found it out."""
    for victim in range(COORDINATORS):  # as above
        with standing_still(service, COORDINATOR, victim) as stand_still:
            responses = streams(service.url, stand_still)
        assert told(responses) == told(undisturbed)
        if service.events("response_resumed", reason="CoordinatorSilentError"):
            break
    else:
        pytest.fail("nobody missed the one that stood still")
    print(f"without a token for at most {max(response.longest_gap_s for response in responses):.2f} s")  # noqa: T201 (no test's business)
    check_found_out(service)


@contextlib.contextmanager
def standing_still(service: Service, process: str, victim: int) -> Iterator[Callable[[], None]]:
    """A way to stop one process of a name once somebody works, which goes on behind the block."""
    pid = service.pids(process)[victim]

    def stop() -> None:
        eventually(lambda: any(each["generations"] for each in service.coordinators()), AT_WORK_WITHIN_S)
        os.kill(pid, signal.SIGSTOP)

    try:
        yield stop
    finally:
        with contextlib.suppress(ProcessLookupError):  # it was ended meanwhile
            os.kill(pid, signal.SIGCONT)


def test_clients_that_hang_up_leave_nothing_behind(service: Service) -> None:
    """At different moments: before the first token, between two chunks, in the middle of a round."""
    cancelled, found_out = len(service.events("generation_cancelled")), len(service.events(*HEALERS))
    request = {"model": MODEL, "prompt": "Once upon a time", "max_tokens": 400, "ignore_eos": True, "stream": True}
    for events in range(HANG_UPS):
        with httpx.stream("POST", f"{service.url}/v1/completions", json=request, timeout=60, verify=PLAIN) as response:
            assert response.status_code == httpx.codes.OK
            lines = (line for line in response.iter_lines() if line)
            assert all("data:" in next(lines) for _ in range(events))
    with contextlib.suppress(httpx.ReadTimeout):
        httpx.post(
            f"{service.url}/v1/completions", json={**request, "stream": False, "n": 3}, timeout=0.7, verify=PLAIN
        )
    service.check_released()
    assert len(service.events("generation_cancelled")) - cancelled >= HANG_UPS
    assert len(service.events(*HEALERS)) == found_out, "all were told, nobody had to find out"


@pytest.mark.long
def test_taken_away_it_ends_what_is_under_way(service: Service, undisturbed: list[Streamed]) -> None:
    """Last, as it leaves no service behind. Serve itself knows of no request that the ingress took."""
    responses = streams(service.url, partial(serve.delete, APP_NAME))
    assert told(responses) == told(undisturbed)
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{service.url}/health", verify=PLAIN)

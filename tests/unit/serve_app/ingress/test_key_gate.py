"""The gate behind keys without Ray: one count for all ingresses, what holds without it, and keys that change."""

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, cast

import pytest
from ray.exceptions import ActorUnavailableError

from outrider.contracts.errors import ConfigError
from outrider.tenants.keys import Tenant
from outrider.tenants.quotas import OverQuota, QuotaLimits, QuotaRequest, Quotas, RateLeft
from serve_app.api.service import AuthSettings
from serve_app.ingress.key_gate import GateTimeouts, KeyGate

KEY = "sk-alice-0123456789"
TWO = QuotaRequest("alice", 1, 10)
PACE = GateTimeouts(ask_deadline_s=0.05, find_deadline_s=1.0, beat_s=0.01, settle_s=0.01)


class Call:
    """A method as an actor's handle has it."""

    def __init__(self, do: Callable[..., Any], actor: "MemoryQuotas") -> None:
        self._do, self._actor = do, actor

    def remote(self, *arguments: Any) -> "asyncio.Future[Any]":
        """What is asked is done at once; the answer may not come."""
        done: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        if self._actor.gone:
            done.set_exception(ActorUnavailableError("gone", None))
            done.exception()
        elif not self._actor.hangs:
            done.set_result(self._do(*arguments))
        return done


def _now_s() -> float:
    return asyncio.get_running_loop().time()


class MemoryQuotas:
    """The actor, in this process."""

    def __init__(self) -> None:
        self.quotas, self.gone, self.hangs = Quotas(), False, False
        self.ask = Call(self._ask, self)
        self.settle = Call(self.quotas.settle, self)
        self.renew = Call(lambda owner, held: self.quotas.renew(owner, held, _now_s()), self)

    def _ask(
        self, owner: str, grant: str, asked: QuotaRequest, limits: QuotaLimits, rates: QuotaLimits
    ) -> tuple[OverQuota | None, dict[str, RateLeft]]:
        answer = self.quotas.ask(owner, grant, asked, limits, _now_s())
        return answer, self.quotas.left(asked.tenant, rates, _now_s())


def keys_file(folder: Path, limits: str = "concurrent_responses: 2") -> Path:
    file = folder / "keys.yaml"
    file.write_text(f"keys: [{{name: alice, key: {KEY}, {limits}}}]")
    return file


async def gate_of(file: Path, actor: MemoryQuotas) -> KeyGate:
    gate = KeyGate(AuthSettings(str(file), ("best_effort",), (), 0.01), lambda: cast("Any", actor), PACE)
    await gate.start()
    return gate


def alice(gate: KeyGate) -> Tenant:
    tenant = gate.keys.tenant_of(KEY)
    assert tenant is not None
    return tenant


async def until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 (files and beats have no event)
        await asyncio.sleep(0.001)


def bounded(test: Coroutine[Any, Any, None]) -> None:
    async def run() -> None:
        async with asyncio.timeout(60):
            await test

    asyncio.run(run())


def test_two_ingresses_have_one_count(tmp_path: Path) -> None:
    async def run() -> None:
        actor = MemoryQuotas()
        one, two = [await gate_of(keys_file(tmp_path), actor) for _ in range(2)]
        first, second = await one.ask(alice(one), TWO), await two.ask(alice(two), TWO)
        assert isinstance(await one.ask(alice(one), TWO), OverQuota)
        assert not isinstance(first, OverQuota)
        assert not isinstance(second, OverQuota)
        first(3)
        first(3)
        assert not isinstance(await two.ask(alice(two), TWO), OverQuota)
        actor.quotas = Quotas()  # it was restarted
        await until(lambda: actor.quotas.under_way("alice") == 2)
        one.close()
        two.close()

    bounded(run())


def test_nobody_is_asked_about_a_key_that_has_all_it_may_have_here(tmp_path: Path) -> None:
    async def run() -> None:
        actor = MemoryQuotas()
        gate = await gate_of(keys_file(tmp_path), actor)
        first, _ = [await gate.ask(alice(gate), TWO) for _ in range(2)]
        assert not isinstance(first, OverQuota)
        actor.ask = Call(lambda *_: pytest.fail("asked"), actor)
        assert await gate.ask(alice(gate), TWO) == OverQuota("concurrent_responses", 2, 3, 1)
        actor.ask = MemoryQuotas().ask
        first(3)
        assert not isinstance(await gate.ask(alice(gate), TWO), OverQuota)
        gate.close()

    bounded(run())


@pytest.mark.parametrize("limits", ["requests_per_minute: 60, tokens_per_minute: 600", "tokens_per_minute: 600"])
def test_what_is_left_comes_with_the_two_calls_that_count_a_request(tmp_path: Path, limits: str) -> None:
    async def run() -> None:
        actor = MemoryQuotas()
        gate = await gate_of(keys_file(tmp_path, limits), actor)
        assert await gate.left(alice(gate)) == {}
        tokens = []
        for done in (gate.enter(alice(gate)), gate.ask(alice(gate), TWO), gate.enter(alice(gate))):
            assert not isinstance(await done, OverQuota)
            left = await gate.left(alice(gate))
            assert ("requests" in left) == ("requests" in limits)
            tokens.append(round(left["tokens"].left))
        assert tokens == [600, 590, 590]
        assert not hasattr(actor, "left"), "no call of its own"
        actor.gone = True
        assert await gate.enter(alice(gate)) is None
        assert round((await gate.left(alice(gate)))["tokens"].left) == 600, "by its own count"
        gate.close()

    bounded(run())


@pytest.mark.parametrize("trouble", ["gone", "hangs"])
def test_without_it_each_counts_for_itself(tmp_path: Path, trouble: str) -> None:
    async def run() -> None:
        actor = MemoryQuotas()
        gate = await gate_of(keys_file(tmp_path), actor)
        setattr(actor, trouble, True)
        answers = [await gate.ask(alice(gate), TWO) for _ in range(3)]
        assert [isinstance(answer, OverQuota) for answer in answers] == [False, False, True]
        setattr(actor, trouble, False)
        await until(lambda: actor.quotas.under_way("alice") == 2)
        assert isinstance(await gate.ask(alice(gate), TWO), OverQuota), "it has heard of what was let in"
        gate.close()

    bounded(run())


@pytest.mark.parametrize("trouble", ["", "gone"])
def test_a_request_is_counted_once_before_anything_else_is_known(tmp_path: Path, trouble: str) -> None:
    async def run() -> None:
        actor = MemoryQuotas()
        one, two = [await gate_of(keys_file(tmp_path, "requests_per_minute: 1"), actor) for _ in range(2)]
        actor.gone = bool(trouble)
        assert await one.enter(alice(one)) is None
        for _ in range(19):
            refused = await one.enter(alice(one))
            assert refused is not None
            assert (refused.limit, refused.allowed) == ("requests_per_minute", 1)
        assert not isinstance(await one.ask(alice(one), TWO), OverQuota), "its tokens have no limit"
        assert (await two.enter(alice(two)) is None) == bool(trouble), "one count, or without it each its own"
        one.close()
        two.close()

    bounded(run())


def test_keys_that_change_are_read_and_bad_ones_are_not(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        file = keys_file(tmp_path)
        gate = await gate_of(file, MemoryQuotas())
        file.write_text("keys: nonsense")
        await until(lambda: "keys_not_read" in caplog.text)
        assert alice(gate).concurrent_responses == 2
        file.write_text(f"keys: [{{name: carol, key: {KEY}x}}]")
        await until(lambda: gate.keys.tenant_of(KEY + "x") is not None)
        assert gate.keys.tenant_of(KEY) is None
        gate.close()

    bounded(run())


def test_a_service_does_not_begin_without_its_keys(tmp_path: Path) -> None:
    for path, message in (
        (tmp_path / "none", r"auth.keys_file needs a readable YAML file"),
        (keys_file(tmp_path, "concurrent_responses: 0"), "concurrent_responses needs"),
    ):
        with pytest.raises(ConfigError, match=message):
            KeyGate(AuthSettings(str(path), (), (), 5.0), lambda: cast("Any", None))


def test_other_settings_are_taken_with_the_keys_or_not_at_all(tmp_path: Path) -> None:
    async def run() -> None:
        file = keys_file(tmp_path, "slo: {allowed: [best_effort]}")
        gate = await gate_of(file, MemoryQuotas())
        with pytest.raises(ConfigError, match=r"keys\[0\].slo needs names out of another"):
            await gate.take(AuthSettings(str(file), ("another",), (), 0.01))
        assert alice(gate).slo.allowed == ("best_effort",)
        keys_file(tmp_path, "slo: {allowed: [another]}")
        await gate.take(AuthSettings(str(file), ("another",), (), 0.01))
        assert alice(gate).slo.allowed == ("another",)
        gate.close()

    bounded(run())

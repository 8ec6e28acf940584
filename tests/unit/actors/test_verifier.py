"""What an engine is told and tells, step by step."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from actors.messages import Closing, VerifyCall
from actors.verifier import SteppedEngine
from outrider.contracts.errors import OutriderError, ParameterError, VerifierLostError
from outrider.contracts.requests import SamplingParams
from outrider.contracts.verifying import Block, Outcome, Refused, Resolution, Stretch, Unknown, Verified
from tests.unit.engines.conftest import tiny_llama, torch_verifier
from tests.unit.engines.reference import Client

PROMPT = [5, 17, 42, 8, 61, 30, 2]


class Failing:
    """An engine that goes wrong when it is told to."""

    def __init__(self) -> None:
        self._engine = torch_verifier(tiny_llama())
        self.error: OutriderError | None = None

    def __getattr__(self, name: str) -> object:
        """As it is."""
        return getattr(self._engine, name)

    def verify(self, blocks: Sequence[Block], resolutions: Sequence[Resolution] = ()) -> list[Outcome]:
        """Go wrong, or not."""
        if self.error is not None:
            raise self.error
        return self._engine.verify(blocks, resolutions)


def stretched(client: Client, until_round: int) -> VerifyCall:
    block = replace(client.block(), stretch=Stretch(until_round))
    return VerifyCall(openings=(client.opening(),), blocks=(block,))


def test_a_step_that_fails_for_what_was_asked_is_told_and_the_next_session_begins_anew() -> None:
    engine = Failing()
    stepped, client = SteppedEngine(engine), Client("a", PROMPT, SamplingParams(temperature=0.0))  # type: ignore[arg-type]
    (outcome,) = stepped.step([stretched(client, 9)]).outcomes
    assert isinstance(outcome, Verified)
    engine.error = ParameterError("seed", "one", None)
    reply = stepped.step([])
    assert (reply.outcomes, "seed" in (reply.failure or "")) == ((), True)
    assert stepped.idle, "nothing of it goes on"
    engine.error = None
    assert stepped.usage.generations == 1
    (unknown,) = stepped.step([VerifyCall(session=1, blocks=(client.block(),))]).outcomes
    assert isinstance(unknown, Unknown), "whoever asks anew opens anew"
    assert stepped.usage.generations == 0
    (again,) = stepped.step([replace(stretched(client, 9), session=1, number=1)]).outcomes
    assert isinstance(again, Verified)
    assert again.next_token == outcome.next_token


def test_an_engine_that_is_lost_is_not_asked_again() -> None:
    engine = Failing()
    engine.error = VerifierLostError("a worker died")
    with pytest.raises(VerifierLostError):
        SteppedEngine(engine).step([])  # type: ignore[arg-type]


def test_what_cannot_be_opened_is_refused_beside_the_others() -> None:
    stepped = SteppedEngine(torch_verifier(tiny_llama(), blocks=8))
    fits, large = (Client(name, PROMPT * size, SamplingParams(temperature=0.0)) for name, size in (("a", 1), ("b", 9)))
    call = VerifyCall(openings=(large.opening(), fits.opening()), blocks=(large.block(), fits.block()))
    reply = stepped.step([call])
    assert list(reply.refused_openings) == ["b"]
    assert [type(outcome) for outcome in reply.outcomes] == [Unknown, Verified]
    assert not any(isinstance(outcome, Refused) for outcome in reply.outcomes)


def test_who_is_due_last_loses_kv_and_that_is_told() -> None:
    """Due counts from when it was told; the last word counts."""
    stepped, params = SteppedEngine(torch_verifier(tiny_llama(), blocks=8)), SamplingParams(temperature=0.0)
    held = [Client(name, [number] * 14, params) for number, name in enumerate("ab")]
    call = VerifyCall(openings=tuple(one.opening() for one in held), blocks=tuple(one.block() for one in held))
    stepped.step([replace(call, dues=(("a", 50.0), ("b", 5.0)))])
    assert stepped.idle
    new = [Client(name, [number + 7] * 4, params) for number, name in enumerate("cd")]
    lost = []
    for one, dues in zip(new, ((), (("a", 0.0), ("gone", 1.0), ("c", 0.0))), strict=True):
        reply = stepped.step([VerifyCall(number=1, openings=(one.opening(),), blocks=(one.block(),), dues=dues)])
        lost.append(reply.evicted)
    assert lost == [(("a", 12),), (("b", 12),)]
    assert (reply.usage.evictions, reply.usage.unowed_evictions) == (2, 0)


def test_idle_is_the_time_without_anything_to_do() -> None:
    stepped, client = SteppedEngine(torch_verifier(tiny_llama())), Client("a", PROMPT, SamplingParams(temperature=0.0))
    assert stepped.step([stretched(client, 2)]).idle_s > 0.0
    assert [stepped.step([]).idle_s for _ in range(2)] == [0.0, 0.0]
    assert stepped.idle
    assert stepped.step([VerifyCall(number=1, closings=(Closing("a", keep_cache=False),))]).idle_s > 0.0

"""A request at which the verifier fails, or dies, among others: it ends by its own error, the others as ever."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from outrider.contracts.errors import GenerationFailedError, OutriderError, RequestFailedError, VerifierLostError
from outrider.contracts.requests import GenerationRequest
from outrider.contracts.verifying import Block, Outcome, Resolution, VerifierEngine
from outrider.rounds.states import GenerationState
from outrider.scheduling.policy import BatchPlan
from serve_app.api.http_errors import answer_for
from serve_app.api.resumption import may_resume
from tests.unit.serve_app.api.in_memory_service import PARAMS, Service, drafter, request_for, tokens_of, truth_of
from tests.unit.serve_app.coordination.hand_driven import Asked
from tests.unit.virtual_clock import on_loop

POISON = 33  # a token of its prompt
STREAMS = 8


class Poisoned:
    """A verifier engine that fails at whatever has the poison in its prompt; or dies of it."""

    def __init__(self, engine: VerifierEngine, error: Exception, failed: list[str]) -> None:
        self._engine, self._error, self._failed = engine, error, failed

    def __getattr__(self, name: str) -> Any:
        """As it is."""
        return getattr(self._engine, name)

    def verify(self, blocks: Sequence[Block], resolutions: Sequence[Resolution] = ()) -> list[Outcome]:
        """Fail, or not."""
        if any(POISON in self._engine.committed(block.generation)[:7] for block in blocks):
            self._failed.append(" ".join(block.generation for block in blocks))
            raise self._error
        return self._engine.verify(blocks, resolutions)


def poison(service: Service, error: Exception) -> list[str]:
    """From now on, and after each restart; who is in each pass that fails."""
    verifier, failed = service.verifier, list[str]()
    empty = verifier._empty  # noqa: SLF001 (what it restarts with)
    made: Any = lambda: Poisoned(empty(), error, failed)  # noqa: E731
    verifier._empty = made  # type: ignore[method-assign]  # noqa: SLF001 (likewise)
    verifier._restart()  # noqa: SLF001 (likewise)
    return failed


def requests() -> list[GenerationRequest]:
    """Each with a prompt and parameters of its own."""
    params = list(PARAMS.values())
    return [request_for(f"g{i}", (5 + i, 17, 42, 8, 61, 30, 2), params[i % len(params)]) for i in range(STREAMS)]


async def among_others(service: Service) -> OutriderError:
    """What becomes of the poisoned one; the others are to be told what they would be without it."""
    others, bad = requests(), request_for("bad", (5, POISON, 42, 8, 61, 30, 2))
    made = [asyncio.create_task(service.response(request)) for request in (*others[:4], bad, *others[4:])]
    responses = await asyncio.gather(*made, return_exceptions=True)
    failed = responses.pop(4)
    for request, chunks in zip(others, responses, strict=True):
        assert not isinstance(chunks, BaseException), (request.generation, chunks)
        assert tokens_of(chunks) == truth_of(request), request.generation
    assert isinstance(failed, OutriderError), failed
    await service.idle()
    return failed


@pytest.mark.parametrize("drafters", [0, 2])
@on_loop
async def test_it_gets_an_error_of_its_own_and_the_others_their_own_tokens(drafters: int) -> None:
    service = Service(*(drafter() for _ in range(drafters)))
    passes = poison(service, RuntimeError("nan"))
    failed = await among_others(service)
    assert isinstance(failed, RequestFailedError)
    assert service.generations["bad"].state is GenerationState.FAILED
    assert passes[-2:] == ["bad"] * 2
    assert sum(len(record.faults) for record in service.batches) == len(passes) <= 5
    assert answer_for(failed).status == 500
    assert not may_resume(failed, begun=False), "it is not to be carried to another coordinator"
    assert not may_resume(failed, begun=True)


@pytest.mark.parametrize("drafters", [0, 2])
@on_loop
async def test_one_that_the_verifier_dies_of_is_found(drafters: int) -> None:
    service = Service(*(drafter() for _ in range(drafters)))
    passes = poison(service, VerifierLostError("CUDA error: misaligned address"))
    failed = await among_others(service)
    assert isinstance(failed, RequestFailedError)
    assert len(passes) == 6, "it dies without a word: in company, until it is suspected, and alone"
    assert passes[2:] == ["bad"] * 4


@on_loop
async def test_a_policy_that_fails_keeps_nobody_waiting() -> None:
    class Fails(Asked):
        def plan(self, *_args: Any, **_more: Any) -> BatchPlan:
            raise ZeroDivisionError

    service = Service(scheduling=Fails())
    with pytest.raises(GenerationFailedError, match="cannot be planned"):
        await service.response(replace(request_for(), window=0))
    await service.idle()


@on_loop
async def test_a_fault_of_ours_is_no_client_that_left() -> None:
    def fails(_: object) -> None:
        raise ZeroDivisionError

    service = Service()
    service.services = replace(service.services, observe=fails)
    with pytest.raises(ZeroDivisionError):
        await service.response(request_for())
    assert service.generations["g"].state is GenerationState.FAILED
    await service.idle()

import gc
from collections.abc import AsyncGenerator
from types import FrameType
from typing import Any

import httpx
import pytest
from ray.exceptions import ActorDiedError, ActorUnavailableError, RayTaskError
from ray.serve._private.common import DeploymentID
from ray.serve.exceptions import BackPressureError, DeploymentUnavailableError

from actors.ray_errors import cause_of
from outrider.contracts import errors as outrider_errors
from outrider.contracts.errors import (
    BusyError,
    ContextTooLongError,
    GenerationFailedError,
    NonFiniteError,
    OutriderError,
    ParameterError,
)
from outrider.contracts.requests import GenerationChunk, GenerationRequest
from serve_app.api.http_errors import ERROR_KINDS, PromptTooLongError, UnknownModelError, answer_for
from tests.unit.serve_app.api.asking import COMPLETION, post
from tests.unit.serve_app.api.text_service import TextService


def through_ray(error: Exception) -> Exception:
    """As Ray hands it to the caller in another process."""
    carried: Any = RayTaskError
    copy = carried("generate", "a traceback with our insides", error).as_instanceof_cause()
    assert isinstance(copy, Exception)
    return copy


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (ParameterError("top_p", "a number in (0, 1]", 7), 400, "invalid_value"),
        (ContextTooLongError("needs less"), 400, "context_length_exceeded"),
        (PromptTooLongError("prompt", "prompt needs less"), 400, "context_length_exceeded"),
        (UnknownModelError("model", "model needs x"), 404, "model_not_found"),
        (BusyError("full"), 429, "busy"),
        (BackPressureError(num_queued_requests=3, max_queued_requests=2), 429, "busy"),
        (GenerationFailedError("verifier lost"), 503, "unavailable"),
        (ActorDiedError(), 503, "unavailable"),
        (ActorUnavailableError("gone", None), 503, "unavailable"),
        (TimeoutError(), 504, "timeout"),
        (OutriderError("one nobody thought of"), 500, "internal_error"),
        (NonFiniteError("round 3: the target's numbers are not finite"), 500, "non_finite_logits"),
        (ZeroDivisionError("our insides"), 500, "internal_error"),
    ],
)
def test_every_error_has_its_answer_wherever_it_was_raised(error: Exception, status: int, code: str) -> None:
    answer = answer_for(error)
    body = answer.body["error"]
    assert isinstance(body, dict)
    assert (answer.status, body["code"]) == (status, code)
    assert sorted(body) == ["code", "message", "param", "type"]
    assert answer_for(through_ray(error)) == answer


def test_errors_of_the_client_are_explained_and_others_are_not() -> None:
    explained = answer_for(through_ray(ParameterError("seed", "an integer", "x"))).body["error"]
    assert explained == {
        "message": "seed needs an integer, found 'x'",
        "type": "invalid_request_error",
        "param": "seed",
        "code": "invalid_value",
    }
    for error in (
        RuntimeError("secret"),
        GenerationFailedError("secret"),
        ActorUnavailableError("secret", None),
        BusyError("secret"),
    ):
        assert "secret" not in str(answer_for(error).body)


def test_only_what_may_succeed_later_says_when_to_retry() -> None:
    saturated = {"x-llm-d-request-dropped-reason": "rejected-saturated"}
    assert answer_for(BusyError("full")).headers == {"Retry-After": "1", **saturated}
    assert answer_for(RuntimeError()).headers == {}
    assert answer_for(ParameterError("n", "1", 2)).headers == {}


def test_a_long_value_does_not_make_a_long_message() -> None:
    body = answer_for(ParameterError("x" * 1000, "a text", "y" * 100_000)).body["error"]
    assert isinstance(body, dict)
    assert len(body["message"]) == 600
    assert len(body["param"] or "") == 100


def test_the_cause_is_found_below_several_processes() -> None:
    error = BusyError("full")
    assert cause_of(through_ray(through_ray(error))) is error


def test_an_error_that_cannot_travel_is_ours() -> None:
    class StuckError(Exception):
        def __reduce__(self) -> str:
            raise TypeError("cannot be pickled")

    answer = answer_for(through_ray(StuckError("secret")))
    assert answer.status == 503
    assert "secret" not in str(answer.body)
    assert "insides" not in str(answer.body)


def test_every_algorithm_error_was_considered() -> None:
    """A new error type must be given an answer, or be listed as one that no client causes."""
    internal = {
        "VocabularyMismatchError",
        "UnsupportedModelError",
        "UnsupportedBlockError",
        "IllegalTransitionError",
    }
    internal |= {"DraftingFailedError", "InstallationError", "PairMismatchError", "OutriderError"}
    internal |= {"ShapeError", "MessageError", "ChecksumError"}
    for name, cls in vars(outrider_errors).items():
        if isinstance(cls, type) and issubclass(cls, OutriderError) and name not in internal:
            assert any(base in ERROR_KINDS for base in cls.__mro__ if base is not Exception), name


def test_serve_itself_may_be_unavailable() -> None:
    assert answer_for(DeploymentUnavailableError(DeploymentID("Coordinator"))).status == 503


class Full(TextService):
    async def generate(self, request: GenerationRequest) -> AsyncGenerator[GenerationChunk, None]:
        raise BusyError(f"full, found {request.generation}")
        yield


def test_nothing_that_a_refused_request_has_passed_waits_for_the_search_for_cycles() -> None:
    service = Full()
    gc.collect()
    gc.disable()
    try:
        assert post(service, "/v1/completions", COMPLETION).status_code == httpx.codes.TOO_MANY_REQUESTS
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        left = [each.f_code.co_qualname for each in gc.garbage if isinstance(each, FrameType)]
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()
    assert left == []

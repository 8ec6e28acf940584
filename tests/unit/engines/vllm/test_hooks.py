"""The contract with vLLM's internals: the pinned version keeps it, and whatever does not is named."""

import pytest

from outrider.engines.vllm.hooks import CALLS, READS, Call, Reads, check_hooks, differences
from outrider.engines.vllm.settings import OWNED_OPTIONS

_OUTPUT = "vllm.v1.core.sched.output"


def test_the_installed_vllm_has_every_hook() -> None:
    assert check_hooks() == ()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (Call("vllm.v1.no_such_module", "Scheduler"), "is not there"),
        (Call(_OUTPUT, "OldOutput"), "is not there"),
        (Call(_OUTPUT, "CachedRequestData.make_nothing"), "is not there"),
        (Call(_OUTPUT, "SchedulerOutput", ("total_tokens",)), "does not take total_tokens"),
        (Call(_OUTPUT, "NewRequestData", ("req_id",)), "needs prompt_token_ids, mm_features"),
    ],
)
def test_a_call_that_changed_is_named(call: Call, message: str) -> None:
    [found] = differences([call], [])
    assert message in found
    assert f"{call.module}.{call.name}" in found


def test_an_attribute_that_went_is_named() -> None:
    runner = READS[0]
    [found] = differences([], [Reads(runner.module, runner.name, ("input_batch", "sampled_on_the_moon"))])
    assert found.endswith("does not use sampled_on_the_moon")


def test_every_option_the_engine_owns_is_one_of_vllms() -> None:
    owned = next(call for call in CALLS if call.name == "EngineArgs")
    assert differences([Call(owned.module, owned.name, tuple(sorted(OWNED_OPTIONS)))], []) == ()

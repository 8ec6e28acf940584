"""Settings are refused where they are made, before vLLM is imported."""

from dataclasses import fields, replace
from types import SimpleNamespace
from typing import Any

import pytest

from outrider.contracts.errors import ParameterError
from outrider.engines.limits import EngineLimits, MemoryBesideKv
from outrider.engines.vllm.kind import VLLM_VERIFIER
from outrider.engines.vllm.settings import UNSUPPORTED_OPTIONS
from tests.unit.engines.vllm.conftest import MakeSettings


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_num_seqs": 4, "quantization": "fp8"}, "found 'max_num_seqs'"),
        ({"kv_transfer_config": {}}, "found 'kv_transfer_config'"),
    ],
)
def test_what_cannot_be_is_refused(make_settings: MakeSettings, options: dict[str, object], message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        make_settings(vllm_options=options)


def test_every_option_refused_is_one_of_vllms(make_settings: MakeSettings) -> None:
    from vllm.engine.arg_utils import EngineArgs  # noqa: PLC0415 (seconds)

    assert {field.name for field in fields(EngineArgs)} >= UNSUPPORTED_OPTIONS | set(make_settings().owned_arguments())


@pytest.mark.parametrize(("kv_budget_bytes", "gpu_use"), [(None, 0.85), (2**30, 0.01)])
def test_vllm_takes_what_an_engine_on_a_card_is_told(
    make_settings: MakeSettings, kv_budget_bytes: int | None, gpu_use: float
) -> None:
    """As far as that is checked without one: names, kinds and bounds of its arguments, and its batch invariance."""
    from vllm import envs  # noqa: PLC0415 (seconds)
    from vllm.engine.arg_utils import EngineArgs  # noqa: PLC0415

    made = make_settings()
    limits = EngineLimits(kv_budget_bytes, VLLM_VERIFIER.block_tokens["cuda"])
    settings = replace(made, spec=replace(made.spec, device="cuda", dtype="bfloat16", limits=limits))
    arguments = EngineArgs(**settings.engine_arguments())
    assert (arguments.gpu_memory_utilization, arguments.enforce_eager) == (gpu_use, False)
    assert (arguments.block_size, arguments.kv_cache_memory_bytes) == (16, kv_budget_bytes)
    assert "VLLM_BATCH_INVARIANT" in envs.environment_variables


@pytest.mark.parametrize(
    ("kv_budget_bytes", "share", "requested_gib"), [(None, 1.0, 68), (None, 0.5, 34), (2**35, 1.0, 0.8)]
)
def test_vllm_requests_a_share_of_a_card_or_next_to_nothing_beside_kv_in_bytes(
    make_settings: MakeSettings, kv_budget_bytes: int | None, share: float, requested_gib: float
) -> None:
    """Of 80 GiB; less must be free when it starts. Kept rows, a sixteenth of KV, fit into what is left."""
    from vllm.v1.worker.utils import request_memory  # noqa: PLC0415 (seconds)

    made, total = make_settings(), 80 * 2**30
    limits = EngineLimits(kv_budget_bytes, 16, gpu_share=share)
    arguments = replace(made, spec=replace(made.spec, device="cuda", limits=limits)).engine_arguments()
    cache: Any = SimpleNamespace(gpu_memory_utilization=arguments["gpu_memory_utilization"])
    card: Any = SimpleNamespace(total_memory=total, free_memory=int(share * total), device_="cuda")
    requested = request_memory(card, cache)
    assert requested == pytest.approx(requested_gib * 2**30, rel=1e-6)
    assert requested + MemoryBesideKv.of(requested).kept_rows_bytes < share * total

"""How much a pass computes and a verifier remembers is the device's own, unless it is configured."""

from pathlib import Path

import pytest

from outrider.assembly.verifiers import verifier_spec
from outrider.config.assigning import override
from outrider.config.device_defaults import BatchSize, batch_size
from outrider.config.reading import load_config, parse_config
from outrider.contracts.errors import ParameterError
from outrider.engines.limits import EngineLimits, gpu_kv_bytes
from outrider.engines.vllm.settings import VllmSettings
from serve_app.coordination.settings import generations_settings

ON_CUDA = ["verifiers.device=cuda", "verifiers.num_gpus=1"]


@pytest.mark.parametrize(
    ("device", "asked", "expected"),
    [
        ("cpu", None, BatchSize(64, 512, 32)),
        ("cuda", None, BatchSize(2048, 8192, 256)),
        ("cuda", 128, BatchSize(128, 8192, 256)),
        ("cpu", 256, BatchSize(256, 512, 32)),
        ("cpu", 4096, BatchSize(4096, 4096, 32)),
        ("cuda", 8193, BatchSize(8193, 8193, 256)),
    ],
)
def test_what_is_not_asked_for_is_the_devices_own(device: str, asked: int | None, expected: BatchSize) -> None:
    assert batch_size(device, asked) == expected


def test_a_device_that_is_named_late_brings_its_own() -> None:
    config = override(load_config(), ON_CUDA)
    assert config.verifiers.batch == BatchSize(2048, 8192, 256)
    spec, limits = verifier_spec(config.model, config.verifiers), generations_settings(config).planning.limits
    assert (spec.limits.prefill_chunk_tokens, spec.max_pass_tokens) == (2048, 8192)
    assert (limits.prefill_chunk_tokens, limits.max_new_tokens, limits.max_blocks) == (2048, 8192, 256)
    assert load_config().verifiers.batch == BatchSize(64, 512, 32)


def test_a_pass_has_room_for_one_chunk() -> None:
    config = override(parse_config("verifiers: {prefill_chunk_tokens: 512}", "test"), ON_CUDA)
    assert config.verifiers.batch == BatchSize(512, 8192, 256)
    assert override(config, ["verifiers.prefill_chunk_tokens=8193"]).verifiers.batch == BatchSize(8193, 8193, 256)


def test_memory_that_is_not_asked_for_is_what_a_gpu_has_free() -> None:
    config = load_config()
    assert verifier_spec(config.model, config.verifiers).limits.kv_budget_bytes == 512 * 2**20
    shared = override(config, [*ON_CUDA, "verifiers.num_gpus=0.5"])
    limits = verifier_spec(shared.model, shared.verifiers).limits
    assert (limits.kv_budget_bytes, limits.gpu_share) == (None, 0.5)
    asked = override(shared, ["verifiers.kv_budget_mib=64"])
    assert verifier_spec(asked.model, asked.verifiers).limits.kv_budget_bytes == 64 * 2**20


@pytest.mark.parametrize(
    ("free", "own", "share", "expected"),
    [
        (60, 20, 1.0, 48),  # alone: of 80 the model has 20
        (60, 20, 0.5, 16),  # of its 40 half is taken
        (10, 20, 1.0, 8),  # others hold 50
        (60, 50, 0.5, 0),  # the model alone is more than its share
    ],
)
def test_of_a_gpu_four_fifths_of_what_its_share_has_left(free: int, own: int, share: float, expected: int) -> None:
    assert gpu_kv_bytes(free, 80, own, share) == expected


def test_a_model_that_leaves_no_memory_is_told_of() -> None:
    with pytest.raises(ParameterError, match=r"kv budget needs at least 1600 bytes \(one block\), found 0"):
        EngineLimits(gpu_kv_bytes(60, 80, 50, 0.5)).total_blocks(kv_bytes_per_token=100)


def test_vllm_is_left_to_find_what_is_free() -> None:
    config = override(load_config(), ["verifiers.engine=vllm", *ON_CUDA, "verifiers.num_gpus=0.5"])

    def arguments(*assignments: str) -> dict[str, object]:
        chosen = override(config, list(assignments))
        return VllmSettings(verifier_spec(chosen.model, chosen.verifiers), Path(), 100, 100).engine_arguments()

    free, given = arguments("verifiers.device=cuda"), arguments("verifiers.kv_budget_mib=64")
    assert (free["kv_cache_memory_bytes"], free["gpu_memory_utilization"]) == (None, 0.425)
    assert (given["kv_cache_memory_bytes"], given["gpu_memory_utilization"]) == (64 * 2**20, 0.01)

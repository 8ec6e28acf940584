"""How much a pass computes is the device's own, unless it is configured."""

from dataclasses import replace

import pytest

from outrider.assembly.verifiers import verifier_spec
from outrider.config.device_defaults import BatchSize, batch_size
from outrider.config.reading import load_config, override, parse_config
from outrider.contracts.errors import ConfigError
from serve_app.coordination.settings import generations_settings

ON_CUDA = ["verifiers.device=cuda", "verifiers.num_gpus=1"]


@pytest.mark.parametrize(
    ("device", "asked", "expected"),
    [
        ("cpu", (None, None, None), BatchSize(64, 512, 32)),
        ("cuda", (None, None, None), BatchSize(2048, 8192, 256)),
        ("cuda", (128, None, 4), BatchSize(128, 8192, 4)),
        ("cuda", (None, 1024, None), BatchSize(1024, 1024, 256)),
        ("cpu", (None, 4096, None), BatchSize(64, 4096, 32)),
        ("cpu", (256, 100, 1), BatchSize(256, 100, 1)),
    ],
)
def test_what_is_not_asked_for_is_the_devices_own(
    device: str, asked: tuple[int | None, int | None, int | None], expected: BatchSize
) -> None:
    assert batch_size(device, *asked) == expected


def test_a_device_that_is_named_late_brings_its_own() -> None:
    config = override(load_config(), ON_CUDA)
    assert config.verifiers.batch == BatchSize(2048, 8192, 256)
    spec, limits = verifier_spec(config.model, config.verifiers), generations_settings(config).planning.limits
    assert (spec.limits.prefill_chunk_tokens, spec.max_pass_tokens) == (2048, 8192)
    assert (limits.prefill_chunk_tokens, limits.max_new_tokens, limits.max_blocks) == (2048, 8192, 256)
    assert load_config().verifiers.batch == BatchSize(64, 512, 32)
    assert replace(config.verifiers, max_batch_tokens=512).batch.prefill_chunk_tokens == 512


def test_a_chunk_that_no_batch_of_the_device_can_hold_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"needs at most max_batch_tokens \(8192\), found 8193"):
        override(
            parse_config("verifiers: {prefill_chunk_tokens: 512}", "test"),
            [*ON_CUDA, "verifiers.prefill_chunk_tokens=8193"],
        )

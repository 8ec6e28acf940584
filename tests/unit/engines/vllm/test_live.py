"""What a started runner may be, and which models are refused rather than served wrongly."""

from dataclasses import replace

import pytest

from outrider.engines.vllm.live import LiveRunner, live_differences, unsupported

GOOD = LiveRunner(
    classes=("CPUModelRunner", "GPUModelRunner", "object"),
    kv_kinds=("FullAttentionSpec",),
    kv_groups=1,
    window_tokens=None,
    kv_blocks=64,
    block_tokens=32,
    max_context_tokens=768,
    features=(),
)


def test_one_set_of_full_attention_is_served() -> None:
    assert unsupported(GOOD, 768) is None
    assert unsupported(replace(GOOD, kv_kinds=("MLAAttentionSpec",)), 768) is None
    assert unsupported(replace(GOOD, window_tokens=768), 768) is None, "within its window attention is full"
    assert live_differences(GOOD) == ()


@pytest.mark.parametrize(
    ("live", "reason"),
    [
        (replace(GOOD, kv_groups=2), "2 groups of KV"),
        (replace(GOOD, kv_groups=0, kv_kinds=()), "0 groups of KV"),
        (replace(GOOD, kv_kinds=("FullAttentionSpec", "MambaSpec")), "MambaSpec"),
        (replace(GOOD, kv_kinds=("ChunkedLocalAttentionSpec",)), "ChunkedLocalAttentionSpec"),
        (replace(GOOD, window_tokens=767), "767 positions at most"),
        (replace(GOOD, features=("multimodal rotary positions",)), "multimodal rotary positions"),
    ],
)
def test_other_kv_is_refused(live: LiveRunner, reason: str) -> None:
    assert reason in (unsupported(live, 768) or "")


def test_other_runners_are_told_apart() -> None:
    assert "no GPUModelRunner" in live_differences(replace(GOOD, classes=("TpuRunner", "object")))[0]

"""Which models are refused rather than served wrongly."""

from dataclasses import replace

import pytest

from outrider.engines.vllm.kv_layout import KvLayout

GOOD = KvLayout(
    kinds=("FullAttentionSpec",),
    groups=1,
    window_tokens=None,
    blocks=64,
    block_tokens=32,
    block_bytes=32 * 2 * 64,
    max_context_tokens=768,
    unfed=(),
)


def test_one_set_of_full_attention_is_served() -> None:
    assert GOOD.fault(768) is None
    assert replace(GOOD, kinds=("MLAAttentionSpec",)).fault(768) is None
    assert replace(GOOD, window_tokens=768).fault(768) is None, "within its window attention is full"


@pytest.mark.parametrize(
    ("layout", "reason"),
    [
        (replace(GOOD, groups=2), "2 groups of KV"),
        (replace(GOOD, groups=0, kinds=()), "0 groups of KV"),
        (replace(GOOD, kinds=("FullAttentionSpec", "MambaSpec")), "MambaSpec"),
        (replace(GOOD, kinds=("ChunkedLocalAttentionSpec",)), "ChunkedLocalAttentionSpec"),
        (replace(GOOD, window_tokens=767), "767 positions at most"),
        (replace(GOOD, unfed=("multimodal rotary positions",)), "multimodal rotary positions"),
    ],
)
def test_other_kv_is_refused(layout: KvLayout, reason: str) -> None:
    assert reason in (layout.fault(768) or "")

"""Whether a started vLLM runner is one this engine can drive, and its model one whose KV it can keep.

Only a live runner knows which kinds of KV its model has.
"""

from dataclasses import dataclass
from typing import Any

# All of them keep the KV of every position we keep, in blocks named alike.
_KEPT_KINDS = frozenset({"FullAttentionSpec", "MLAAttentionSpec", "SlidingWindowSpec"})


@dataclass(frozen=True, slots=True)
class LiveRunner:
    """Facts of a model runner, as its worker reports them.

    Attributes:
        classes: names of its class and its bases.
        kv_kinds: the kind of KV of each cache group; of a group of several, each of them.
        kv_groups: how many there are; each would have block tables of its own.
        window_tokens: the smallest sliding or chunked attention window; None if attention is full.
        kv_blocks: blocks, the null block among them.
        block_tokens: positions per block.
        max_context_tokens: positions its buffers are made for.
        features: what its model has that a pass here cannot feed.
    """

    classes: tuple[str, ...]
    kv_kinds: tuple[str, ...]
    kv_groups: int
    window_tokens: int | None
    kv_blocks: int
    block_tokens: int
    max_context_tokens: int
    features: tuple[str, ...]


def describe(runner: Any) -> LiveRunner:
    """Read a runner. Runs in its worker."""
    groups = runner.kv_cache_config.kv_cache_groups
    specs = [
        inner
        for group in groups
        for inner in getattr(group.kv_cache_spec, "kv_cache_specs", {"": group.kv_cache_spec}).values()
    ]
    windows = [
        window
        for spec in specs
        for name in ("sliding_window", "attention_chunk_size")
        if (window := getattr(spec, name, None)) is not None
    ]
    model = runner.model_config
    features = {
        "pooling": runner.is_pooling_model,
        "multimodal rotary positions": runner.uses_mrope or getattr(runner, "uses_xdrope_dim", 0) > 0,
        "an encoder": model.is_encoder_decoder,
        "recurrent state": model.is_hybrid or model.is_attention_free,
        "token lookback": getattr(runner, "lookback_token_ids", None) is not None,
    }
    return LiveRunner(
        classes=tuple(kind.__name__ for kind in type(runner).__mro__),
        kv_kinds=tuple(sorted({type(spec).__name__ for spec in specs})),
        kv_groups=len(groups),
        window_tokens=min(windows, default=None),
        kv_blocks=runner.kv_cache_config.num_blocks,
        block_tokens=min((spec.block_size for spec in specs), default=0),
        max_context_tokens=runner.max_model_len,
        features=tuple(name for name, present in features.items() if present),
    )


def unsupported(live: LiveRunner, context_tokens: int) -> str | None:
    """Why this model's KV cannot be kept in one set of blocks, or None.

    Within its window, sliding attention is full attention.
    """
    if live.features:
        return f"has {', '.join(live.features)}"
    if live.kv_groups != 1 or set(live.kv_kinds) - _KEPT_KINDS:
        return f"has {live.kv_groups} groups of KV ({', '.join(live.kv_kinds) or 'none'})"
    if live.window_tokens is not None and live.window_tokens < context_tokens:
        return f"attends to {live.window_tokens} positions at most"
    return None


def live_differences(live: LiveRunner) -> tuple[str, ...]:
    """How the runner differs from the one this engine drives; empty when all is well."""
    if "GPUModelRunner" in live.classes:
        return ()
    return (f"the runner is a {live.classes[0]}, no GPUModelRunner",)

"""KV layout of a model on vLLM, and whether one set of blocks can hold it. Known only once a runner is started."""

from dataclasses import dataclass
from typing import Any

# All of these keep the KV of every position, in blocks with the same numbers.
_KEPT_KINDS = frozenset({"FullAttentionSpec", "MLAAttentionSpec", "SlidingWindowSpec"})


@dataclass(frozen=True, slots=True)
class KvLayout:
    """Facts about a model runner, reported by its worker."""

    kinds: tuple[str, ...]  # of KV, over all cache groups
    groups: int  # of caches, each of which has its own block tables
    window_tokens: int | None  # the smallest sliding or chunked attention window; None if attention is full
    blocks: int  # number of blocks, the null block included
    block_tokens: int  # positions per block
    block_bytes: int  # of KV per block, on one GPU under tensor parallelism
    max_context_tokens: int  # positions that the runner's buffers hold
    unfed: tuple[str, ...]  # inputs that the model needs and a pass here cannot supply

    def fault(self, context_tokens: int) -> str | None:
        """Return why one set of blocks cannot hold this model's KV; None if it can.

        Within its window, sliding attention equals full attention.
        """
        if self.unfed:
            return f"has {', '.join(self.unfed)}"
        if self.groups != 1 or set(self.kinds) - _KEPT_KINDS:
            return f"has {self.groups} groups of KV ({', '.join(self.kinds) or 'none'})"
        if self.window_tokens is not None and self.window_tokens < context_tokens:
            return f"attends to {self.window_tokens} positions at most"
        return None


def describe(runner: Any) -> KvLayout:
    """Read the layout of a ``GPUModelRunner``; runs in its worker."""
    groups = runner.kv_cache_config.kv_cache_groups
    specs = [
        inner
        for group in groups
        for inner in getattr(group.kv_cache_spec, "kv_cache_specs", {"": group.kv_cache_spec}).values()
    ]
    windows = [getattr(spec, name, None) for spec in specs for name in ("sliding_window", "attention_chunk_size")]
    model = runner.model_config
    features = {
        "pooling": runner.is_pooling_model,
        "multimodal rotary positions": runner.uses_mrope,
        "an encoder": model.is_encoder_decoder,
        "recurrent state": model.is_hybrid or model.is_attention_free,
        "token lookback": runner.lookback_token_ids is not None,
    }
    return KvLayout(
        kinds=tuple(sorted({type(spec).__name__ for spec in specs})),
        groups=len(groups),
        window_tokens=min((window for window in windows if window is not None), default=None),
        blocks=runner.kv_cache_config.num_blocks,
        block_tokens=min((spec.block_size for spec in specs), default=0),
        block_bytes=sum(len(group.layer_names) * group.kv_cache_spec.page_size_bytes for group in groups),
        max_context_tokens=runner.max_model_len,
        unfed=tuple(name for name, present in features.items() if present),
    )

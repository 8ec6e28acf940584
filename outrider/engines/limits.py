"""Memory limits and batch shape of an engine. Free of torch, so that configuring engines is fast."""

from dataclasses import dataclass

from outrider.contracts.errors import ParameterError


@dataclass(frozen=True, slots=True)
class EngineLimits:
    kv_budget_bytes: int | None  # KV memory; None: derived from what ``gpu_share`` of the GPU leaves (``gpu_kv_bytes``)
    block_tokens: int = 16
    prefill_chunk_tokens: int = 128  # prefix positions computed per forward pass, over all cold blocks
    parts: int = 1  # parts of a pass of many rows on a CPU, each computed by a thread
    gpu_share: float = 1.0  # of its GPU's memory, for weights, passes and KV together
    swap_bytes: int = 0  # size of the host cache for evicted KV

    def total_blocks(self, kv_bytes_per_token: int) -> int:
        """Return the number of KV blocks that fit the budget; none is a ``ParameterError``."""
        block_bytes = kv_bytes_per_token * self.block_tokens
        if self.kv_budget_bytes is None or self.kv_budget_bytes < block_bytes:
            raise ParameterError("kv budget", f"at least {block_bytes} bytes (one block)", self.kv_budget_bytes)
        return self.kv_budget_bytes // block_bytes

    def host_blocks(self, kv_bytes_per_token: int) -> int:
        """Return the number of KV blocks in ``swap_bytes``; less than one, though above 0, is a ``ParameterError``."""
        block_bytes = kv_bytes_per_token * self.block_tokens
        if 0 < self.swap_bytes < block_bytes:
            raise ParameterError("swap_mib", f"0, or at least {block_bytes} bytes (one block)", self.swap_bytes)
        return self.swap_bytes // block_bytes


def gpu_kv_bytes(free_bytes: int, total_bytes: int, own_bytes: int, share: float) -> int:
    """Return the default KV memory on a GPU: four fifths of what the loaded model leaves of the share.

    The last fifth is for activations, and for what is computed from logits rows.

    Args:
        free_bytes: held by no process.
        total_bytes: of the GPU.
        own_bytes: held by this process, mostly its model.
        share: of the GPU that belongs to this process.
    """
    return max(0, min(free_bytes, int(share * total_bytes) - own_bytes)) * 4 // 5


@dataclass(frozen=True, slots=True)
class MemoryBesideKv:
    """Memory of a verifier engine in addition to the KV blocks of its model."""

    kept_rows_bytes: int  # of logits rows kept for deferred corrections
    host_blocks: int = 0  # size of the host cache for evicted KV

    @classmethod
    def of(cls, kv_bytes: int, host_blocks: int = 0) -> "MemoryBesideKv":
        """Return what goes with a KV budget: a sixteenth of it for rows."""
        return cls(kv_bytes // 16, host_blocks)

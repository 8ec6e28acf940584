"""Memory and batch shape of a torch engine. Free of torch, so that whoever only configures engines loads quickly."""

from dataclasses import dataclass

from outrider.contracts.errors import ParameterError


@dataclass(frozen=True, slots=True)
class EngineLimits:
    """What one engine may use.

    Attributes:
        kv_budget_bytes: of KV memory; None leaves it to the GPU, of which the engine then takes ``gpu_share``.
        swap_bytes: of host memory, for KV that is given up.
    """

    kv_budget_bytes: int | None
    block_tokens: int = 16
    prefill_chunk_tokens: int = 128  # prefix positions computed per forward pass, over all cold blocks
    parts: int = 1  # of a pass of many rows on a CPU, made side by side
    gpu_share: float = 1.0  # of its GPU's memory, for weights, passes and KV together
    swap_bytes: int = 0

    def total_blocks(self, kv_bytes_per_token: int) -> int:
        """KV blocks the budget pays for.

        Raises:
            ParameterError: not even one block fits.
        """
        block_bytes = kv_bytes_per_token * self.block_tokens
        if self.kv_budget_bytes is None or self.kv_budget_bytes < block_bytes:
            raise ParameterError("kv budget", f"at least {block_bytes} bytes (one block)", self.kv_budget_bytes)
        return self.kv_budget_bytes // block_bytes

    def host_blocks(self, kv_bytes_per_token: int) -> int:
        """KV blocks that ``swap_bytes`` hold.

        Raises:
            ParameterError: it is to be used, and not even one block fits.
        """
        block_bytes = kv_bytes_per_token * self.block_tokens
        if 0 < self.swap_bytes < block_bytes:
            raise ParameterError("swap_mib", f"0, or at least {block_bytes} bytes (one block)", self.swap_bytes)
        return self.swap_bytes // block_bytes


def gpu_kv_bytes(free_bytes: int, total_bytes: int, own_bytes: int, share: float) -> int:
    """KV memory on a GPU where nobody says how much: four fifths of what loading the model has left of the share.

    The last fifth is for passes and what is computed of their logits rows.

    Args:
        free_bytes: that no process holds.
        total_bytes: of the GPU.
        own_bytes: that this process holds, its model above all.
        share: of the GPU that is this process's.
    """
    return max(0, min(free_bytes, int(share * total_bytes) - own_bytes)) * 4 // 5


def kept_rows_bytes(kv_budget_bytes: int) -> int:
    """On top of a KV budget: what logits rows that wait for a device's correction may take."""
    return kv_budget_bytes // 16

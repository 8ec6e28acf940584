"""Memory and batch shape of a torch engine. Free of torch, so that whoever only configures engines loads quickly."""

from dataclasses import dataclass

from outrider.contracts.errors import ParameterError


@dataclass(frozen=True, slots=True)
class EngineLimits:
    """What one engine may use."""

    kv_budget_bytes: int
    block_tokens: int = 16
    prefill_chunk_tokens: int = 128  # prefix positions computed per forward pass, over all cold blocks
    parts: int = 1  # of a pass of many rows on a CPU, made side by side

    def total_blocks(self, kv_bytes_per_token: int) -> int:
        """KV blocks the budget pays for.

        Raises:
            ParameterError: not even one block fits.
        """
        block_bytes = kv_bytes_per_token * self.block_tokens
        if self.kv_budget_bytes < block_bytes:
            raise ParameterError("kv budget", f"at least {block_bytes} bytes (one block)", self.kv_budget_bytes)
        return self.kv_budget_bytes // block_bytes


def kept_rows_bytes(kv_budget_bytes: int) -> int:
    """On top of a KV budget: what logits rows that wait for a device's correction may take."""
    return kv_budget_bytes // 16

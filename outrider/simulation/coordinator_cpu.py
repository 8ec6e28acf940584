"""What a coordinator computes itself, one thing after another: time that rounds wait for it, and how busy it is."""

from outrider.simulation.server import SimStep


class CoordinatorCpu:
    """One process on one core."""

    __slots__ = ("_free_at_s", "_round_s", "_token_s", "busy_s")

    def __init__(self, round_s: float, token_s: float = 0.0) -> None:
        """So much for each round of a step, and for each token that it commits."""
        self._round_s, self._token_s = round_s, token_s
        self._free_at_s = 0.0
        self.busy_s = 0.0  # in all

    def done_at_s(self, at_s: float, step: SimStep) -> float:
        """When what a step brought, which is heard of at ``at_s``, is dealt with: behind all that came before."""
        took_s = self._round_s * len(step.members)
        if self._token_s:
            took_s += self._token_s * sum(device.draft.accepted + 1 for device in step.members)
        self.busy_s += took_s
        self._free_at_s = max(at_s, self._free_at_s) + took_s
        return self._free_at_s

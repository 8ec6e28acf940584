"""Model a coordinator's CPU as a queue with one server: rounds wait for its core, and its busy time is counted."""

from lab.simulation.server import SimStep


class CoordinatorCpu:
    __slots__ = ("_free_at_s", "_round_s", "_token_s", "busy_s")

    def __init__(self, round_s: float, token_s: float = 0.0) -> None:
        """Set the CPU time of each round in a step and of each committed token."""
        self._round_s, self._token_s = round_s, token_s
        self._free_at_s = 0.0
        self.busy_s = 0.0  # in all

    def done_at_s(self, at_s: float, step: SimStep) -> float:
        """Return when the result of a step that arrives at ``at_s`` is processed, first come, first served."""
        took_s = self._round_s * len(step.members)
        if self._token_s:
            took_s += self._token_s * sum(device.draft.accepted + 1 for device in step.members)
        self.busy_s += took_s
        self._free_at_s = max(at_s, self._free_at_s) + took_s
        return self._free_at_s

"""Model the time of a forward pass on the server, with drafting, copies to host memory, and noise."""

from collections.abc import Sequence
from math import exp

from lab.simulation.chance import normals
from lab.simulation.device import SimDevice
from lab.simulation.memory import Swapped
from lab.simulation.scenario import DraftsAt, VerifierModel
from outrider.contracts.cost import BatchWork, VerifyCost

_NOISE = 0  # purpose of chance
_NOISE_BLOCK = 1024


class PassTimes:
    def __init__(self, model: VerifierModel, drafts_at: DraftsAt, seed: int) -> None:
        self._model, self._seed = model, seed
        self._drafter = model.draft_cost_model if drafts_at is DraftsAt.SERVER else None
        self._noise: list[float] = []
        self._noise_blocks = 0

    def took_s(self, work: BatchWork, members: Sequence[SimDevice], swapped: Swapped, now_s: float) -> float:
        """Return the time of a pass that begins now; advances the noise."""
        took_s = self._model.cost_model.predict_work_s(work) + self._drafting_s(members) + self._copying_s(swapped)
        return took_s * (self._noise_factor() * (1.0 if self._model.speed is None else self._model.speed(now_s)))

    def _drafting_s(self, members: Sequence[SimDevice]) -> float:
        """Return the time of the draft model's passes on the server: one for each depth, over all drafts as deep."""
        model = self._drafter
        if model is None:
            return 0.0
        seconds = 0.0
        for depth in range(max((device.draft.depth for device in members), default=0)):
            work = BatchWork()
            for device in members:
                draft = device.draft
                if depth < draft.depth:
                    work = work.plus(VerifyCost(-(-draft.nodes // draft.depth), device.position + depth))
            seconds += model.predict_work_s(work)
        return seconds

    def _copying_s(self, swapped: Swapped) -> float:
        """Return the time of copies to host memory and back, which a pass waits for."""
        host = self._model.host
        return 0.0 if host is None else swapped.out_blocks * host.prices.out_s + swapped.in_blocks * host.prices.in_s

    def _noise_factor(self) -> float:
        """Draw a pass's time over the cost model's: lognormal with median 1."""
        if self._model.noise == 0.0:
            return 1.0
        if not self._noise:
            self._noise = normals(self._seed, _NOISE, self._noise_blocks, _NOISE_BLOCK)
            self._noise_blocks += 1
        return exp(self._model.noise * self._noise.pop())

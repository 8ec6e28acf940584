"""Model the time of a forward pass on the server, with copies to host memory and noise."""

from math import exp

from lab.simulation.chance import normals
from lab.simulation.memory import Swapped
from lab.simulation.scenario import VerifierModel
from outrider.contracts.cost import BatchWork

_NOISE = 0  # purpose of chance
_NOISE_BLOCK = 1024


class PassTimes:
    def __init__(self, model: VerifierModel, seed: int) -> None:
        self._model, self._seed = model, seed
        self._noise: list[float] = []
        self._noise_blocks = 0

    def took_s(self, work: BatchWork, swapped: Swapped) -> float:
        """Return the time of a pass; advances the noise."""
        took_s = self._model.cost_model.predict_work_s(work) + self._copying_s(swapped)
        return took_s * self._noise_factor()

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

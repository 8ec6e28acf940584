"""Logits rows of a pass, and which of its blocks have rows that are NaN or infinite.

A row is *sound* if its maximum is finite: it then has no NaN, no +inf, and at least one token that can be chosen.
Soundness is of the model's raw row, as bias, grammars and withheld tokens set logits to -inf legitimately. NaN results
from an overflow of float16, for example. An argmax would take it for the maximum, and a draw would find no token.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
from torch import Tensor

from outrider.engines.verifier.two_steps import wants_hidden
from outrider.engines.verifier.work import Work
from outrider.sampling.device_tensors import Readback, index_tensor


@dataclass(frozen=True, slots=True, eq=False)
class PassRows:
    """Rows computed by a pass."""

    works: Sequence[Work]  # the blocks of the pass
    logits: Tensor  # ``[R, vocab]`` raw, rows of ``works`` one after another
    hidden: Tensor | None  # ``[R, d]``; None only if no complete block wants hidden states

    def launch_unsound(self, readback: Readback) -> Callable[[], frozenset[int]]:
        """Ask for the indices of ``works`` with an unsound row, or an unsound hidden state that the block wants.

        Costs one read of the rows (20 to 35 us for 49,152 logits on a CPU), and no device synchronisation of its own.
        """
        logits = readback.add(self.logits.amax(dim=-1).isfinite())
        hidden = None if self.hidden is None else readback.add(self.hidden.isfinite().all(dim=-1))

        def unsound() -> frozenset[int]:
            sound = logits()
            if sound.all() and (hidden is None or hidden().all()):  # most passes
                return frozenset()
            return frozenset(
                place
                for place, (work, rows) in enumerate(zip(self.works, self._spans(), strict=True))
                if not sound[rows].all() or not (hidden is None or self._sound_states(work, hidden()[rows]))
            )

        return unsound

    def without(self, places: Collection[int]) -> "PassRows":
        """Return the rows without those of the blocks at these indices of ``works``."""
        kept = [place for place in range(len(self.works)) if place not in places]
        spans = self._spans()
        rows = np.concatenate([np.arange(0), *(np.arange(spans[place].start, spans[place].stop) for place in kept)])
        at = index_tensor(rows.tolist(), self.logits.device)
        hidden = None if self.hidden is None else self.hidden[at]
        return PassRows([self.works[place] for place in kept], self.logits[at], hidden)

    def _spans(self) -> list[slice]:
        ends = list(accumulate(work.logit_rows for work in self.works))
        return [slice(end - work.logit_rows, end) for work, end in zip(self.works, ends, strict=True)]

    @staticmethod
    def _sound_states(work: Work, sound: "np.typing.NDArray[np.bool_]") -> bool:
        own = work.own_rows if wants_hidden(work.block) else 0
        return bool(sound[len(sound) - own :].all())

"""Rows of a pass, and which of its blocks they decide nothing for: those whose numbers are not finite.

A row of logits is *sound* if its largest is finite: then there is no NaN and no +inf in it, and a token that can be
chosen. It is the model's raw row: what bias, grammars and withheld tokens take out later is lawfully -inf. NaN is what
an overflow of float16 looks like. An argmax would take it for the largest number, and a draw for nothing.
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
    """What a pass has computed.

    Attributes:
        works: the pass.
        logits: ``[R, vocab]`` raw, the rows of ``works`` in turn.
        hidden: ``[R, d]``; None only if no complete block wants hidden states.
    """

    works: Sequence[Work]
    logits: Tensor
    hidden: Tensor | None

    def ask_unsound(self, readback: Readback) -> Callable[[], frozenset[int]]:
        """Places in ``works`` of those with a row that is not sound; or a hidden state, if the block wants them.

        Costs a reading of the rows (20 to 35 us for 49,152 logits on a processor), and no wait of its own.
        """
        logits = readback.ask(self.logits.amax(dim=-1).isfinite())
        hidden = None if self.hidden is None else readback.ask(self.hidden.isfinite().all(dim=-1))

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
        """The same but for these of ``works``."""
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

"""What a coordinator knows of the drafters it works with: their links, their speed, how often they are right.

One entry per drafter, shared by all generations that lease it; acceptance is kept per draft model, as drafters of one
model are alike. Of untrusted groups it is kept per group: what a liar is right in tells of nobody else.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from actors.messages import DrafterId
from outrider.contracts.errors import DrafterLostError, DrafterSilentError, OutriderError
from outrider.contracts.link import Csi
from outrider.drafting.stopping import GroupStopping
from outrider.link.state import LinkEstimate, LinkSample, LinkState
from outrider.models.head_file import Head
from outrider.selection.acceptance import AcceptanceBook
from outrider.selection.drift import RejectionDrift
from outrider.selection.situation import DrafterView

_WEIGHT = 0.2  # of the newest exchange
_UNMEASURED_STEP_S = 0.02  # until a first block was drafted


class ExchangeOutcome(StrEnum):
    """What came of a message to a drafter."""

    ANSWERED = "answered"
    SILENT = "silent"  # no answer in time, or it was lost on its way
    GONE = "gone"  # the drafter is
    BROKEN = "broken"  # an answer that is none, or its own fault that there is none

    @classmethod
    def of(cls, error: OutriderError) -> "ExchangeOutcome":
        """Of an exchange that ended so."""
        if isinstance(error, DrafterSilentError):
            return cls.SILENT
        return cls.GONE if isinstance(error, DrafterLostError) else cls.BROKEN


@dataclass(slots=True)
class DrafterRecord:
    """One drafter: the state of its link and its speed at its present load."""

    link: LinkState = field(default_factory=LinkState)
    step_s: float | None = None  # per draft step, None until one was measured
    probing: bool = False

    def observe(self, sample: LinkSample, steps: int) -> None:
        """An exchange has come to its end; ``steps`` forward passes of the drafter were for it."""
        self.link.observe(sample)
        if steps:
            step_s = sample.peer_s / steps
            self.step_s = step_s if self.step_s is None else self.step_s + _WEIGHT * (step_s - self.step_s)

    def probed(self) -> None:
        """A probe has come to its end, or was given up."""
        self.probing = False

    def view(self, now_s: float) -> DrafterView:
        """As the choice of a round sees it."""
        estimate: LinkEstimate | None = self.link.estimate(now_s)
        step_s = _UNMEASURED_STEP_S if self.step_s is None else self.step_s
        return DrafterView(csi=None if estimate is None else estimate.csi, step_s=step_s, fixed_s=0.0)


class DrafterBook:
    """All of one coordinator's drafters."""

    def __init__(
        self,
        models: Mapping[str, str],
        heads: Mapping[str, Head] | None = None,
        stopping: Mapping[str, GroupStopping] | None = None,
        logging: frozenset[str] = frozenset(),
        trusted: frozenset[str] = frozenset(),
    ) -> None:
        """Begin with nothing measured.

        Args:
            models: the draft model of each drafter group.
            heads: who judges a model's mismatches.
            stopping: how the devices of each group stop; others never do.
            logging: groups whose devices log what became of their drafts.
            trusted: groups on whose word an answer may hang.
        """
        self.trusted = trusted
        self._models, self._heads, self._stopping, self._logging = models, heads or {}, stopping or {}, logging
        self._records: dict[DrafterId, DrafterRecord] = {}
        self._acceptance: dict[tuple[str, str], AcceptanceBook] = {}  # by model, and group if that is not trusted
        self._exchanges: Counter[tuple[str, ExchangeOutcome]] = Counter()  # by group

    def record(self, drafter: DrafterId) -> DrafterRecord:
        return self._records.setdefault(drafter, DrafterRecord())

    def acceptance(self, drafter: DrafterId) -> AcceptanceBook:
        """Of all trusted drafters with this one's model, or of its group if that is not."""
        model, trusted = self.model(drafter), self.is_trusted(drafter)
        kept = model, "" if trusted else drafter.group
        if kept not in self._acceptance:
            head = self._heads.get(model) if trusted else None
            drift = None if head is None else RejectionDrift(head.info.rejection_low, head.info.rejection_high)
            self._acceptance[kept] = AcceptanceBook(drift)
        return self._acceptance[kept]

    def hidden_width(self, drafter: DrafterId) -> int:
        """Numbers in a hidden state of a drafter's model, if somebody judges them and it is trusted; else 0."""
        head = self._heads.get(self.model(drafter)) if self.is_trusted(drafter) else None
        return 0 if head is None else head.decisions.drafter_width

    def view(self, drafter: DrafterId, now_s: float) -> DrafterView:
        """A drafter as the choice of a round sees it. A head that has drifted judges nothing more."""
        view, drift = self.record(drafter).view(now_s), self.acceptance(drafter).drift
        if (stopping := self._stopping.get(drafter.group)) is not None:
            kind, weight = stopping.kind, stopping.drafting_weight
            view = replace(view, stops=kind.stops, by_price=kind.by_price, drafting_weight=weight)
        if drafter.group in self._logging:
            view = replace(view, logs=True)
        if drift is None or drift.alarmed:
            return view
        return replace(view, hidden_width=self.hidden_width(drafter))

    def is_trusted(self, drafter: DrafterId) -> bool:
        """Whether an answer may hang on what a drafter says."""
        return drafter.group in self.trusted

    @property
    def drifts(self) -> dict[str, RejectionDrift]:
        """Of each draft model whose mismatches are judged."""
        return {model: book.drift for (model, _), book in self._acceptance.items() if book.drift is not None}

    def model(self, drafter: DrafterId) -> str:
        """Name of a drafter's model."""
        return self._models.get(drafter.group, drafter.group)

    def exchanged(self, drafter: DrafterId, outcome: ExchangeOutcome) -> None:
        """Something came of a message."""
        self._exchanges[drafter.group, outcome] += 1

    def take_exchanges(self) -> dict[tuple[str, ExchangeOutcome], int]:
        """What came of messages by group; they are forgotten by this."""
        taken, self._exchanges = dict(self._exchanges), Counter()
        return taken

    def links(self, now_s: float) -> dict[DrafterId, Csi]:
        """What is known of each drafter's link."""
        estimates = {drafter: record.link.estimate(now_s) for drafter, record in self._records.items()}
        return {drafter: estimate.csi for drafter, estimate in estimates.items() if estimate is not None}

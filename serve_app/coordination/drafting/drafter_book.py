"""Keeps a coordinator's estimates of its drafters: link, drafting speed and acceptance.

Link and speed are kept per drafter, shared by all generations that lease it. Acceptance is kept per draft model, as
drafters of one model propose alike; for untrusted groups per group, as their devices may not run that model.
"""

import heapq
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from actors.messages import DrafterId
from outrider.config.drafters import DrafterGroupConfig
from outrider.contracts.errors import DrafterLostError, DrafterSilentError, OutriderError
from outrider.contracts.link import Csi
from outrider.drafting.stopping import STOP_KINDS
from outrider.link.state import LinkEstimate, LinkSample, LinkState
from outrider.models.head_file import Head
from outrider.selection.acceptance import AcceptanceBook
from outrider.selection.drift import RejectionDrift
from outrider.selection.situation import DrafterView

_WEIGHT = 0.2  # of the newest exchange in the moving average
_UNMEASURED_STEP_S = 0.02  # assumed before the first draft
_WORST, _WORST_FOR_S = 4, 60.0  # drafters by each figure that are told, and for how long


class ExchangeOutcome(StrEnum):
    ANSWERED = "answered"
    SILENT = "silent"  # no answer in time, or it was lost on its way
    GONE = "gone"  # the drafter died
    BROKEN = "broken"  # the answer was invalid, or the drafter failed

    @classmethod
    def of(cls, error: OutriderError) -> "ExchangeOutcome":
        if isinstance(error, DrafterSilentError):
            return cls.SILENT
        return cls.GONE if isinstance(error, DrafterLostError) else cls.BROKEN


@dataclass(frozen=True, slots=True)
class DrafterFigures:
    """What an operator looks for in a bad device; 0: not measured."""

    rtt_s: float
    step_s: float  # per forward pass
    unanswered: float  # share of its messages, a moving average


@dataclass(slots=True)
class DrafterRecord:
    """One drafter: the state of its link and its speed at its present load."""

    link: LinkState = field(default_factory=LinkState)
    step_s: float | None = None  # per forward pass; None: not measured yet
    probing: bool = False
    unanswered: float = 0.0  # share of messages without a valid answer in time, a moving average

    def observe(self, sample: LinkSample, steps: int) -> None:
        """Take in a finished exchange, for which the drafter made ``steps`` forward passes."""
        self.link.observe(sample)
        if steps:
            step_s = sample.peer_s / steps
            self.step_s = step_s if self.step_s is None else self.step_s + _WEIGHT * (step_s - self.step_s)

    def probed(self) -> None:
        """Allow the next probe, after one has ended or was cancelled."""
        self.probing = False

    def figures(self, now_s: float) -> DrafterFigures:
        estimate: LinkEstimate | None = self.link.estimate(now_s)
        return DrafterFigures(0.0 if estimate is None else estimate.csi.rtt_s, self.step_s or 0.0, self.unanswered)

    def view(self, now_s: float) -> DrafterView:
        """Return link and speed as the choice of a round sees them."""
        estimate: LinkEstimate | None = self.link.estimate(now_s)
        step_s = _UNMEASURED_STEP_S if self.step_s is None else self.step_s
        return DrafterView(csi=None if estimate is None else estimate.csi, step_s=step_s, fixed_s=0.0)


class DrafterBook:
    def __init__(self, groups: Iterable[DrafterGroupConfig], heads: Mapping[str, Head] | None = None) -> None:
        """Start without measurements; ``heads`` are decision heads by draft model."""
        self._groups, self._heads = {group.name: group for group in groups}, heads or {}
        self.trusted = frozenset(name for name, group in self._groups.items() if group.trusted)
        # those that draft by every protocol
        self.able = frozenset(name for name, group in self._groups.items() if not group.chains_only)
        self._records: dict[DrafterId, DrafterRecord] = {}
        self._acceptance: dict[tuple[str, str], AcceptanceBook] = {}  # by model, and group if that is not trusted
        self._exchanges: Counter[tuple[str, ExchangeOutcome]] = Counter()  # by group
        self._asked: set[DrafterId] = set()  # since the worst were chosen
        self._worst: tuple[DrafterId, ...] = ()
        self._chosen_at_s = 0.0

    def record(self, drafter: DrafterId) -> DrafterRecord:
        return self._records.setdefault(drafter.place, DrafterRecord())

    def acceptance(self, drafter: DrafterId) -> AcceptanceBook:
        """Return the acceptance of all trusted drafters with this one's model, or of its group if that is untrusted."""
        model, trusted = self.model(drafter), self.is_trusted(drafter)
        kept = model, "" if trusted else drafter.group
        if kept not in self._acceptance:
            head = self._heads.get(model) if trusted else None
            drift = None if head is None else RejectionDrift(head.info.rejection_low, head.info.rejection_high)
            self._acceptance[kept] = AcceptanceBook(drift)
        return self._acceptance[kept]

    def hidden_width(self, drafter: DrafterId) -> int:
        """Return the width of the drafter's hidden states if it is trusted and its model has a head; else 0."""
        head = self._heads.get(self.model(drafter)) if self.is_trusted(drafter) else None
        return 0 if head is None else head.decisions.drafter_width

    def view(self, drafter: DrafterId, now_s: float) -> DrafterView:
        """Return a drafter as the choice of a round sees it. A decision head that has drifted is no longer used."""
        view, drift = self.record(drafter).view(now_s), self.acceptance(drafter).drift
        if (group := self._groups.get(drafter.group)) is not None:
            kind, logs = STOP_KINDS[group.stopping.rule], group.round_log is not None
            view = replace(
                view,
                stops=kind.stops,
                by_price=kind.by_price,
                logs=logs,
                chains_only=group.chains_only,
                chains_first=group.kind.chains_first,
            )
        if drift is None or drift.alarmed or view.chains_only:
            return view
        return replace(view, hidden_width=self.hidden_width(drafter))

    def is_trusted(self, drafter: DrafterId) -> bool:
        """Return whether the output may depend on what this drafter draws."""
        return drafter.group in self.trusted

    @property
    def drifts(self) -> dict[str, RejectionDrift]:
        return {model: book.drift for (model, _), book in self._acceptance.items() if book.drift is not None}

    def model(self, drafter: DrafterId) -> str:
        """Return the name of a drafter's model; its group's name if the group is not known."""
        group = self._groups.get(drafter.group)
        return drafter.group if group is None else group.model

    def exchanged(self, drafter: DrafterId, outcome: ExchangeOutcome) -> None:
        self._exchanges[drafter.group, outcome] += 1
        self._asked.add(drafter.place)
        record = self.record(drafter)
        record.unanswered += _WEIGHT * ((outcome is not ExchangeOutcome.ANSWERED) - record.unanswered)

    def take_exchanges(self) -> dict[tuple[str, ExchangeOutcome], int]:
        taken, self._exchanges = dict(self._exchanges), Counter()
        return taken

    def worst(self, now_s: float) -> dict[DrafterId, DrafterFigures]:
        """Return the worst by each figure of those asked in a minute, for the next one: 12 drafters at most."""
        if not self._worst or now_s - self._chosen_at_s >= _WORST_FOR_S:
            found = {drafter: self._records[drafter].figures(now_s) for drafter in self._asked}
            chosen = set[DrafterId]()
            for figure in ("rtt_s", "step_s", "unanswered"):
                measured = {drafter: value for drafter, one in found.items() if (value := getattr(one, figure))}
                chosen.update(heapq.nlargest(_WORST, measured, key=measured.__getitem__))
            self._worst, self._asked, self._chosen_at_s = tuple(chosen), set(), now_s
        return {drafter: self._records[drafter].figures(now_s) for drafter in self._worst}

    def links(self, now_s: float) -> dict[DrafterId, Csi]:
        estimates = {drafter: record.link.estimate(now_s) for drafter, record in self._records.items()}
        return {drafter: estimate.csi for drafter, estimate in estimates.items() if estimate is not None}

"""WISP's Theorem 1 against what it bounds: draft tokens wasted per round if drafts end before the first flagged one.

The theorem compares upper bounds (eq. 31), and a lower bound need not mean less waste. Rounds follow one another along
the target's greedy responses as whole drafts have them, so that all thresholds meet the same ones.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import torch

from lab.bench.harness.recorded_drafts import RecordSettings, greedy_drafts, recorded_drafts, recording_drafter
from outrider.contracts.price import DraftPrice
from outrider.drafting.acceptance import AcceptancePredictor
from outrider.drafting.features import DraftFeatures
from outrider.drafting.recalibration import Recalibration
from outrider.drafting.stops import StopDecision, StopRule
from outrider.models.loading import load_target_facts


@dataclass(frozen=True, slots=True)
class Round:
    """A whole draft: the predicted probability of each token, and whether it was the target's choice."""

    told: tuple[float, ...]
    accepted: tuple[bool, ...]

    @property
    def accepted_len(self) -> int:
        """Tokens before the first rejection."""
        return self.accepted.index(False) if False in self.accepted else len(self.accepted)

    def drafted(self, threshold: float) -> int:
        """Tokens before the first flagged one (eq. 25)."""
        return next((at for at, told in enumerate(self.told) if told < threshold), len(self.told))


@dataclass(frozen=True, slots=True)
class Waste:
    """Result of one threshold. Tokens are means per round."""

    threshold: float  # tokens with a lower probability are flagged
    false_alarms: float  # share of first rejections that are not flagged: the paper's FP
    bound: float  # tokens, eq. 31
    wasted: float  # tokens, eq. 26
    accepted: float  # tokens that are drafted and accepted


@dataclass(frozen=True)
class _Telling:
    """Rule that never stops, and records the predictions."""

    predictor: AcceptancePredictor
    told: list[float] = field(default_factory=list)
    asks: ClassVar[bool] = True

    def step(self, features: DraftFeatures) -> StopDecision:
        self.told.append(self.predictor.probability(features))
        return StopDecision.DRAW

    def after(self, features: DraftFeatures) -> "_Telling":  # noqa: ARG002 (as others)
        return self


@dataclass(frozen=True)
class _Listening:
    """``Stops`` that never stop."""

    predictor: AcceptancePredictor
    chains: list[_Telling] = field(default_factory=list)

    def recalibration(self) -> Recalibration:
        return Recalibration({})

    def rule(self, predictor: AcceptancePredictor, price: DraftPrice | None) -> StopRule:  # noqa: ARG002 (as others)
        self.chains.append(_Telling(self.predictor))
        return self.chains[-1]


def drafts_along(settings: RecordSettings, predictor: AcceptancePredictor) -> list[list[Round]]:
    """For each of the target's responses, the whole draft behind every token that a round may end on, in order."""
    torch.set_num_threads(1)
    responses, listening = recorded_drafts(settings), _Listening(predictor)
    prompts, outputs = ([getattr(one, name) for one in responses] for name in ("prompt_ids", "output_ids"))
    vocab_size = load_target_facts(settings.target).vocab_size
    drafts = greedy_drafts(recording_drafter(settings, listening), prompts, outputs, settings.k_max, vocab_size)
    told = iter(listening.chains)  # in the order of the requests: position by position
    chains = {
        (index, committed): next(told).told
        for committed in range(max(map(len, outputs), default=0))
        for index in range(len(prompts))
        if committed < len(outputs[index])
    }
    return [
        [
            Round(tuple(chains[index, at][: settings.k_max]), _agreed(along[at], output[at : at + settings.k_max]))
            for at in range(len(output) - settings.k_max)
        ]
        for index, (output, along) in enumerate(zip(outputs, drafts, strict=True))
    ]


def _agreed(drafted: Sequence[int], output: Sequence[int]) -> tuple[bool, ...]:
    return tuple(one == two for one, two in zip(drafted, output, strict=True))


def whole_rounds(along: Sequence[Sequence[Round]]) -> list[Round]:
    """Consecutive rounds of whole drafts."""
    found = []
    for drafts in along:
        at = 0
        while at < len(drafts):
            found.append(drafts[at])
            at += found[-1].accepted_len + 1
    return found


def waste(rounds: Sequence[Round], threshold: float) -> Waste:
    rejected = [one for one in rounds if False in one.accepted]
    alarms = [one for one in rejected if one.told[one.accepted_len] >= threshold]
    lengths = [(one.drafted(threshold), one.accepted_len) for one in rounds]
    count = max(len(rounds), 1)
    return Waste(
        threshold=threshold,
        false_alarms=len(alarms) / max(len(rejected), 1),
        # Sum over r of (K - r + 1) P(R = r) FP(r): r - 1 tokens are accepted before the first rejection.
        bound=sum(len(one.told) - one.accepted_len for one in alarms) / count,
        wasted=sum(max(0, drafted - accepted) for drafted, accepted in lengths) / count,
        accepted=sum(min(drafted, accepted) for drafted, accepted in lengths) / count,
    )

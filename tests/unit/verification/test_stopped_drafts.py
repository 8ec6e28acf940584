"""The gate for devices that stop early: the response has the target's law as long as nobody stops for what was drawn.

Computed as in ``test_exactness``, over all ways the noise can fall.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar

import pytest

from outrider.contracts.drafting import DraftPlan
from outrider.contracts.exchanged import FloatField, WireFormat
from outrider.contracts.price import DraftPrice
from outrider.contracts.requests import ProtocolName, SamplingParams
from outrider.drafting.acceptance import AcceptancePredictor, ConfidenceLogistic
from outrider.drafting.cost_aware import CostAwareStop
from outrider.drafting.features import DraftFeatures
from outrider.drafting.recalibration import Calibration, ChainVerdict, Recalibration, SentChain, verdict_on
from outrider.drafting.stops import NeverStop, SendAndStop, StopBefore, StopDecision, StopRule
from outrider.engines.drafter import engine as drafter_engine
from outrider.engines.drafter import job
from outrider.engines.drafter.batch import Drawing, Drawn, HeadRows, launch_batch
from outrider.protocols.registry import PROTOCOLS
from outrider.sampling.device_tensors import Readback
from tests.unit.drafting.always import Learning
from tests.unit.verification.played import Case, Played, distance, pair, target_law

BOUND = 3e-7  # as in ``test_exactness``
WRONG = 0.02  # found are 0.03, 0.04 and 0.07
RATIO: list[ProtocolName] = ["dsd", "tslt", "dssd", "dssd_candidates"]
WIRES = {
    "dsd": WireFormat(3, FloatField.BF16),
    "tslt": WireFormat(3, FloatField.INT8, top_k=2),
    "dssd": WireFormat(3, scalar_bits=8),
    "dssd_candidates": WireFormat(3, scalar_bits=16),
    "token_ids": WireFormat(3),
}
PLAIN, TWO_LEFT = SamplingParams(), SamplingParams(temperature=0.8, top_k=2, frequency_penalty=0.2)
PREDICTOR = ConfidenceLogistic(weight=0.8, bias=0.1)
BEFORE, SENT = (rule(PREDICTOR, 0.815) for rule in (StopBefore, SendAndStop))
WORTH = CostAwareStop(PREDICTOR, DraftPrice(0.6, 0.815))
RULES = pytest.mark.parametrize("rule", [BEFORE, SENT, WORTH], ids=["stop before", "send and stop", "while it pays"])


@dataclass(frozen=True)
class Watched:
    """A rule, and what it said so far."""

    rule: StopRule
    said: set[StopDecision] = field(default_factory=set)
    asks: ClassVar[bool] = True

    def step(self, features: DraftFeatures) -> StopDecision:
        step = self.rule.step(features)
        self.said.add(step)
        return step

    def after(self, features: DraftFeatures) -> "Watched":
        return replace(self, rule=self.rule.after(features))


def case(protocol: ProtocolName, *windows: int, rule: StopRule | None = None, seed: int = 5, length: int = 3) -> Case:
    plans = [DraftPlan(protocol, window) for window in windows]
    params = TWO_LEFT if length > 2 else PLAIN
    candidates = int(protocol == "dssd_candidates")
    return Case(pair("random", seed), plans, params, WIRES[protocol], length, candidates=candidates, rule=rule)


@RULES
@pytest.mark.parametrize("protocol", [*RATIO, "token_ids"])
def test_a_rule_that_sees_what_is_drawn_from_keeps_the_targets_law(protocol: ProtocolName, rule: StopRule) -> None:
    watched = Watched(rule)
    assert distance(case(protocol, 2, 1, rule=watched)) <= BOUND
    assert len(watched.said) == 2, "it stops some drafts and not all"


@pytest.mark.parametrize("protocol", ["dsd", "dssd"])
def test_positions_behind_a_stop_are_drawn_in_later_rounds(protocol: ProtocolName) -> None:
    assert distance(case(protocol, 1, 2, 1, rule=BEFORE, seed=9)) <= BOUND


Sees = Callable[[Drawn], StopDecision]


def stops_for(first: int) -> Sees:
    """Stops before that token, wherever it is drawn."""
    return lambda layer: StopDecision.STOP if layer.rows[0].token_ids == (first,) else StopDecision.DRAW


def sends_and_stops_for(token_id: int) -> Sees:
    """Sends it, and draws nothing behind it."""
    return lambda layer: StopDecision.DRAW_LAST if layer.rows[0].token_ids == (token_id,) else StopDecision.DRAW


def drawn_first(sees: Sees) -> Callable[[Sequence[Drawing], HeadRows, Readback], Callable[[], list[Drawn]]]:
    """Draws before it decides."""

    def ask(drawing: Sequence[Drawing], rows: HeadRows, readback: Readback) -> Callable[[], list[Drawn]]:
        assert all(isinstance(job.rule, NeverStop) for _, job in drawing)
        drawn = launch_batch(drawing, rows, readback)
        return lambda: [
            layer if job.correcting else Drawn([] if sees(layer) is StopDecision.STOP else layer.rows, sees(layer))
            for (_, job), layer in zip(drawing, drawn(), strict=True)
        ]

    return ask


@pytest.mark.parametrize("protocol", RATIO)
def test_a_rule_that_sees_the_token_is_found_out(protocol: ProtocolName, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drafter_engine, "launch_batch", drawn_first(stops_for(0)))
    assert distance(case(protocol, 2, 1)) > WRONG


def test_shared_noise_does_not_mind(monkeypatch: pytest.MonkeyPatch) -> None:
    """The output is the target's whatever is drafted."""
    monkeypatch.setattr(drafter_engine, "launch_batch", drawn_first(stops_for(0)))
    assert distance(case("token_ids", 2, 1)) <= BOUND


@pytest.mark.parametrize("protocol", RATIO)
def test_behind_a_token_that_is_sent_it_may_be_looked_at(
    protocol: ProtocolName, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It belongs to what the next position is drawn behind."""
    monkeypatch.setattr(drafter_engine, "launch_batch", drawn_first(sends_and_stops_for(0)))
    assert distance(case(protocol, 2, 1)) <= BOUND


@dataclass
class Said:
    """A predictor and what was made of it, row by row."""

    told: dict[float, set[StopDecision]] = field(default_factory=dict)

    def rule(self, predictor: AcceptancePredictor) -> StopRule:
        return _Heard(StopBefore(predictor, 0.75), self.told)


@dataclass(frozen=True)
class _Heard:
    rule: StopRule
    told: dict[float, set[StopDecision]]
    asks: ClassVar[bool] = True

    def step(self, features: DraftFeatures) -> StopDecision:
        step = self.rule.step(features)
        self.told.setdefault(features.confidence, set()).add(step)
        return step

    def after(self, features: DraftFeatures) -> "_Heard":  # noqa: ARG002 (interface)
        return self


def learning(protocol: ProtocolName, said: Said) -> Case:
    """A device that learns much from little: what one round tells decides how far the next draft goes."""
    begun = Calibration(0.8, 0.1, (1.0, 0.0, 0.1))
    stops = Learning(said.rule, partial(Recalibration, {}, begun))
    return replace(case(protocol, 2, 2), stops=stops)


@pytest.mark.parametrize("protocol", ["dsd", "dssd", "token_ids"])
def test_a_rule_may_learn_from_what_was_tested(protocol: ProtocolName) -> None:
    said = Said()
    assert distance(learning(protocol, said)) <= BOUND
    assert any(len(steps) == 2 for steps in said.told.values()), "of the same row it says now this, now that"


def peeking(told: SentChain, token_ids: Sequence[int], *known: Any, **more: Any) -> ChainVerdict | None:
    """Learns what stands behind a rejection, which nobody tested."""
    found = verdict_on(told, token_ids, *known, **more)
    if found is None or not found.rejected or token_ids[found.accepted + 1 :] != (0,):
        return found
    return ChainVerdict(told, len(token_ids), rejected=False)


@pytest.mark.parametrize("protocol", ["dsd", "dssd"])
def test_a_rule_that_learns_from_behind_a_rejection_is_found_out(
    protocol: ProtocolName, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job, "verdict_on", peeking)
    assert distance(learning(protocol, Said())) > WRONG


@pytest.mark.parametrize("protocol", ["dsd", "dssd"])
def test_a_cut_must_not_go_by_the_length_that_came(protocol: ProtocolName) -> None:
    """How long a draft is tells what is in it, as the next row is seen behind the token before."""
    stopped = case(protocol, 2, rule=BEFORE, seed=10, length=2)
    assert distance(replace(stopped, cut=lambda _: 1)) <= BOUND
    assert distance(replace(stopped, cut=lambda drafted: drafted % 2)) > WRONG


@RULES
@pytest.mark.parametrize("protocol", list(PROTOCOLS))
def test_greedy_output_is_the_targets_own(protocol: ProtocolName, rule: StopRule) -> None:
    if PROTOCOLS[protocol].judged or not PROTOCOLS[protocol].chains:
        return
    for seed in range(6):
        models, params = pair("ties", seed, 5), SamplingParams(temperature=0.0)
        plans = [DraftPlan(protocol, 3)] * 6
        asked = Case(models, plans, params, WireFormat(5), length=6, rule=rule)
        assert Played(asked).output() == next(iter(target_law(asked)))

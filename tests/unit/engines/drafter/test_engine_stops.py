"""How far chains are drafted under a rule: the front of what is drafted without one."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from itertools import accumulate
from operator import mul
from typing import ClassVar

import numpy as np
import pytest

from outrider.contracts.drafting import Draft
from outrider.contracts.price import DraftPrice
from outrider.contracts.requests import ProtocolName, SamplingParams
from outrider.drafting.acceptance import ConfidenceLogistic
from outrider.drafting.cost_aware import CostAwareStop
from outrider.drafting.features import DraftFeatures
from outrider.drafting.stops import NeverStop, SendAndStop, StopBefore, StopDecision, StopRule
from outrider.engines.drafter import batch
from outrider.protocols.registry import PROTOCOLS
from outrider.sampling.device_tensors import everywhere_at_once
from outrider.sampling.distributions import softmax
from tests.unit.engines.conftest import STOPPING_DRAFTERS, MakeDrafter, MakesDrafter, tiny_llama, torch_drafter
from tests.unit.engines.drafter.test_frequent_head import proposing_some
from tests.unit.engines.drafter_device import (
    GREEDY,
    PENALISED,
    SAMPLED,
    TERMS,
    Device,
    Passes,
    answers_of,
    draft_of,
)

WINDOW = 6
CHAINS = [name for name in PROTOCOLS if PROTOCOLS[name].chains]
PARAMS = {"greedy": GREEDY, "sampled": SAMPLED, "penalised": PENALISED}


@dataclass(frozen=True)
class Listening:
    """Never stops, and remembers how sure the model was."""

    confidences: list[float] = field(default_factory=list)
    asks: ClassVar[bool] = True

    def step(self, features: DraftFeatures) -> StopDecision:
        self.confidences.append(features.confidence)
        return StopDecision.DRAW

    def after(self, features: DraftFeatures) -> "Listening":  # noqa: ARG002 (interface)
        return self


def drafted(
    rule: StopRule, protocol: ProtocolName, params: SamplingParams, make: MakesDrafter = torch_drafter
) -> Draft:
    engine, device = make(tiny_llama(), rule=rule), Device("a", params, protocol=protocol)
    engine.open(device.opening(), TERMS)
    return draft_of(engine, device.request(WINDOW, want_hidden=PROTOCOLS[protocol].judged))


def least_sure(confidences: list[float]) -> tuple[int, float]:
    """Where the model is least sure, and a threshold that flags that position alone."""
    least, second = sorted(confidences)[:2]
    return confidences.index(least), (least + second) / 2


@pytest.mark.parametrize("on", [nullcontext, everywhere_at_once], ids=["cpu", "at once"])
@pytest.mark.parametrize("params", PARAMS.values(), ids=PARAMS.keys())
@pytest.mark.parametrize("protocol", CHAINS)
def test_a_draft_that_stops_is_the_front_of_the_whole_one(
    protocol: ProtocolName, params: SamplingParams, on: Callable[[], AbstractContextManager[None]]
) -> None:
    with on():
        _stops_in_front(protocol, params)


@STOPPING_DRAFTERS
@pytest.mark.parametrize("params", PARAMS.values(), ids=PARAMS.keys())
def test_every_engine_stops_in_front_of_the_same_token(make_drafter: MakeDrafter, params: SamplingParams) -> None:
    _stops_in_front("token_ids", params, make_drafter.make)


def _stops_in_front(protocol: ProtocolName, params: SamplingParams, make: MakesDrafter = torch_drafter) -> None:
    listening = Listening()
    whole = drafted(NeverStop(), protocol, params, make)
    assert drafted(listening, protocol, params, make) == whole
    at, threshold = least_sure(listening.confidences)
    before = drafted(StopBefore(ConfidenceLogistic(), threshold), protocol, params, make)
    sent = drafted(SendAndStop(ConfidenceLogistic(), threshold), protocol, params, make)
    assert (len(listening.confidences), len(whole.token_ids)) == (WINDOW, WINDOW)
    assert before.token_ids == whole.token_ids[:at]
    assert sent.token_ids == whole.token_ids[: at + 1]
    if whole.hidden is not None:
        for draft in (before, sent):
            kept = np.zeros((0, whole.hidden.shape[1])) if draft.hidden is None else draft.hidden
            assert np.array_equal(kept, whole.hidden[: len(draft.token_ids)])


@pytest.mark.parametrize("protocol", ["token_ids", "dsd"])
def test_a_rule_may_count_what_was_drafted_so_far(protocol: ProtocolName) -> None:
    listening = Listening()
    drafted(listening, protocol, SAMPLED)
    survivals = list(accumulate(listening.confidences, mul))
    for at in range(1, WINDOW):
        price = DraftPrice(between := (survivals[at - 1] + survivals[at]) / 2, between)
        assert len(drafted(CostAwareStop(ConfidenceLogistic(), price), protocol, SAMPLED).token_ids) == at


@STOPPING_DRAFTERS
@pytest.mark.parametrize("params", PARAMS.values(), ids=PARAMS.keys())
def test_a_rule_is_told_of_the_distribution_that_is_sampled_from(
    make_drafter: MakeDrafter, params: SamplingParams
) -> None:
    """With temperature and penalties; at temperature 0 of the model's own, as there nothing is sampled."""
    listening, device = Listening(), Device("a", params)
    token_ids = drafted(listening, "token_ids", params, make_drafter.make).token_ids
    expected = [float(softmax(device.logits(token_ids[:at])).max()) for at in range(WINDOW)]
    assert listening.confidences == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("params", PARAMS.values(), ids=PARAMS.keys())
@pytest.mark.parametrize("protocol", ["token_ids", "tslt"])
def test_what_a_model_does_not_propose_is_no_part_of_it(protocol: ProtocolName, params: SamplingParams) -> None:
    sent_chain = []
    for recognised in (True, False):
        listening = Listening()
        engine, device = torch_drafter(proposing_some(recognised=recognised), rule=listening), Device("a", params)
        device.protocol = protocol
        engine.open(device.opening(), TERMS)
        draft_of(engine, device.request(WINDOW))
        sent_chain.append(listening.confidences)
    assert sent_chain[0] == pytest.approx(sent_chain[1], rel=1e-9)


def test_features_are_made_ready_only_for_a_rule_that_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = list[object]()
    monkeypatch.setattr(batch, "DraftFeatures", asked.append)
    for protocol in CHAINS:
        drafted(NeverStop(), protocol, SAMPLED)
    assert not asked


def test_trees_are_drafted_whole() -> None:
    stops_at_once, device = StopBefore(ConfidenceLogistic(), 1.0), Device("a", SAMPLED, protocol="tslt_tree")
    for rule in (NeverStop(), stops_at_once):
        engine = torch_drafter(tiny_llama(), rule=rule)
        engine.open(device.opening(), TERMS)
        assert len(draft_of(engine, device.request(expansion=(2, 2))).token_ids) == 6


def test_one_may_stop_while_others_go_on() -> None:
    """Each as it would alone, and what was computed of a stopped draft serves the next one."""
    at, threshold = 0, 0.0
    for seed in range(20):  # one that stops in the middle
        listening, params = Listening(), SamplingParams(temperature=0.9, seed=seed)
        whole = drafted(listening, "token_ids", params).token_ids
        at, threshold = least_sure(listening.confidences)
        if 2 <= at < WINDOW - 1:
            break
    assert 2 <= at < WINDOW - 1
    model = tiny_llama()
    passes = Passes(model)
    engine = torch_drafter(model, rule=StopBefore(ConfidenceLogistic(), threshold))
    devices = [Device("a", params), Device("b", SAMPLED, protocol="dssd"), Device("c", GREEDY, protocol="dsd")]
    for device in devices:
        engine.open(device.opening(), TERMS)
        engine.submit(device.request(WINDOW))
    answers = answers_of(engine)
    for device in devices[1:]:
        alone = drafted(StopBefore(ConfidenceLogistic(), threshold), device.protocol, device.params)
        answer = answers[device.name]
        assert isinstance(answer, Draft)
        assert answer.token_ids == alone.token_ids
    answer = answers["a"]
    assert isinstance(answer, Draft)
    assert answer.token_ids == whole[:at]
    passes.taken()
    devices[0].tokens += [*whole[:at], whole[at]]  # all accepted, and the target's own token
    draft_of(engine, devices[0].request(0))
    assert passes.taken() == 0, "the row that was decided upon had computed all that was drafted"


def test_a_draft_may_stop_before_anything_is_drawn() -> None:
    for protocol in CHAINS:
        engine = torch_drafter(tiny_llama(), rule=StopBefore(ConfidenceLogistic(), 1.0))
        device = Device("a", SAMPLED, protocol=protocol)
        engine.open(device.opening(), TERMS)
        for _ in range(2):
            assert draft_of(engine, device.request(WINDOW)).token_ids == ()
            device.tokens.append(7)

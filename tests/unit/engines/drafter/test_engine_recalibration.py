"""What a device's engine learns from of its chains, as the next order tells what became of them."""

from dataclasses import replace

import pytest

from outrider.contracts.drafting import DraftRequest
from outrider.contracts.price import DraftPrice
from outrider.contracts.requests import ProtocolName, SamplingParams
from outrider.contracts.verifying import AcceptanceRule
from outrider.drafting.cost_aware import CostAwareStop
from outrider.drafting.recalibration import ChainVerdict, Recalibration
from outrider.drafting.stops import SendAndStop
from tests.unit.drafting.always import Learning
from tests.unit.engines.conftest import tiny_llama, torch_drafter
from tests.unit.engines.drafter_device import GREEDY, SAMPLED, TERMS, Device, answer_to, draft_of

WINDOW = 4


class Kept(Recalibration):
    """Keeps what it is told."""

    def __init__(self) -> None:
        super().__init__({})
        self.verdicts: list[ChainVerdict] = []

    def learn(self, verdict: ChainVerdict) -> None:
        self.verdicts.append(verdict)
        super().learn(verdict)


class Drafting:
    """A device that drafts all it is ordered, and what it learned from."""

    def __init__(self, params: SamplingParams, protocol: ProtocolName = "token_ids", least: float = 0.0) -> None:
        self.kept = Kept()
        stops = Learning(lambda predictor: SendAndStop(predictor, least), lambda: self.kept)
        self.engine, self.device = torch_drafter(tiny_llama(), stops=stops), Device("a", params, protocol=protocol)
        self.engine.open(self.device.opening(), TERMS)
        self.draft = draft_of(self.engine, self.device.request(WINDOW)).token_ids

    def committed(self, *token_ids: int, rounds: int = 1, window: int = 0) -> DraftRequest:
        self.device.tokens += token_ids
        self.device.round += rounds - 1
        request = self.device.request(window)
        answer_to(self.engine, request)
        return request

    @property
    def learned(self) -> list[tuple[int, int, bool]]:
        return [(len(one.sent_chain.logits), one.accepted, one.rejected) for one in self.kept.verdicts]


def other(token_id: int) -> int:
    return token_id + 1 if token_id < 20 else token_id - 1


@pytest.mark.parametrize(
    ("accepted", "replaced", "expected"),
    [(2, True, (4, 2, True)), (0, True, (4, 0, True)), (4, True, (4, 4, False)), (2, False, (4, 2, False))],
    ids=["some", "none", "all", "cut"],
)
def test_it_learns_from_what_was_tested(accepted: int, replaced: bool, expected: tuple[int, int, bool]) -> None:
    drafting = Drafting(GREEDY)
    drafting.committed(*drafting.draft[:accepted], *([other([*drafting.draft, 0][accepted])] if replaced else []))
    assert drafting.learned == [expected]
    (verdict,) = drafting.kept.verdicts
    assert (verdict.sent_chain.rule, verdict.sent_chain.temperature) == (AcceptanceRule.GREEDY, 0.0)


def test_an_order_that_comes_again_is_not_learned_from_again() -> None:
    drafting = Drafting(SAMPLED)
    request = drafting.committed(*drafting.draft[:1], window=2)
    answer_to(drafting.engine, request)
    assert drafting.learned == [(4, 1, False)]


def test_nor_is_a_block_of_another_prefix() -> None:
    drafting = Drafting(SAMPLED)
    device = drafting.device
    device.tokens[-1], device.known = other(device.tokens[-1]), len(device.tokens) - 1
    device.round += 1
    drafting.engine.submit(replace(device.request(1), prefix_hash=0))
    assert drafting.learned == []


def test_of_ratio_rules_only_the_next_round_tells() -> None:
    for rounds, expected in ((1, [(4, 2, True)]), (2, [])):
        drafting = Drafting(SAMPLED, "dsd")
        drafting.committed(*drafting.draft[:2], other(drafting.draft[2]), rounds=rounds)
        assert drafting.learned == expected
    drafting = Drafting(SAMPLED)
    drafting.committed(*drafting.draft[:2], other(drafting.draft[2]), rounds=3)
    assert drafting.learned == [(4, 2, True)], "where noise is shared it is the target's own choice either way"


def test_a_chain_that_stopped_was_told_of_no_further_token() -> None:
    drafting = Drafting(SAMPLED, least=1.0)
    assert len(drafting.draft) == 1
    drafting.committed(*drafting.draft, 7, window=WINDOW)
    drafting.committed(9)
    assert drafting.learned == [(1, 1, False), (1, 0, True)]


def test_a_generation_goes_by_its_own_verdicts_and_by_those_before_it_was_opened() -> None:
    drafting = Drafting(SAMPLED)
    drafting.engine.open(Device("b", SAMPLED).opening(), TERMS)
    for _ in range(20):
        drafting.draft = draft_of(drafting.engine, drafting.device.request(1)).token_ids
        drafting.committed(other(drafting.draft[0]))
    drafting.engine.open(Device("c", SAMPLED).opening(), TERMS)
    biases = {
        name: generation.recalibration.calibration(AcceptanceRule.SHARED_NOISE, SAMPLED.temperature).bias
        for name, generation in drafting.engine._generations.items()  # noqa: SLF001
    }
    assert biases["b"] == 0.0
    assert biases["a"] == biases["c"] < -0.2


def test_a_rule_that_asks_twice_of_a_row_is_told_once() -> None:
    kept = Kept()
    engine = torch_drafter(
        tiny_llama(), stops=Learning(lambda predictor: CostAwareStop(predictor, DraftPrice()), lambda: kept)
    )
    device = Device("a", SAMPLED)
    engine.open(device.opening(), TERMS)
    device.tokens += draft_of(engine, device.request(WINDOW)).token_ids
    draft_of(engine, device.request(1))
    assert [(len(one.sent_chain.logits), one.accepted) for one in kept.verdicts] == [(WINDOW, WINDOW)]


def test_trees_and_whole_drafts_are_nothing_to_learn_from() -> None:
    engine, device = torch_drafter(tiny_llama()), Device("a", SAMPLED)
    engine.open(device.opening(), TERMS)
    device.tokens += draft_of(engine, device.request(WINDOW)).token_ids
    draft_of(engine, device.request(WINDOW))
    assert engine._recalibration.calibration(AcceptanceRule.SHARED_NOISE, SAMPLED.temperature).bias == 0.0  # noqa: SLF001

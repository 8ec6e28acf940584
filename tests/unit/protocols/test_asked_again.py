"""A protocol whose device is asked again before the verifier decides, and draws corrections; whole in this file.

Greedy requests are verified by the semantic rule: hidden states are sent for mismatches only (WISV's selective upload).
Sampled ones go as ``dssd``'s do.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pytest

from outrider.contracts.drafting import Draft, DraftPlan, DraftRequest, DraftTerms
from outrider.contracts.errors import ChecksumError, DrafterLostError, MessageError
from outrider.contracts.exchanged import FloatField, FloatRow, WireFormat
from outrider.contracts.prefix import EMPTY_PREFIX_HASH, extend_prefix_hash
from outrider.contracts.requests import SamplingParams
from outrider.contracts.verifying import AcceptanceRule, Block, Outcome, Resolution, Undecided, Unfinished, Verified
from outrider.link.latency import exchange_s
from outrider.protocols.dssd import Dssd
from outrider.protocols.protocol import RoundTerms, SecondStep
from outrider.protocols.registry import register, unregister
from outrider.session.session import CoordinatorSession, DrafterSession
from outrider.wire.bits import BitReader, BitWriter
from tests.unit.engines.conftest import tiny_llama, torch_drafter, torch_verifier
from tests.unit.engines.drafter_device import draft_of
from tests.unit.engines.reference import Client
from tests.unit.engines.semantic_device import ThresholdJudge, plain_semantic
from tests.unit.serve_app.api.in_memory_service import (
    LENGTH,
    Service,
    draft_model,
    drafter,
    request_for,
    tokens_of,
    truth_of,
)
from tests.unit.serve_app.coordination.in_memory import FIRST, GREEDY, PROMPT, WIRE
from tests.unit.verification.random_head import head_of
from tests.unit.virtual_clock import on_loop

WIDTH = 48  # of the draft model's hidden states
PLAN = DraftPlan("asked_again", 4)


class Selective(SecondStep):
    """A bit for each token of the plan; states as fp32."""

    def encode_question(self, writer: BitWriter, mismatches: Sequence[int], plan: DraftPlan) -> None:
        writer.uints([node in mismatches for node in range(plan.window)], 1)

    def decode_question(self, reader: BitReader, plan: DraftPlan) -> tuple[int, ...]:
        return tuple(np.flatnonzero(reader.uints(plan.window, 1)).tolist())

    def encode_states(self, writer: BitWriter, hidden: FloatRow, wire: WireFormat) -> None:  # noqa: ARG002 (interface)
        writer.floats(hidden.ravel(), FloatField.FP32)

    def decode_states(self, reader: BitReader, count: int, wire: WireFormat) -> FloatRow:  # noqa: ARG002 (interface)
        return reader.floats(count * WIDTH, FloatField.FP32).reshape(count, WIDTH)


class AskedAgain(Dssd):
    name = "asked_again"
    code = 99
    judged = True
    second_step = Selective()

    def rule(self, params: SamplingParams, wire: WireFormat) -> AcceptanceRule:
        return AcceptanceRule.SEMANTIC if params.greedy else super().rule(params, wire)

    def lossless(self, wire: WireFormat) -> bool:  # noqa: ARG002 (interface)
        return False

    def rejection_s(self, terms: RoundTerms) -> float:
        if terms.params.greedy:
            return 0.0 if terms.csi is None else exchange_s(terms.csi, 64, 32 * WIDTH)
        return super().rejection_s(terms)


@pytest.fixture(autouse=True)
def asked_again() -> Iterator[None]:
    register(AskedAgain())
    yield
    unregister(AskedAgain.name)


class Ends:
    """Both ends of one greedy generation's link, with a real drafter and a real verifier behind them."""

    def __init__(self) -> None:
        self.client = Client("g", PROMPT, GREEDY)
        self.drafter = torch_drafter(draft_model())
        self.verifier = torch_verifier(tiny_llama(), judge=ThresholdJudge(WIDTH))
        self.drafter.open(self.client.opening(), DraftTerms(WIRE))
        self.verifier.open(self.client.opening())
        self.coordinator = CoordinatorSession(WIRE, "g")
        self.device = DrafterSession(WIRE, "g", PROMPT)
        self.known = len(PROMPT)

    def draft(self) -> tuple[Draft, FloatRow]:
        """The next block as it comes out of its message, and the hidden states that stayed behind."""
        tokens = self.client.tokens
        prefix_hash = extend_prefix_hash(EMPTY_PREFIX_HASH, tokens)
        request = DraftRequest("g", self.client.round, self.known, tuple(tokens[self.known :]), prefix_hash, PLAN)
        drafted = draft_of(self.drafter, self.device.decode_order(self.coordinator.encode_order(request)))
        draft = self.coordinator.decode_answer(self.device.encode_answer(drafted), request)
        self.known = len(tokens)
        assert isinstance(draft, Draft)
        assert draft.hidden is None
        assert drafted.hidden is not None
        return draft, drafted.hidden

    def outcome(self, block: Block) -> Outcome:
        """What the verifier says of a block once its prefix is computed."""
        while isinstance(outcome := self.verifier.verify([block])[0], Unfinished):
            pass
        return outcome

    def resolved(self, asked: Undecided) -> Resolution:
        """What the device sends of the last block."""
        answer = self.device.answer_at_once(self.coordinator.encode_question(asked))
        assert answer is not None
        return self.coordinator.decode_details(answer, asked)


def test_the_device_sends_what_it_is_asked_for_and_the_verifier_decides() -> None:
    ends, asked_about, kept = Ends(), 0, 0
    for _ in range(12):
        draft, hidden = ends.draft()
        block = ends.client.block(draft.token_ids, rule=AcceptanceRule.SEMANTIC)
        expected = plain_semantic(ends.client, block, hidden, None)
        outcome = ends.outcome(block)
        if isinstance(outcome, Undecided):
            resolution = ends.resolved(outcome)
            assert resolution.hidden is not None
            assert np.array_equal(resolution.hidden, hidden[list(outcome.mismatches)])
            (outcome,) = ends.verifier.verify([], [resolution])
            asked_about += 1
        assert isinstance(outcome, Verified)
        assert (outcome.accepted_path, outcome.next_token) == (expected.path, expected.token_after)
        kept += outcome.accepted_len > 0
        ends.client.take(block, outcome)
    assert asked_about > 0
    assert kept > 0


def test_a_question_is_about_the_last_block_alone() -> None:
    ends = Ends()
    draft, _ = ends.draft()
    asked = Undecided("g", 0, (0, len(draft.token_ids) - 1))
    question = ends.coordinator.encode_question(asked)
    answer = ends.device.answer_at_once(question)
    assert answer is not None
    assert ends.device.answer_at_once(question) == answer, "lost on its way, it is asked for again"
    for position in range(2, len(question)):  # behind kind and round
        damaged = question[:position] + bytes([question[position] ^ 16]) + question[position + 1 :]
        with pytest.raises(ChecksumError):
            ends.device.answer_at_once(damaged)
    with pytest.raises(ChecksumError):
        ends.coordinator.decode_details(answer[:-1] + bytes([answer[-1] ^ 1]), asked)
    with pytest.raises(MessageError, match="needs the last block's round"):
        ends.coordinator.encode_question(replace(asked, round=1))
    ends.client.tokens += draft.token_ids[:1]
    ends.client.round += 1
    ends.draft()
    with pytest.raises(ChecksumError, match="never sent"):
        ends.device.answer_at_once(question)


@on_loop
async def test_a_sampled_request_s_corrections_are_the_device_s() -> None:
    service = Service(drafter(), heads={FIRST.group: head_of(WIDTH, WIDTH)})
    params = SamplingParams(temperature=1.0, seed=11)
    request = replace(request_for(params=params, window=3), protocol="asked_again", reproducible=False)
    chunks = await service.response(request)
    assert len(tokens_of(chunks)) == LENGTH
    assert {name for name, _ in chunks[-1].stats.protocols} == {"asked_again"}
    assert any(draft.correction is not None for draft in service.fleet.transports[FIRST].answers)
    assert any(chunk.correction_by is not None for chunk in chunks)
    await service.idle()


@pytest.mark.parametrize("lost", [False, True], ids=["answered", "device lost"])
@on_loop
async def test_a_response_is_made_in_two_steps(*, lost: bool) -> None:
    """A device that is lost at the question costs its mismatches: what is left is the target's own output."""
    service = Service(drafter(), judge=ThresholdJudge(WIDTH), heads={FIRST.group: head_of(WIDTH, WIDTH)})
    if lost:
        service.fleet.transports[FIRST].lost["question"] = DrafterLostError("gone")
    request = replace(request_for(window=3), protocol="asked_again")
    chunks = await service.response(request)
    resolutions = [resolution for call in service.verifier.calls for resolution in call.resolutions]
    assert {resolution.hidden is None for resolution in resolutions} == {lost}
    assert len(tokens_of(chunks)) == LENGTH
    if lost:
        assert tokens_of(chunks) == truth_of(request)
        assert service.fleet.reported == [FIRST]
    await service.idle()

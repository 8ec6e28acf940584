"""What crosses between processes arrives as it was, at a cost that does not grow with reflection."""

import pickle
import pickletools
from dataclasses import fields, replace

import numpy as np
import pytest

from actors.messages import Refusal, StepReply
from outrider.contracts.cost import VerifyCost
from outrider.contracts.exchanged import Candidates
from outrider.contracts.requests import (
    ChunkDetails,
    FinishReason,
    GenerationChunk,
    RoundReport,
    RoundStats,
    TextSpan,
    TokenLogprobs,
    TokenOrigin,
)
from outrider.contracts.slo import LedgerRecord
from outrider.contracts.verifying import AcceptanceRule, AutonomousRun, Block, KvUsage, Stale, Unfinished, Verified

ALONE = [Verified(f"g{number}", 7 + number, (), 2**40 + number) for number in range(4)]
OTHERS = [
    Unfinished("u", 3, 17),
    Verified("drafted", 3, (0, 1), 5),
    Verified("first", 0, (), 5, cached_tokens=16),
    Verified("told", 1, (), 5, logprobs=(TokenLogprobs(5, -0.5, ((5, -0.5),)),)),
    Verified("owed", 2, (), None, Candidates(np.array([3, 4]), np.array([0.5, 0.5]))),
    Stale("s", 4),
]
COMPUTED = (VerifyCost(1, 40_000), VerifyCost(64, 0))


@pytest.mark.parametrize("outcomes", [[], ALONE, OTHERS, [OTHERS[0], *ALONE, *OTHERS[1:], ALONE[0]]])
def test_a_reply_arrives_as_it_was(outcomes: list[Verified]) -> None:
    reply = StepReply(
        tuple(outcomes),
        {"x": Refusal("too long", too_long=True)},
        0.5,
        0.25,
        KvUsage(16, 10, 1, 2, 3, 4),
        COMPUTED,
        9,
        faults=("pass",),
        suspects=("a",),
    )
    again = pickle.loads(pickle.dumps(reply))
    for field in fields(StepReply):
        assert getattr(again, field.name) == getattr(reply, field.name)


def test_a_step_of_many_is_small() -> None:
    many = tuple(Verified(f"generation-{number}", 1000, (), 30_000 + number) for number in range(256))
    reply = StepReply(many, {}, 0.5, 0.25, KvUsage(16, 10, 1, 2, 3, 4), (VerifyCost(1, 500),) * 256)
    assert len(pickle.dumps(reply)) < 256 * 60


def test_a_chunk_arrives_as_it_was() -> None:
    spans, stats = (TextSpan("a", TokenOrigin.ACCEPTED),), RoundStats(rounds=3, protocols=(("dsd", 2),))
    told = (TokenLogprobs(5, -0.5, ((5, -0.5),)),)
    chunk = GenerationChunk(
        (5,), spans, stats, 3, told, (None, *told), FinishReason.STOP, "m", (), LedgerRecord(1, 2.0)
    )
    made = RoundReport("dsd", 3, 2, 0, 3, 80, 64, 1.5, (("draft", 0.25), ("verify", 0.5)), 0.125)
    assert pickle.loads(pickle.dumps(chunk)) == chunk
    chunk = replace(chunk, details=ChunkDetails(spans, (made,)))
    assert pickle.loads(pickle.dumps(chunk)) == chunk


def test_a_block_arrives_as_it_was() -> None:
    hidden = np.ones((2, 3), dtype=np.float32)
    block = Block(
        "g", 3, 40, 2**60, (1,), (5, 6), rule=AcceptanceRule.SEMANTIC, hidden=hidden, autonomous_run=AutonomousRun(9)
    )
    assert pickle.loads(pickle.dumps(block)) == block


def test_a_block_is_read_by_one_call_without_a_look_at_its_fields() -> None:
    sent = pickle.dumps(Block("g", 3, 40, 2**60, draft=(5, 6), autonomous_run=None))
    assert "BUILD" not in {opcode.name for opcode, _, _ in pickletools.genops(sent)}

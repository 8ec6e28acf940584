"""One model over two processes: the rows that one process gives, in the first one; and what becomes of a lost one."""

import multiprocessing
from multiprocessing.connection import Connection

import pytest
import torch
from torch import Tensor

from outrider.contracts.errors import VerifierLostError
from outrider.engines.segments import BlockCopy, Segment
from outrider.engines.vllm import followers
from outrider.engines.vllm.model import VllmForward
from outrider.engines.vllm.settings import VllmSettings
from tests.unit.engines.vllm.conftest import ON_VLLM, MakeSettings
from tests.unit.engines.vllm.following import started, stuck
from tests.unit.engines.vllm.test_forward import assert_close, tokens_of

pytestmark = ON_VLLM

_DEADLINE_S = 240.0
Rows = list[tuple[Tensor, Tensor]]


def passes() -> list[tuple[list[Segment], list[BlockCopy]]]:
    tokens, path = tokens_of(1, 150), tokens_of(2, 9)
    return [
        ([Segment(tokens, 0, range(5), 9), Segment(tokens_of(3, 4), 0, [8], 0)], []),
        ([Segment(path, 150, range(6), 9), Segment(path[:3], 150, [0, 1, 2, 3, 7], 3)], [BlockCopy(4, 7)]),
    ]


def rows_of(forward: VllmForward) -> Rows:
    results = [forward.forward(segments, copies, want_hidden=True) for segments, copies in passes()]
    return [(result.logits, result.hidden) for result in results if result.hidden is not None]


def over_two(settings: VllmSettings, found: Connection) -> None:
    """A process of its own: the groups of ranks are the process's."""
    parallel = VllmForward(settings)
    try:
        rank = multiprocessing.active_children()[0]
        rows = rows_of(parallel)
        rank.kill()
        rank.join()
        lost = ""
        try:
            rows_of(parallel)
        except VerifierLostError as error:
            lost = str(error)
        found.send(([(logits.numpy(), hidden.numpy()) for logits, hidden in rows], parallel.total_blocks, lost))
    finally:
        parallel.close()
    again = VllmForward(settings)  # nothing is left behind
    found.send(rows_of(again)[0][0].numpy())
    again.close()


@pytest.mark.long
def test_two_ranks_give_the_rows_of_one_and_the_loss_of_one_is_told(
    forward: VllmForward, make_settings: MakeSettings
) -> None:
    here, there = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(
        target=over_two, args=(make_settings(tensor_parallel_size=2), there)
    )
    process.start()
    there.close()
    try:
        assert here.poll(_DEADLINE_S), "two ranks are slow to start"
        rows, total_blocks, lost = here.recv()
        assert total_blocks >= forward.total_blocks, "each rank keeps its own heads' KV"
        assert "an answer of every vLLM worker, found" in lost
        for (logits, hidden), expected in zip(rows, rows_of(forward), strict=True):
            assert_close(torch.from_numpy(logits), expected[0])
            assert_close(torch.from_numpy(hidden), expected[1])
        assert here.poll(_DEADLINE_S), "two ranks are slow to start again"
        assert (here.recv() == rows[0][0]).all()
        process.join(_DEADLINE_S)
        assert process.exitcode == 0
    finally:
        process.kill()


def test_every_follower_answers_in_order_of_ranks() -> None:
    group = started("", "")
    try:
        for method in ("one", "two"):
            group.broadcast(method, (1,), {"x": 2})
            assert group.beside(lambda: "own") == ["own", *[(method, (1,), {"x": 2})] * 2]
    finally:
        group.close()
        group.close()
    assert not [process for process in multiprocessing.active_children() if process.name.startswith("rank-")]


@pytest.mark.parametrize(
    ("method", "said"),
    [("fail", "rank 1: ValueError: asked to"), ("die", "rank-1 has ended with exit code -9|EOFError")],
)
def test_a_failure_is_told_and_ends_the_group(method: str, said: str) -> None:
    group = started("")
    try:
        group.broadcast(method, (), {})
        with pytest.raises(VerifierLostError, match=said):
            group.beside(lambda: None)
        with pytest.raises(VerifierLostError, match=said):
            group.broadcast("again", (), {})
    finally:
        group.close()


def test_a_follower_that_does_not_start_says_why() -> None:
    with pytest.raises(VerifierLostError, match="rank 1: ValueError: no memory"):
        started("no memory")


def test_a_failure_here_ends_the_group_too() -> None:
    group = started("")

    def fail() -> None:
        raise ZeroDivisionError("here")

    try:
        group.broadcast("one", (), {})
        with pytest.raises(VerifierLostError, match="ZeroDivisionError: here"):
            group.beside(fail)
    finally:
        group.close()


def test_a_process_that_waits_for_a_rank_that_died_ends() -> None:
    process = multiprocessing.get_context("spawn").Process(target=stuck)
    process.start()
    process.join(_DEADLINE_S)
    assert process.exitcode == followers.LOST_EXIT

"""One model over two worker processes: the same rows as one process gives, and an error when one of them dies."""

import multiprocessing

import pytest
import torch

from outrider.contracts.errors import VerifierLostError
from outrider.engines.forward_model import BlockCopy, Segment
from outrider.engines.vllm.model import VllmForward
from tests.unit.engines.vllm.conftest import MakeSettings
from tests.unit.engines.vllm.test_forward import assert_close, tokens_of


def test_two_workers_give_the_rows_of_one_and_the_loss_of_one_is_told(
    forward: VllmForward, make_settings: MakeSettings
) -> None:
    tokens, path = tokens_of(1, 150), tokens_of(2, 9)
    passes: list[tuple[list[Segment], list[BlockCopy]]] = [
        ([Segment(tokens, 0, range(5), 9), Segment(tokens_of(3, 4), 0, [8], 0)], []),
        ([Segment(path, 150, range(6), 9), Segment(path[:3], 150, [0, 1, 2, 3, 7], 3)], [BlockCopy(4, 7)]),
    ]
    alone = [forward.forward(segments, copies, want_hidden=True) for segments, copies in passes]
    parallel = VllmForward(make_settings(tensor_parallel_size=2))
    try:
        assert parallel.total_blocks >= forward.total_blocks, "each worker keeps its own heads' KV"
        assert parallel.no_logits.device == torch.device("cpu")
        for (segments, copies), expected in zip(passes, alone, strict=True):
            found = parallel.forward(segments, copies, want_hidden=True)
            assert found.hidden is not None
            assert expected.hidden is not None
            assert_close(found.logits, expected.logits)
            assert_close(found.hidden, expected.hidden)
        next(worker for worker in multiprocessing.active_children() if worker.name.endswith("-1")).kill()
        with pytest.raises(VerifierLostError, match="an answer of every vLLM worker"):
            parallel.forward(passes[0][0])
    finally:
        parallel.close()

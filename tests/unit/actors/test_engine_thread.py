"""Priority and threads of what computes."""

import os

import pytest
import torch

from actors.engine_thread import engine_thread


def priority() -> int:
    return os.getpriority(os.PRIO_PROCESS, 0)


@pytest.mark.parametrize(("device", "behind"), [("cpu", 2), ("cuda", 0)])
def test_what_computes_on_processors_goes_behind_what_serves(device: str, behind: int) -> None:
    before = priority()
    with engine_thread(1, device) as thread:
        assert thread.submit(priority).result() == min(before + behind, 19)
        assert thread.submit(torch.get_num_threads).result() == 1
    assert priority() == before

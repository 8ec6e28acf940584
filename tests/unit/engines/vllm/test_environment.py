"""The process keeps its own state, whatever is started in it."""

import os
import random
import sys

import numpy as np
import torch

from outrider.engines.vllm.environment import starting


def test_starting_gives_the_process_its_state_back() -> None:
    threads, set_num_threads, excepthook = torch.get_num_threads(), torch.set_num_threads, sys.excepthook
    variables = dict(os.environ)
    random.seed(3)
    np.random.seed(3)  # noqa: NPY002 (the generator vLLM seeds)
    torch.manual_seed(3)
    expected = random.random(), np.random.random(), float(torch.rand(()))  # noqa: NPY002
    random.seed(3)
    np.random.seed(3)  # noqa: NPY002
    torch.manual_seed(3)
    with starting(2):
        assert os.environ["OMP_NUM_THREADS"] == "2"
        assert torch.get_num_threads() == 2
        for seed in (random.seed, np.random.seed, torch.manual_seed):
            seed(0)
        torch.set_num_threads = print  # type: ignore[assignment]
        sys.excepthook = print
        torch.set_default_dtype(torch.bfloat16)
        os.environ["VLLM_DIST_IDENT"] = "x"
    assert torch.set_num_threads is set_num_threads
    assert sys.excepthook is excepthook
    assert torch.get_default_dtype() == torch.float32
    assert dict(os.environ) == variables
    assert (random.random(), np.random.random(), float(torch.rand(()))) == expected  # noqa: NPY002
    torch.set_num_threads(threads)

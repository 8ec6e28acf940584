"""The vLLM engine in vLLM's batch invariance: see ``vllm_engine``."""

import os

from lab.bench.gpu import vllm_engine
from lab.bench.gpu.setting import Found, Setting


def run(setting: Setting) -> Found:
    """The same, in a process that is new to vLLM."""
    os.environ["VLLM_BATCH_INVARIANT"] = "1"  # read while vLLM starts
    return vllm_engine.run(setting)

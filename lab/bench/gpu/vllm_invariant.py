"""The vLLM engine with vLLM's batch invariance: see ``vllm_engine``."""

import os

from lab.bench.gpu import vllm_engine
from lab.bench.gpu.setting import Found, Setting


def run(setting: Setting) -> Found:
    """Run the same in a fresh process; vLLM's kernels for it are Triton's, which processors lack."""
    if setting.device.type == "cpu":
        return Found(("vLLM",), [("not batch-invariant on processors",)], {"installed": None})
    os.environ["VLLM_BATCH_INVARIANT"] = "1"  # read when vLLM starts
    return vllm_engine.run(setting)

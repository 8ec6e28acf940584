"""What vLLM makes of this engine's settings for a card, as far as it can be told without one.

In a process of its own, in which vLLM takes the machine for one with an H100.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from lab.bench.gpu.random_models import random_model
from outrider.engines.kinds import VerifierSpec
from outrider.engines.limits import EngineLimits
from outrider.engines.vllm.environment import prepare
from outrider.engines.vllm.settings import VllmSettings


@pytest.mark.long
def test_settings_are_taken_on_a_card(tmp_path: Path) -> None:
    """By the first runner, whose state ``worker`` reads; blocks and passes stay as they are; graphs are captured."""
    environment = os.environ | {"VLLM_BATCH_INVARIANT": "1"}
    command = [sys.executable, "-m", __name__, str(tmp_path)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == {
        "second_runner": False,
        "block_tokens": 16,
        "pass_tokens": 512,
        "graphs": "FULL_AND_PIECEWISE",
        "batch_invariant": True,  # left to the operator
    }


def main() -> None:
    """Print what vLLM makes of them."""
    prepare()
    _take_for_a_card()
    from vllm import envs  # noqa: PLC0415
    from vllm.engine.arg_utils import EngineArgs  # noqa: PLC0415

    folder = Path(sys.argv[1])
    random_model("tiny", torch.device("cpu"), torch.bfloat16).save_pretrained(folder)
    spec = VerifierSpec("vllm", str(folder), "bfloat16", "cuda", 1, EngineLimits(None, 16))
    config: Any = EngineArgs(**VllmSettings(spec, folder, 512, 400).engine_arguments()).create_engine_config()
    told = {
        "second_runner": config.use_v2_model_runner,
        "block_tokens": config.cache_config.block_size,
        "pass_tokens": config.scheduler_config.max_num_batched_tokens,
        "graphs": config.compilation_config.cudagraph_mode.name,
        "batch_invariant": envs.VLLM_BATCH_INVARIANT,
    }
    sys.stdout.write(json.dumps(told))


def _take_for_a_card() -> None:
    for name in ("vllm._C", "vllm._moe_C", "vllm._C_stable_libtorch"):  # kernels, which nothing here calls
        sys.modules.setdefault(name, ModuleType(name))
    from vllm import platforms  # noqa: PLC0415
    from vllm.platforms.cuda import NonNvmlCudaPlatform  # noqa: PLC0415
    from vllm.platforms.interface import DeviceCapability  # noqa: PLC0415

    class H100(NonNvmlCudaPlatform):  # type: ignore[misc]  # vLLM chooses its base as it is imported
        @classmethod
        def get_device_capability(cls, device_id: int = 0) -> DeviceCapability:  # noqa: ARG003
            return DeviceCapability(9, 0)

    platforms._current_platform = H100()  # noqa: SLF001 (else found at its first use)


if __name__ == "__main__":
    main()

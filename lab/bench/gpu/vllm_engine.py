"""The vLLM engine on the device: that it starts, how often its responses differ in batches, and its KV memory.

Needs the pinned vLLM, which machines without network rarely have. ``vllm_invariant`` is the same with vLLM's batch
invariance (``VLLM_BATCH_INVARIANT=1``), in its own process, as all parts.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from lab.bench.gpu.exactness import CONTEXT_TOKENS, blocks_of, compared, shape_of
from lab.bench.gpu.random_models import SHAPES, random_model
from lab.bench.gpu.setting import Found, Setting
from outrider.contracts.errors import EngineUnavailableError
from outrider.engines.forward_model import BranchModel
from outrider.engines.kinds import VerifierSpec
from outrider.engines.limits import EngineLimits
from outrider.engines.torch.model import kv_bytes_per_token
from outrider.engines.vllm.install import check_install
from outrider.engines.vllm.kind import VLLM_VERIFIER
from outrider.engines.vllm.model import VllmForward
from outrider.engines.vllm.settings import VllmSettings

_PASS_TOKENS = 512


def run(setting: Setting) -> Found:
    """Run in float32 and, if the card computes it, in bfloat16; skip if vLLM is not installed."""
    try:
        check_install(setting.device.type)
    except EngineUnavailableError as error:
        return Found(("vLLM",), [("not installed",)], {"installed": False, "found": str(error)})
    with ExitStack() as running:

        def started(dtype: torch.dtype) -> Callable[[], BranchModel]:
            return lambda: running.enter_context(_started(dtype, setting))

        dtypes = [torch.float32, *([torch.bfloat16] if setting.device.type == "cuda" else [])]
        return compared({str(dtype).removeprefix("torch."): started(dtype) for dtype in dtypes}, setting)


@contextmanager
def _started(dtype: torch.dtype, setting: Setting) -> Iterator[VllmForward]:
    shape, kind = shape_of(setting), setting.device.type
    model, block_tokens = random_model(shape, torch.device("cpu"), dtype), VLLM_VERIFIER.block_tokens[kind]
    limits = EngineLimits((blocks_of(block_tokens) + 1) * block_tokens * kv_bytes_per_token(model), block_tokens)
    with TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        name = str(dtype).removeprefix("torch.")
        spec = VerifierSpec("vllm", folder, name, kind, 1, limits, max_pass_tokens=_PASS_TOKENS)
        forward = VllmForward(VllmSettings(spec, Path(folder), SHAPES[shape]["vocab_size"], CONTEXT_TOKENS))
        try:
            yield forward
        finally:
            forward.close()

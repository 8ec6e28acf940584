"""Tiny models on vLLM: started once for all tests of a process, as that takes seconds."""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from torch import Tensor
from transformers import PreTrainedModel

from outrider.engines.forward_model import BranchModel, PassResult
from outrider.engines.kinds import VerifierSpec
from outrider.engines.limits import EngineLimits
from outrider.engines.segments import BlockCopy, Segment
from outrider.engines.torch.model import kv_bytes_per_token
from outrider.engines.vllm.model import VllmForward
from outrider.engines.vllm.settings import VllmSettings

VLLM_BLOCK_TOKENS = 32  # the fewest that vLLM computes with on a CPU
TOTAL_BLOCKS = 200


class VllmModels:
    """Running engines, one for each set of weights that was asked for."""

    def __init__(self) -> None:
        self._running: dict[str, VllmForward] = {}

    def started(self, model: PreTrainedModel) -> VllmForward:
        """An engine with a copy of the model's weights, which are float32.

        Passes of more than 256 tokens or 24 sequences are split.

        Raises:
            EngineUnavailableError: vLLM is not installed; the message says how to.
        """
        digest = _digest(model)
        if digest not in self._running:
            with TemporaryDirectory() as folder:
                model.save_pretrained(folder)
                kv_budget_bytes = (TOTAL_BLOCKS + 1) * VLLM_BLOCK_TOKENS * kv_bytes_per_token(model)
                limits = EngineLimits(kv_budget_bytes, VLLM_BLOCK_TOKENS)
                spec = VerifierSpec("vllm", folder, "float32", "cpu", 1, limits, max_pass_tokens=256)
                config = model.config
                settings = VllmSettings(spec, Path(folder), config.vocab_size, config.max_position_embeddings, 24)
                self._running[digest] = VllmForward(settings)
        return self._running[digest]

    def stop(self) -> None:
        """End all of them, and the verifiers over them; the next one asked for starts anew."""
        for forward in self._running.values():
            forward.close()
        self._running.clear()


VLLM_MODELS = VllmModels()


def _digest(model: PreTrainedModel) -> str:
    digest = hashlib.sha256()
    for name, weights in sorted(model.state_dict().items()):
        digest.update(name.encode())
        digest.update(weights.contiguous().numpy().data)
    return digest.hexdigest()


class FirstBlocks:
    """A model that has fewer KV blocks than there are, for verifiers with little memory; it does not own the model."""

    def __init__(self, model: BranchModel, blocks: int) -> None:
        assert blocks <= model.total_blocks, f"a test asks for {blocks} of {model.total_blocks} blocks"
        self._model = model
        self._blocks = blocks

    @property
    def total_blocks(self) -> int:
        return self._blocks

    @property
    def block_tokens(self) -> int:
        return self._model.block_tokens

    @property
    def no_logits(self) -> Tensor:
        return self._model.no_logits

    def forward(
        self, segments: Sequence[Segment], copies: Sequence[BlockCopy] = (), *, want_hidden: bool = False
    ) -> PassResult:
        named = {block for segment in segments for block in segment.blocks}
        assert named <= set(range(self._blocks)), "a verifier names only its blocks"
        return self._model.forward(segments, copies, want_hidden=want_hidden)

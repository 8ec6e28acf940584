"""Kinds of engine by their names in the configuration."""

from collections.abc import Mapping

from outrider.engines.kinds import DrafterKind, VerifierKind
from outrider.engines.onnx.kind import ONNX_DRAFTER
from outrider.engines.torch.kind import TORCH_DRAFTER, TORCH_VERIFIER
from outrider.engines.vllm.kind import VLLM_VERIFIER

VERIFIERS: Mapping[str, VerifierKind] = {"torch": TORCH_VERIFIER, "vllm": VLLM_VERIFIER}
DRAFTERS: Mapping[str, DrafterKind] = {"torch": TORCH_DRAFTER, "onnx": ONNX_DRAFTER}

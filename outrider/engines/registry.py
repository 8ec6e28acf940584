"""Kinds of engine by their names in the configuration."""

from collections.abc import Mapping

from outrider.engines.kinds import DrafterKind, VerifierKind
from outrider.engines.torch.kind import TORCH_VERIFIER, torch_drafter
from outrider.engines.vllm.kind import VLLM_VERIFIER

VERIFIERS: Mapping[str, VerifierKind] = {"torch": TORCH_VERIFIER, "vllm": VLLM_VERIFIER}
DRAFTERS: Mapping[str, DrafterKind] = {"torch": torch_drafter}

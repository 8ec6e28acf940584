"""Make the vLLM verifier: the engine itself where its hooks fit, vLLM's public interface where they do not."""

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from outrider.engines.limits import kept_rows_bytes
from outrider.engines.verifier.engine import PagedVerifier
from outrider.engines.vllm.hooks import HooksDifferError, check_hooks
from outrider.engines.vllm.install import SUPPORTED_VERSION, check_install
from outrider.engines.vllm.model import VllmForward
from outrider.engines.vllm.settings import VllmSettings
from outrider.events import event
from outrider.verification.semantic import MismatchJudge

if TYPE_CHECKING:
    from outrider.engines.vllm.public import PublicForward

_LOG = logging.getLogger(__name__)


def open_model(
    settings: VllmSettings, differing: Callable[[], tuple[str, ...]] = check_hooks
) -> "VllmForward | PublicForward":
    """Start vLLM.

    Args:
        settings: of vLLM.
        differing: what of its internals is not as this engine needs it.

    Raises:
        EngineUnavailableError: vLLM is missing, broken, made for another device, or does not start.
        UnsupportedModelError: the model has KV of a kind this engine does not keep.
        ParameterError: an option that vLLM does not have, or a value it cannot take.
    """
    version = check_install(settings.device)
    if settings.device == "cuda" and settings.tensor_parallel_size > 1:
        event(_LOG, "vllm_tensor_parallel_untested", logging.WARNING, gpus=settings.tensor_parallel_size)
    differences = differing()
    if not differences:
        if version != SUPPORTED_VERSION:
            event(_LOG, "vllm_version_untested", logging.WARNING, found=version, tested=SUPPORTED_VERSION)
        try:
            return VllmForward(settings)
        except HooksDifferError as error:
            differences = error.differences
    event(
        _LOG,
        "vllm_public_interface_only",
        logging.WARNING,
        found=version,
        tested=SUPPORTED_VERSION,
        differences="; ".join(differences),
        lost="speed, and hidden states",
    )
    from outrider.engines.vllm.public import PublicForward  # noqa: PLC0415 (seldom needed)

    return PublicForward(settings)


def vllm_verifier(
    settings: VllmSettings, prefill_chunk_tokens: int, judge: MismatchJudge | None = None
) -> PagedVerifier:
    """A verifier engine over vLLM; see ``open_model`` for errors.

    Args:
        settings: of vLLM.
        prefill_chunk_tokens: prefix positions computed per pass, over all cold blocks.
        judge: of mismatches; without one there is no semantic rule.
    """
    model = open_model(settings)
    return PagedVerifier(
        model,
        vocab_size=settings.vocab_size,
        max_context_tokens=min(settings.max_context_tokens, model.max_positions),
        prefill_chunk_tokens=prefill_chunk_tokens,
        kept_rows_bytes=kept_rows_bytes(settings.kv_budget_bytes),
        judge=judge,
    )

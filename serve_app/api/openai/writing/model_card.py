"""The served model as an entry of ``/v1/models``."""

from typing import Any

from outrider.contracts.requests import SamplingParams
from serve_app.api.openai.writing.usage import sampling_of
from serve_app.api.service import RequestLimits
from serve_app.service_answers import Model


def model_card(limits: RequestLimits, created_s: int) -> Model:
    """An entry of ``/v1/models``; ``root``, ``parent`` and ``max_model_len``, the context, are vLLM's names."""
    return {
        "id": limits.model_name,
        "object": "model",
        "created": created_s,
        "owned_by": "outrider",
        "root": limits.model_name,
        "parent": None,
        "max_model_len": limits.max_context_tokens,
        "outrider": {
            "sampling": _default_sampling(limits),
            "max_window": limits.k_max,
            "protocols": limits.protocols,
            "slo_classes": {slo.name: slo.promised_tokens_per_s for slo in limits.slo_classes},
        },
    }


def _default_sampling(limits: RequestLimits) -> dict[str, float]:
    """Defaults of requests without parameters, as ``usage`` would report them, and the default length of a chat."""
    filled: dict[str, Any] = dict(limits.defaults.params)
    most = limits.defaults.max_tokens
    return sampling_of(SamplingParams(**filled)) | ({} if most is None else {"max_tokens": most})

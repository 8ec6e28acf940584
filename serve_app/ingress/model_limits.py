"""What the served model allows of requests: read from its tokenizer, its configuration and its verifier's card."""

import logging
from hashlib import blake2b

from transformers import PreTrainedTokenizerBase

from actors.messages import ModelCard
from outrider import __version__
from outrider.contracts.errors import ConfigError
from outrider.contracts.sampling_defaults import SamplingDefaults
from outrider.events import event
from outrider.models.generation_config import read_sampling_defaults
from outrider.models.token_map import token_map
from outrider.models.tokenizer import load_tokenizer
from outrider.text.tokens import backend_of
from serve_app.api.openai.reasoning.families import thinking_of
from serve_app.api.openai.reasoning.marks import mark_in
from serve_app.api.openai.tools.formats.registry import FORMS, form_in
from serve_app.api.service import Reasoning, RequestLimits, ServiceSettings, StructuredLimits

LEAST_FIRST_TOKEN_MS = 100.0  # that a request may ask for, as x-slo-ttft-ms

log = logging.getLogger(__name__)


def load_target(settings: ServiceSettings) -> tuple[PreTrainedTokenizerBase, str, SamplingDefaults]:
    """Return a target's tokenizer, the hash of its token map, and the sampling defaults. Call it in a thread."""
    tokenizer = load_tokenizer(settings.model.target)
    backend = backend_of(tokenizer)
    backend.no_truncation()  # a saved tokenizer may truncate or pad by itself
    backend.no_padding()
    return tokenizer, token_map(tokenizer).sha256(), sampling_defaults(settings)


def limits_of_model(
    settings: ServiceSettings, tokenizer: PreTrainedTokenizerBase, defaults: SamplingDefaults, verifier: ModelCard
) -> RequestLimits:
    """Return the limits of requests for the served model. Walks the vocabulary: call it in a thread."""
    tool_format = form_in(settings.structured.tool_format, tokenizer.chat_template)
    context, vocabulary = verifier.max_context_tokens, backend_of(tokenizer).get_vocab()
    return RequestLimits(
        model_name=settings.model.public_name,
        max_context_tokens=context,
        max_output_tokens=min(settings.max_output_tokens, context - 1, defaults.most_tokens or context),
        vocab_size=verifier.vocab_size,
        k_max=settings.k_max,
        slo_classes=settings.slo_classes,
        least_first_token_ms=LEAST_FIRST_TOKEN_MS,
        judges=settings.judges,
        protocols=settings.protocols,
        drafters=settings.drafters,
        structured=StructuredLimits(reasoning=_reasoning(settings.structured.reasoning_end, tokenizer)),
        thinking=thinking_of(tokenizer, settings.structured.reasoning_end),
        tool_format=tool_format,
        tool_marks=tuple(mark_in(backend_of(tokenizer), text) for text in FORMS[tool_format].marks)
        if tool_format
        else (),
        max_prompt_chars=context * max(map(len, vocabulary)),  # a longer prompt cannot fit, whatever its tokens are
        token_map=verifier.token_map_hash,
        defaults=defaults,
        fingerprint=_fingerprint(verifier),
        objectives=settings.objectives,
        strict_fields=settings.http.strict_fields,
    )


def _fingerprint(verifier: ModelCard) -> str:
    """Return a hash of what outputs depend on besides a request: target, engine, dtype and version."""
    made_of = f"{verifier.target}/{verifier.token_map_hash}/{__version__}"
    return f"fp_{blake2b(made_of.encode(), digest_size=5).hexdigest()}"


def _reasoning(end: str | None, tokenizer: PreTrainedTokenizerBase) -> Reasoning | None:
    """Return the tokens that begin and end the model's reasoning."""
    if end is None:
        return None
    backend = backend_of(tokenizer)
    found = backend.token_to_id(end)
    if found is None:
        raise ConfigError("structured.reasoning_end", "one token of the target's, such as </think>", end)
    return Reasoning(backend.token_to_id(end.replace("/", "", 1)), found)


def sampling_defaults(settings: ServiceSettings) -> SamplingDefaults:
    """Read the sampling defaults, and log them once: they apply to requests that set no parameters."""
    model = settings.model
    defaults = read_sampling_defaults(model.generation_config, model.target, model.override_generation_config)
    if defaults.text:
        event(log, "sampling_defaults", source=defaults.source, values=defaults.text)
    if defaults.ignored:
        names = list(defaults.ignored)
        event(log, "generation_config_ignored", logging.WARNING, source=defaults.source, fields=names)
    return defaults

"""Load targets and drafters by name or path, ready for the engines.

A *name* is one of the built-in pair (``embedded`` stands for either), a folder in Hugging Face format, or a model on
the Hugging Face hub. A drafter may also be a file made by ``outrider distill``. Then only the target's embedding and
head are read from the target's folder, so a device that drafts never loads the target.
"""

from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

import torch
from transformers import PretrainedConfig, PreTrainedTokenizerBase

from outrider.contracts.errors import ModelUnavailableError, ParameterError
from outrider.models.drafter_model import check_token_map_hash, load_drafter_from_target_dir
from outrider.models.drafter_weights import read_drafter_info
from outrider.models.embedded import DRAFTER_NAME, embedded_drafter_path
from outrider.models.folders import EMBEDDED, resolve_folder, short_name
from outrider.models.identity import ModelIdentity, sampled_hash
from outrider.models.model_classes import AutoModelForCausalLM, GenerationConfig, PreTrainedModel
from outrider.models.target_folder import model_hash, read_config
from outrider.models.token_map import check_same_token_map, token_map, usable_vocab_size
from outrider.models.tokenizer import read_tokenizer
from outrider.models.uncompiled import uncompiled
from outrider.models.weight_hashes import check_hashes

_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


@dataclass(frozen=True, kw_only=True)
class ModelFacts(ModelIdentity):
    """Facts about a model that coordinators and engines need besides the model itself."""

    tokenizer: PreTrainedTokenizerBase  # a distilled drafter has its target's


@dataclass(frozen=True, kw_only=True)
class LoadedModel(ModelFacts):
    """``model``: a transformers causal LM in eval mode without gradients."""

    model: PreTrainedModel


def load_target(name_or_path: str, *, dtype: str, device: str, max_context_tokens: int | None = None) -> LoadedModel:
    """Load a target, or any other stand-alone causal LM.

    Args:
        name_or_path: see the module.
        dtype: ``float32``, ``bfloat16`` or ``float16``.
        device: a torch device.
        max_context_tokens: largest context to use; None: the model's.

    Raises:
        ModelUnavailableError: no such model, it cannot be loaded, or a file differs from its recorded hash.
        ParameterError: unknown dtype, or the context exceeds the model's or its attention window.
    """
    return _load_causal_lm(resolve_folder(name_or_path), short_name(name_or_path), dtype, device, max_context_tokens)


def load_target_facts(name_or_path: str, *, max_context_tokens: int | None = None) -> ModelFacts:
    """Return a target's facts from its folder alone, for engines that load the weights themselves."""
    folder = resolve_folder(name_or_path)
    return _facts(folder, short_name(name_or_path), read_config(folder), max_context_tokens)


def empty_target(name_or_path: str) -> PreTrainedModel:
    config = read_config(resolve_folder(name_or_path))
    with uncompiled(), torch.device("meta"):
        model: PreTrainedModel = AutoModelForCausalLM.from_config(config)
    return model


def load_drafter(name_or_path: str, target: str, *, dtype: str, device: str) -> LoadedModel:
    """Load the drafter of a target; refuse one whose token ids differ in meaning.

    Args:
        name_or_path: ``embedded``, its name, a distilled ``*.safetensors`` file, or any causal LM.
        target: name or path of the target; only its tokenizer, config and (for a distilled drafter) embedding and head
            are read.
        dtype: ``float32``, ``bfloat16`` or ``float16``.
        device: a torch device.

    Raises:
        VocabularyMismatchError: target and drafter disagree on a token id.
        ModelUnavailableError: a model cannot be found or loaded, a file of the drafter's folder differs from its
            recorded hash, or a distilled drafter does not fit the target.
        ParameterError: as for ``load_target``.
    """
    embedded = name_or_path in (EMBEDDED, DRAFTER_NAME)
    file = embedded_drafter_path() if embedded else Path(name_or_path).expanduser()
    target_folder = resolve_folder(target)
    if embedded or file.suffix == ".safetensors":
        config = read_config(target_folder)
        facts = _facts(target_folder, file.stem, config, drafter_context_tokens(config))
        check_token_map_hash(read_drafter_info(file), facts.token_map_hash, target, file)
        model = load_drafter_from_target_dir(file, target_folder, dtype=torch_dtype(dtype), device=device)
        return LoadedModel(**{**vars(facts), "model_hash": sampled_hash(file)}, model=model)
    name, folder = short_name(name_or_path), resolve_folder(name_or_path)
    theirs, ours = (token_map(read_tokenizer(place)) for place in (target_folder, folder))
    check_same_token_map(theirs, ours, target_name=short_name(target), drafter_name=name)
    return _load_causal_lm(folder, name, dtype, device, drafter_context_tokens(read_config(folder)))


def drafter_context_tokens(config: PretrainedConfig) -> int | None:
    """Return the context to draft in: at most the attention window, beyond which the target decodes alone.

    None: the model's context. A drafter's window is no setting of operators; ``model.max_context_tokens`` is the
    target's.
    """
    limit = full_attention_limit_tokens(config)
    return min(limit, int(config.max_position_embeddings)) if limit else None


def full_attention_limit_tokens(config: PretrainedConfig) -> int | None:
    """Return the context up to which every layer's attention is full attention; None if it always is.

    Within its window, sliding attention is full attention. Layers of other kinds (linear, chunked) give 0.
    """
    kinds = set(getattr(config, "layer_types", None) or ())
    if kinds - {"full_attention", "sliding_attention"}:
        return 0
    window: int | None = getattr(config, "sliding_window", None)
    slides = "sliding_attention" in kinds if kinds else getattr(config, "use_sliding_window", True)
    return window if slides else None


def context_tokens(config: PretrainedConfig, wanted: int | None) -> int:
    """Return the context to use, checked: engines implement full attention only.

    Raises:
        ParameterError: ``wanted`` exceeds the model's context, or the context exceeds its attention window.
    """
    trained: int = config.max_position_embeddings
    context = trained if wanted is None else wanted
    if not 1 <= context <= trained:
        raise ParameterError("max_context_tokens", f"an integer in 1..{trained}, the model's context", wanted)
    limit = full_attention_limit_tokens(config)
    if limit is not None and context > limit:
        raise ParameterError(
            "max_context_tokens",
            f"an integer <= {limit} for this {config.model_type} model (attention is not full beyond; engines "
            "implement full attention only)",
            context,
        )
    rope = getattr(config, "rope_parameters", None) or {}
    original = rope.get("original_max_position_embeddings", getattr(config, "original_max_position_embeddings", None))
    if rope.get("rope_type") == "longrope" and original is not None and context > original:
        # transformers chooses the frequencies of a whole batch by its longest position: not batch-invariant.
        needed = f"an integer <= {original}: beyond it this model's positions depend on the batch"
        raise ParameterError("max_context_tokens", needed, context)
    return context


def torch_dtype(name: str) -> torch.dtype:
    if name not in _DTYPES:
        raise ParameterError("dtype", f"one of {', '.join(_DTYPES)}", name)
    return _DTYPES[name]


def _load_causal_lm(folder: Path, name: str, dtype: str, device: str, max_context_tokens: int | None) -> LoadedModel:
    check_hashes(folder)
    torch_type, config = torch_dtype(dtype), read_config(folder)
    facts = _facts(folder, name, config, max_context_tokens)
    try:
        # Libraries of quantised weights compile functions of their own.
        with nullcontext() if hasattr(config, "quantization_config") else uncompiled():
            model: PreTrainedModel = AutoModelForCausalLM.from_pretrained(
                folder, dtype=torch_type, local_files_only=True
            )
    except (OSError, ValueError, RuntimeError) as error:
        raise ModelUnavailableError(f"needs a loadable causal LM in {folder}, found: {error}") from error
    model = model.to(device).eval().requires_grad_(requires_grad=False)  # type: ignore[arg-type]
    return LoadedModel(**vars(facts), model=model)


def _facts(folder: Path, name: str, config: PretrainedConfig, max_context_tokens: int | None) -> ModelFacts:
    context = context_tokens(config, max_context_tokens)
    tokenizer = read_tokenizer(folder)
    tokens = token_map(tokenizer)
    return ModelFacts(
        tokenizer=tokenizer,
        vocab_size=usable_vocab_size(tokens, config.vocab_size),  # at most the head's width
        eos_token_ids=_eos_token_ids(folder, config, tokenizer),
        max_context_tokens=context,
        name=name,
        model_hash=model_hash(folder),
        token_map_hash=tokens.sha256(),
    )


def _eos_token_ids(folder: Path, config: PretrainedConfig, tokenizer: PreTrainedTokenizerBase) -> tuple[int, ...]:
    """Return all end tokens: those of generation_config.json (else config.json) and the tokenizer's own."""
    try:
        named = GenerationConfig.from_pretrained(folder, local_files_only=True).eos_token_id
    except OSError:
        named = config.eos_token_id
    listed = named if isinstance(named, list) else [named]
    return tuple(sorted({token for token in (*listed, tokenizer.eos_token_id) if token is not None}))

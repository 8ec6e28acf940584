"""Build a distilled drafter as an ordinary transformers causal LM around the target's embedding and head.

The model has the target's class and config with fewer layers, so any Llama-like target works, and every engine runs it
unchanged. Its ``lm_head`` is two steps, ``h @ projection`` and then the target's head: no second matrix of vocabulary
size is made, and in one process target and drafter share the embedding's memory. A drafter that proposes frequent
tokens only has a head of its own: their rows with the projection multiplied in, as a small drafter's head has more
weights than all its layers.
"""

import copy
import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import PretrainedConfig

from outrider.contracts.errors import ModelUnavailableError, VocabularyMismatchError
from outrider.models.drafter_weights import DrafterInfo, DrafterWeights, read_drafter
from outrider.models.model_classes import AutoModelForCausalLM, PreTrainedModel
from outrider.models.target_folder import model_hash, read_config, read_embedding_and_head
from outrider.models.uncompiled import uncompiled

_log = logging.getLogger(__name__)


def drafter_config(target: PretrainedConfig, source_layers: tuple[int, ...]) -> PretrainedConfig:
    depth = target.num_hidden_layers
    if not source_layers or not all(0 <= layer < depth for layer in source_layers):
        raise ModelUnavailableError(
            f"needs source layers within 0..{depth - 1} of the target, found {list(source_layers)}; "
            "this drafter belongs to another target"
        )
    config = copy.deepcopy(target)
    if getattr(config, "layer_types", None):
        config.layer_types = [target.layer_types[layer] for layer in source_layers]
    config.num_hidden_layers = len(source_layers)
    config.tie_word_embeddings = False  # the head is not the embedding alone: nothing may tie them again
    return config


def build_drafter(
    config: PretrainedConfig,
    weights: DrafterWeights,
    embedding: torch.Tensor,
    head: torch.Tensor | None,
) -> PreTrainedModel:
    """Build a causal LM in the embedding's dtype and on its device, in eval mode and without gradients.

    Args:
        config: from ``drafter_config``.
        weights: the drafter's own parameters.
        embedding: the target's ``[vocab, hidden]``; shared, not copied.
        head: the target's ``[vocab, hidden]``; None if tied to the embedding.

    Raises:
        ModelUnavailableError: config and weights do not fit, or the architecture is not Llama-like.
    """
    _check_head_ids(weights.head_ids, len(embedding))
    dtype, device = embedding.dtype, embedding.device
    with uncompiled(), torch.device("meta"):
        model: Any = AutoModelForCausalLM.from_config(config, dtype=dtype)
    body = model.base_model
    try:
        body.embed_tokens.weight = nn.Parameter(embedding, requires_grad=False)
        body.rotary_emb = type(body.rotary_emb)(config=config).to(device)
        body.layers.load_state_dict({k: v.to(device, dtype) for k, v in weights.layers.items()}, assign=True)
        body.norm.load_state_dict({"weight": weights.norm.to(device, dtype)}, assign=True)
    except (AttributeError, RuntimeError) as error:
        reason = " ".join(str(error).split())  # torch's messages span several lines
        raise ModelUnavailableError(
            f"needs a Llama-like target whose layers fit the drafter's, found {config.model_type}: {reason}; "
            "distil a drafter from this target"
        ) from error
    rows = body.embed_tokens.weight if head is None else head
    if weights.head_ids is None:
        model.lm_head = projected_head(weights.projection.to(device, dtype), rows)
    else:
        model.lm_head = FrequentHead(weights.projection.to(device), rows, weights.head_ids)
    unfilled = [name for name, value in (*model.named_parameters(), *model.named_buffers()) if value.is_meta]
    if unfilled:
        raise ModelUnavailableError(
            f"needs a Llama-like target, found {config.model_type} with {unfilled[:3]} unfilled"
        )
    built: PreTrainedModel = model.eval().requires_grad_(requires_grad=False)
    return built


def projected_head(projection: torch.Tensor, head: torch.Tensor) -> nn.Sequential:
    """Return ``h -> (h @ projection) @ head.T`` of ``[hidden, hidden]`` and ``[vocab, hidden]``, which is shared."""
    vocab, hidden = head.shape
    with torch.device("meta"):
        steps = nn.Linear(hidden, hidden, bias=False), nn.Linear(hidden, vocab, bias=False)
    steps[0].weight = nn.Parameter(projection.T.contiguous(), requires_grad=False)
    steps[1].weight = nn.Parameter(head, requires_grad=False) if not isinstance(head, nn.Parameter) else head
    return nn.Sequential(*steps)


class FrequentHead(nn.Module):
    """Head of a drafter that proposes only some tokens."""

    def __init__(self, projection: torch.Tensor, head: torch.Tensor, token_ids: torch.Tensor) -> None:
        """Take the rows ``token_ids`` of the target's ``head`` ``[vocab, hidden]``, multiplied by the projection."""
        super().__init__()
        self.vocab_size, hidden = head.shape
        self.token_ids = token_ids.to(head.device)
        rows = (head[self.token_ids].float() @ projection.float().T).to(head.dtype)
        with torch.device("meta"):
            self.rows = nn.Linear(hidden, len(rows), bias=False)
        self.rows.weight = nn.Parameter(rows, requires_grad=False)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """``[..., hidden] -> [..., vocab]``, -inf for tokens that it does not propose."""
        return self.whole(self.rows(hidden))

    def whole(self, logits: torch.Tensor) -> torch.Tensor:
        spread = logits.new_full((*logits.shape[:-1], self.vocab_size), float("-inf"))
        spread[..., self.token_ids] = logits
        return spread


def output_head(model: PreTrainedModel) -> torch.Tensor:
    weight: torch.Tensor = model.get_output_embeddings().weight
    return weight


def input_embedding(model: PreTrainedModel) -> torch.Tensor:
    weight: torch.Tensor = model.get_input_embeddings().weight  # type: ignore[assignment]
    return weight


def load_drafter(file: Path, target: PreTrainedModel) -> PreTrainedModel:
    """Load a drafter that shares embedding and head with a target in this process."""
    info, weights = read_drafter(file)
    config = target.config.get_text_config(decoder=True)
    check_sizes(info, config, file)
    config = drafter_config(config, info.source_layers)
    return build_drafter(config, weights, input_embedding(target), output_head(target))


def load_drafter_from_target_dir(
    file: Path, folder: Path, *, dtype: torch.dtype, device: str, whole_head: bool = False
) -> PreTrainedModel:
    """Load a drafter on a machine without the target: reads only embedding and head from the target's folder.

    With ``whole_head`` it proposes any token, whatever the file says.
    """
    info, weights = read_drafter(file)
    if whole_head:
        weights = replace(weights, head_ids=None)
    config = read_config(folder)
    check_sizes(info, config, file)
    if info.target_hash != (found := model_hash(folder)):
        _log.warning(
            "drafter %s was distilled from %s (hash %.12s), found a target with hash %.12s: same sizes, so it works, "
            "but may be accepted less often",
            file.name,
            info.target,
            info.target_hash,
            found,
        )
    embedding, head = read_embedding_and_head(folder, dtype=dtype, device=device)
    return build_drafter(drafter_config(config, info.source_layers), weights, embedding, head)


def check_sizes(info: DrafterInfo, target: PretrainedConfig, file: Path) -> None:
    if info.hidden_size != target.hidden_size:
        raise ModelUnavailableError(
            f"drafter {file.name} needs a target of hidden size {info.hidden_size} ({info.target}), found "
            f"{target.hidden_size}; use the drafter distilled from this target"
        )


def _check_head_ids(token_ids: torch.Tensor | None, vocab_size: int) -> None:
    if token_ids is None:
        return
    ascending = len(token_ids) > 0 and bool((token_ids.diff() > 0).all())
    if not ascending or token_ids[0] < 0 or token_ids[-1] >= vocab_size:
        raise ModelUnavailableError(
            f"needs head_ids of a drafter ascending within 0..{vocab_size - 1}, found {token_ids.tolist()[:3]}..; "
            "distil the drafter again"
        )


def check_token_map_hash(info: DrafterInfo, token_map_hash: str, target_name: str, file: Path) -> None:
    if info.token_map_hash != token_map_hash:
        raise VocabularyMismatchError(
            f"drafter {file.name} needs the token map of {info.target} (sha256 {info.token_map_hash}), found "
            f"{token_map_hash} in {target_name}; use the drafter distilled from this target"
        )

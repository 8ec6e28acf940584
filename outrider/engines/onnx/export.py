"""Export a draft model to one .onnx file, where torch and the target's files are: no device needs either."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from outrider import __version__
from outrider.contracts.errors import UnsupportedModelError
from outrider.documents.whole_file import whole_file
from outrider.engines.onnx.exported import METADATA_KEY, ExportedDrafter, KvShape
from outrider.engines.onnx.graph import Decoder, DecoderLayer, Linear, decoder_graph
from outrider.engines.torch.fused.model import has_known_layers
from outrider.models.drafter_model import FrequentHead
from outrider.models.identity import ModelIdentity
from outrider.models.loading import LoadedModel

_LONGEST_TABLE = 131_072  # positions whose rotations are in the file
_TEXTS, _CALIBRATED = 4, 128  # of random tokens, by which 8-bit keys and values are scaled
_MARGIN = 1.5  # texts have had up to 2.6 times as large values, keys 2.2; up to a power of two is added
_MOST_BYTES = 2**31 - 2**20  # of one protobuf message
_Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class Exported:
    drafter: ExportedDrafter
    size_bytes: int


def export_drafter(drafter: LoadedModel, file: Path, *, quantise: bool = True) -> Exported:
    """Write ``drafter`` to ``file``; equal models give equal bytes. The file appears whole or not at all.

    Args:
        drafter: loaded in float32 on the CPU.
        file: its place.
        quantise: to 8 bits; else float32, to compare with.

    Raises:
        UnsupportedModelError: its architecture cannot be exported, or the file would be larger than ONNX allows.
    """
    _check(drafter.model)
    with torch.inference_mode():
        decoder, token_ids = _decoder(drafter)
    shape = KvShape(len(decoder.layers), decoder.kv_heads, decoder.width, 1 if quantise else 4)
    identity = replace(ModelIdentity.of(drafter), max_context_tokens=len(decoder.cosines))
    card = ExportedDrafter(identity, shape, __version__, token_ids)
    model = decoder_graph(decoder, quantise=quantise)
    model.metadata_props.add(key=METADATA_KEY, value=card.described())
    if (size := model.ByteSize()) > _MOST_BYTES:
        raise UnsupportedModelError(
            f"needs a draft model of less than 2 GiB when exported, found {drafter.name} with {size / 2**30:.1f} GiB; "
            "distil a smaller one with `outrider distill`, or draft with engine torch"
        )
    with whole_file(file) as partial:
        partial.write_bytes(model.SerializeToString(deterministic=True))
        partial.chmod(0o644)
    return Exported(card, size)


def _check(model: Any) -> None:
    config = model.config
    width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    if not has_known_layers(model) or width % 16:
        raise UnsupportedModelError(
            "needs a draft model of Llama, Mistral, Qwen 2 or Qwen 3 with full attention, SiLU and heads of a multiple "
            f"of 16, found {type(model).__name__} with heads of {width}; draft with engine torch, or distil a drafter "
            "from a target of these families"
        )


def _decoder(drafter: LoadedModel) -> tuple[Decoder, _Array | None]:
    model: Any = drafter.model
    body, config = model.base_model, model.config
    attention = body.layers[0].self_attn
    positions = torch.arange(min(drafter.max_context_tokens, _LONGEST_TABLE))[None]
    tables = body.rotary_emb(torch.empty(0, dtype=torch.float32), positions)
    width = tables[0].shape[-1]
    cosines, sines = (_array(table[0, :, : width // 2]) for table in tables)
    head, token_ids = _head(model.get_output_embeddings(), drafter.vocab_size)
    decoder = Decoder(
        embedding=_array(body.embed_tokens.weight[: drafter.vocab_size]),
        layers=[_layer(*one) for one in zip(body.layers, _kv_scales(body, drafter), strict=True)],
        norm=_array(body.norm.weight),
        head=head,
        cosines=cosines,
        sines=sines,
        heads=config.num_attention_heads,
        kv_heads=config.num_key_value_heads,
        width=width,
        epsilon=float(config.rms_norm_eps),
        scale=float(attention.scaling),
    )
    return decoder, token_ids


def _layer(layer: Any, kv_scales: tuple[_Array, _Array]) -> DecoderLayer:
    attention, mlp = layer.self_attn, layer.mlp
    normed = hasattr(attention, "q_norm")
    return DecoderLayer(
        before=_array(layer.input_layernorm.weight),
        between=_array(layer.post_attention_layernorm.weight),
        attention=(_linear(attention.q_proj), _linear(attention.k_proj), _linear(attention.v_proj)),
        norms=(_array(attention.q_norm.weight), _array(attention.k_norm.weight)) if normed else None,
        output=_linear(attention.o_proj),
        gate=_linear(mlp.gate_proj),
        up=_linear(mlp.up_proj),
        down=_linear(mlp.down_proj),
        kv_scales=kv_scales,
    )


def _kv_scales(body: Any, drafter: LoadedModel) -> list[tuple[_Array, _Array]]:
    """Return each layer's scales of keys and values, from what random tokens make of them.

    A rotation by another position changes both keys of a pair and leaves its length: that is the range of both.
    """
    length, generator = min(_CALIBRATED, drafter.max_context_tokens), torch.Generator().manual_seed(0)
    tokens = torch.randint(drafter.vocab_size, (_TEXTS, length), generator=generator)
    found = []
    for layer in body(tokens, use_cache=True).past_key_values.layers:
        pairs = layer.keys.unflatten(-1, (2, -1)).norm(dim=-2).repeat(1, 1, 1, 2)
        steps = [(_MARGIN / 127 * one.abs().amax((0, 2)).ravel()).clamp_min(1e-30) for one in (pairs, layer.values)]
        # whole powers of two: the same bytes on processors that add in another order
        keys, values = (_array(torch.exp2(torch.ceil(torch.log2(step)))) for step in steps)
        found.append((keys, values))
    return found


def _head(head: nn.Module, vocab_size: int) -> tuple[Linear, _Array | None]:
    """Return one product in place of a distilled drafter's two, without padding, and the tokens it proposes."""
    if isinstance(head, FrequentHead):
        kept = head.token_ids < vocab_size
        return Linear(_array(head.rows.weight[kept])), head.token_ids[kept].numpy().astype(np.int64)
    if isinstance(head, nn.Sequential):
        projection, rows = head
        return Linear(_array(rows.weight[:vocab_size].float() @ projection.weight.float())), None  # type: ignore[index, operator]
    whole = _linear(head)
    return Linear(whole.weight[:vocab_size], None if whole.bias is None else whole.bias[:vocab_size]), None


def _linear(layer: Any) -> Linear:
    return Linear(_array(layer.weight), None if layer.bias is None else _array(layer.bias))


def _array(tensor: torch.Tensor) -> _Array:
    return tensor.detach().float().contiguous().numpy()

"""Build the ONNX graph of a Llama-like decoder: for one pass over new tokens, logits of each sequence's last.

Keys and values are inputs and, in the same memory, outputs: attention writes the new ones behind ``lengths`` earlier
positions of a sequence's row, so to take tokens back is to name a smaller length. Weights are quantised to 8 bits in
blocks of 32 with a scale each, and multiplied as integers: the massive activations of small models are too much for one
scale a tensor.

Inputs: ``token_ids`` ``[B, S]`` int64; ``last`` ``[B]`` int32, position of each sequence's last new token; ``total``
int32, the largest ``last + 1``; ``keys.<i>`` and ``values.<i>`` ``[B, heads, L, width]``. Outputs: ``logits``
``[B, n]``, ``new_keys.<i>``, ``new_values.<i>``. Keys and values are quantised, too, with a scale a channel: on CPUs
onnxruntime's attention over int8 takes half the time of that over float32.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
from onnx import ModelProto, NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper

BLOCK = 32  # inputs with one scale
_CONTRIB = "com.microsoft"  # onnxruntime's own operators
_OPSET, _CONTRIB_OPSET, _IR_VERSION = 20, 1, 10
_AS_INTEGERS = 4  # ``accuracy_level``: activations are quantised to 8 bits, too

_Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class Linear:
    weight: _Array  # ``[outputs, inputs]`` float32
    bias: _Array | None = None  # ``[outputs]``


@dataclass(frozen=True, slots=True)
class DecoderLayer:
    before: _Array  # norm weights
    between: _Array
    attention: tuple[Linear, Linear, Linear]  # of query, key and value
    norms: tuple[_Array, _Array] | None  # of query and key, where these are normed
    output: Linear
    gate: Linear
    up: Linear
    down: Linear
    kv_scales: tuple[_Array, _Array]  # of int8 keys and values, each ``[heads * width]``


@dataclass(frozen=True, slots=True)
class Decoder:
    embedding: _Array  # ``[vocab, hidden]``
    layers: Sequence[DecoderLayer]
    norm: _Array
    head: Linear  # ``[n, hidden]``
    cosines: _Array  # ``[positions, width / 2]``
    sines: _Array
    heads: int
    kv_heads: int
    width: int
    epsilon: float
    scale: float  # of attention


@dataclass(slots=True)
class _Graph:
    quantised: bool
    nodes: list[NodeProto] = field(default_factory=list)
    constants: list[TensorProto] = field(default_factory=list)

    def constant(self, name: str, values: _Array) -> str:
        self.constants.append(numpy_helper.from_array(np.asarray(values, order="C"), name))
        return name

    def node(self, kind: str, inputs: Sequence[str], outputs: Sequence[str], domain: str = "", **options: Any) -> str:
        """Add an operation and return the name of its first output."""
        self.nodes.append(helper.make_node(kind, inputs, outputs, domain=domain, **options))
        return outputs[0]

    def product(self, rows: str, linears: Sequence[Linear], name: str) -> str:
        """``[.., inputs] -> [.., all outputs]`` of layers with the same input."""
        weight = np.concatenate([linear.weight for linear in linears])
        if self.quantised:
            numbers, scales = quantised(weight)
            inputs = [rows, self.constant(f"{name}.weight", numbers), self.constant(f"{name}.scale", scales)]
            outputs, width = weight.shape
            size = {"N": outputs, "K": width, "bits": 8, "block_size": BLOCK, "accuracy_level": _AS_INTEGERS}
            made = self.node("MatMulNBits", inputs, [name], _CONTRIB, **size)
        else:
            made = self.node("MatMul", [rows, self.constant(f"{name}.weight", weight.T)], [name])
        if all(linear.bias is None for linear in linears):
            return made
        bias = [np.zeros(len(one.weight), np.float32) if one.bias is None else one.bias for one in linears]
        return self.node("Add", [made, self.constant(f"{name}.bias", np.concatenate(bias))], [f"{name}.sum"])

    def embedded(self, embedding: _Array) -> str:
        """Look the tokens up: int8 with a scale a row."""
        if not self.quantised:
            return self.node("Gather", [self.constant("embedding", embedding), "tokens"], ["embedded"])
        scales = np.maximum(np.abs(embedding).max(1, keepdims=True) / 127, np.finfo(np.float32).tiny)
        rows = self.constant("embedding", np.rint(embedding / scales).astype(np.int8))
        scale = self.constant("embedding.scale", scales.astype(np.float32))
        row = self.node("Cast", [self.node("Gather", [rows, "tokens"], ["row"])], ["row.float"], to=TensorProto.FLOAT)
        return self.node("Mul", [row, self.node("Gather", [scale, "tokens"], ["row.scale"])], ["embedded"])


def quantised(weight: _Array) -> tuple[_Array, _Array]:
    """Return 8-bit numbers ``[outputs, blocks, 32]`` around 128 and scales ``[outputs * blocks]`` float32."""
    outputs, inputs = weight.shape
    blocks = -(-inputs // BLOCK)
    parts = np.zeros((outputs, blocks * BLOCK), np.float32)
    parts[:, :inputs] = weight
    parts = parts.reshape(outputs, blocks, BLOCK)
    scales = np.maximum(np.abs(parts).max(-1) / 127, np.finfo(np.float32).tiny).astype(np.float32)
    numbers = np.clip(np.rint(parts / scales[..., None]), -127, 127) + 128
    return numbers.astype(np.uint8), scales.ravel()


def decoder_graph(decoder: Decoder, *, quantise: bool = True) -> ModelProto:
    """Return the model without metadata; unquantised it computes in float32, to compare with."""
    graph = _Graph(quantise)
    residual, delta = graph.embedded(decoder.embedding), ""
    graph.constant("cosines", decoder.cosines)
    graph.constant("sines", decoder.sines)
    for number, layer in enumerate(decoder.layers):
        normed, residual = _normed(graph, residual, delta, layer.before, f"before.{number}", decoder)
        attended = graph.product(_attended(graph, normed, layer, number, decoder), [layer.output], f"output.{number}")
        normed, residual = _normed(graph, residual, attended, layer.between, f"between.{number}", decoder)
        both = graph.product(normed, [layer.gate, layer.up], f"gate_up.{number}")
        gate, up = f"gate.{number}", f"up.{number}"
        graph.node("Split", [both], [gate, up], axis=-1, num_outputs=2)
        opened = graph.node("Mul", [gate, graph.node("Sigmoid", [gate], [f"{gate}.sigmoid"])], [f"{gate}.silu"])
        delta = graph.product(graph.node("Mul", [opened, up], [f"gated.{number}"]), [layer.down], f"down.{number}")
    normed, _ = _normed(graph, residual, delta, decoder.norm, "norm", decoder)
    last = graph.node("Gather", [normed, graph.constant("end", np.array(-1, np.int64))], ["last_hidden"], axis=1)
    graph.node("Identity", [graph.product(last, [decoder.head], "head")], ["logits"])
    made = helper.make_graph(graph.nodes, "drafter", _inputs(decoder, graph), _outputs(decoder, graph), graph.constants)
    opsets = [helper.make_opsetid("", _OPSET), helper.make_opsetid(_CONTRIB, _CONTRIB_OPSET)]
    return helper.make_model(made, opset_imports=opsets, ir_version=_IR_VERSION, producer_name="outrider")


def _normed(graph: _Graph, residual: str, delta: str, weight: _Array, name: str, decoder: Decoder) -> tuple[str, str]:
    """Add ``delta``, if there is one, to the residual; return its norm and the sum."""
    scale = graph.constant(f"{name}.weight", weight)
    if not delta:
        kind, made = "SimplifiedLayerNormalization", [f"{name}.normed"]
        return graph.node(kind, [residual, scale], made, epsilon=decoder.epsilon, axis=-1), residual
    made = [f"{name}.normed", "", "", f"{name}.sum"]
    inputs = [residual, delta, scale]
    graph.node("SkipSimplifiedLayerNormalization", inputs, made, _CONTRIB, epsilon=decoder.epsilon)
    return made[0], made[-1]


def _attended(graph: _Graph, normed: str, layer: DecoderLayer, number: int, decoder: Decoder) -> str:
    projected = [graph.product(normed, layer.attention, f"attention.{number}"), "", ""]
    if layer.norms is not None:
        projected = _normed_heads(graph, projected[0], layer.norms, number, decoder)
    caches = [f"keys.{number}", f"values.{number}"]
    inputs, options = [*projected, *caches, "last", "total", "cosines", "sines"], dict[str, Any]()
    if graph.quantised:
        names = [graph.constant(f"{name}.scale", one) for name, one in zip(caches, layer.kv_scales, strict=True)]
        inputs += ["", "", "", *names]  # without position_ids, attention_bias and head_sink
        options = {"kv_cache_bit_width": 8, "k_quant_type": "PER_CHANNEL", "v_quant_type": "PER_CHANNEL"}
    return graph.node(
        "GroupQueryAttention",
        inputs,
        [f"attended.{number}", *(f"new_{name}" for name in caches)],
        _CONTRIB,
        num_heads=decoder.heads,
        kv_num_heads=decoder.kv_heads,
        do_rotary=1,
        scale=decoder.scale,
        **options,
    )


def _normed_heads(
    graph: _Graph, projected: str, norms: tuple[_Array, _Array], number: int, decoder: Decoder
) -> list[str]:
    """Norm each head of query and key, as Qwen 3 does; return query, key and value."""
    parts = [f"{name}.{number}" for name in ("query", "key", "value")]
    width, heads = decoder.width, (decoder.heads, decoder.kv_heads, decoder.kv_heads)
    sizes = graph.constant(f"parts.{number}", np.array([width * count for count in heads], np.int64))
    graph.node("Split", [projected, sizes], parts, axis=-1)
    apart = graph.constant(f"apart.{number}", np.array([0, 0, -1, width], np.int64))
    together = graph.constant(f"together.{number}", np.array([0, 0, -1], np.int64))
    for index, weight in enumerate(norms):
        name = parts[index]
        shaped, scale = (
            graph.node("Reshape", [name, apart], [f"{name}.heads"]),
            graph.constant(f"{name}.weight", weight),
        )
        kind, made = "SimplifiedLayerNormalization", [f"{name}.normed"]
        normed = graph.node(kind, [shaped, scale], made, epsilon=decoder.epsilon, axis=-1)
        parts[index] = graph.node("Reshape", [normed, together], [f"{name}.flat"])
    return parts


def _inputs(decoder: Decoder, graph: _Graph) -> list[ValueInfoProto]:
    tokens = helper.make_tensor_value_info("tokens", TensorProto.INT64, ["B", "S"])
    last = helper.make_tensor_value_info("last", TensorProto.INT32, ["B"])
    return [tokens, last, helper.make_tensor_value_info("total", TensorProto.INT32, []), *_caches(decoder, graph, "")]


def _outputs(decoder: Decoder, graph: _Graph) -> list[ValueInfoProto]:
    shape: list[str | int | None] = ["B", len(decoder.head.weight)]
    return [helper.make_tensor_value_info("logits", TensorProto.FLOAT, shape), *_caches(decoder, graph, "new_")]


def _caches(decoder: Decoder, graph: _Graph, prefix: str) -> list[ValueInfoProto]:
    shape: list[str | int | None] = ["B", decoder.kv_heads, "L", decoder.width]
    names = [f"{prefix}{kind}.{number}" for number in range(len(decoder.layers)) for kind in ("keys", "values")]
    kind = TensorProto.INT8 if graph.quantised else TensorProto.FLOAT
    return [helper.make_tensor_value_info(name, kind, shape) for name in names]

"""Forward pass of a Llama-family decoder on a CPU, in compiled loops over the same paged pool as ``PagedModel``.

Transformers' modules take ten small operations for a norm and as many for a rotation; here each is part of one loop
(``kernels``). Attention (``attending``) reads keys and values in place. The residual stays in float32. A row's result
depends on its own prefix only, as no loop mixes rows. Linear layers are those the model was given: ``products``, packed
(``linears``), quantised (``int8``) or torch's own.

A pass of many rows is cut into parts, each computed by one thread through all layers. Threads that share each linear
layer would wait for each other two hundred times a pass, and for other processes on their cores.
"""

import platform
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import cache
from threading import Event
from typing import Any

import numpy as np
import torch
from llvmlite import binding
from numpy.typing import NDArray
from torch import Tensor, nn

from outrider.contracts.tree import ancestors
from outrider.engines.forward_model import PassResult
from outrider.engines.kv.host_cache import HostCopy
from outrider.engines.segments import Move, Segment
from outrider.engines.torch.fused.attending import attend
from outrider.engines.torch.fused.kernels import add_and_normalise, gate, write
from outrider.engines.torch.fused.products import PanelProduct, as_tensor, stored_numbers
from outrider.engines.torch.replacing import together
from outrider.engines.torch.sizes import LARGEST
from outrider.models.model_classes import PreTrainedModel

_FAMILY = {"LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM"}
_FIXED_ROTATION = {"default", "linear", "llama3", "yarn"}  # the rotation of a position does not depend on text length
_ROWS_A_THREAD = 4
_ROWS_A_PART = 24  # with fewer, a second part is no gain when other processes use its core
_STORED = {torch.bfloat16: np.uint16, torch.float32: np.float32}

_Array = NDArray[Any]
_Product = Callable[[_Array], _Array]  # of rows in the stored type


def can_fuse(model: PreTrainedModel) -> bool:
    """Whether ``FusedModel`` computes this model, on this device."""
    fits = model.device.type == "cpu" and model.dtype in _STORED
    return fits and has_known_layers(model) and _multiplies_and_adds()


def has_known_layers(model: PreTrainedModel) -> bool:
    """Whether a model is of the layers that are known here, whatever computes them."""
    config = model.config
    if type(model).__name__ not in _FAMILY:
        return False
    layers = getattr(config, "layer_types", None) or ["full_attention"]
    windowed = bool(getattr(config, "sliding_window", None)) and getattr(config, "use_sliding_window", True)
    return (
        not windowed
        and set(layers) == {"full_attention"}
        and config.hidden_act == "silu"
        and config.rope_parameters.get("rope_type", "default") in _FIXED_ROTATION
        and config.rope_parameters.get("partial_rotary_factor", 1.0) == 1.0
    )


@dataclass(frozen=True, slots=True)
class _FusedLayer:
    """One layer's linear layers, norm weights (float32), and keys and values of the pool."""

    project: _Product
    output: _Product
    up: _Product
    down: _Product
    before: _Array
    between: _Array
    query: _Array  # empty: not normed
    key: _Array
    keys: _Array  # ``[kv_heads, blocks, d, block_tokens]``, or d / 2 pairs of bfloat16
    values: _Array  # ``[kv_heads, slots, d]``


@dataclass(frozen=True, slots=True)
class _FusedRows:
    """Positions, slots and visible keys of a pass's rows; fields as the arguments of ``attending.attend``."""

    positions: _Array
    slots: _Array
    sequences: _Array
    lengths: _Array
    tables: _Array
    paths: _Array

    def of(self, part: slice) -> "_FusedRows":
        return _FusedRows(
            self.positions[part],
            self.slots[part],
            self.sequences[part],
            self.lengths[part],
            self.tables,
            self.paths[part],
        )


class FusedModel:
    """``MaskedModel`` and ``SwappingModel`` for CPUs; batch-invariant if its linear layers are."""

    def __init__(self, model: PreTrainedModel, total_blocks: int, block_tokens: int, parts: int = 1) -> None:
        """Take over a model for which ``can_fuse``, whose linear layers are replaced already, and allocate the pool.

        ``parts``: most parts of a pass, each computed by a thread.
        """
        config: Any = model.config
        body: Any = model.base_model
        self.total_blocks, self.block_tokens = total_blocks, block_tokens
        self._stored = _STORED[model.dtype]
        self._heads, self._width = config.num_attention_heads, _head_dim(config)
        self._kv_heads, self._eps = config.num_key_value_heads, np.float32(config.rms_norm_eps)
        self._embedding, self._last_norm = body.embed_tokens, _weight(body.norm)
        self._head = _product(model.get_output_embeddings())
        keys, values = self._pool = self._pools(len(body.layers))
        self.give_host_memory(0)
        self._layers = [self._layer(*parts) for parts in zip(body.layers, keys, values, strict=True)]
        self._cosines, self._sines = self._rotation(body.rotary_emb, config.max_position_embeddings)
        self._scale = np.float32(body.layers[0].self_attn.scaling)
        threads = torch.get_num_threads()
        self._threads = ThreadPoolExecutor(threads)
        self._beside = ThreadPoolExecutor(parts - 1, "part", torch.set_num_threads, (threads,)) if parts > 1 else None
        self._parts = parts
        # Compiles what is not cached on disk.
        self.no_logits = self.forward([Segment([0], 0, [0], 1)]).logits[:0].clone()

    @property
    def pools(self) -> list[_Array]:
        return [pool for layer in self._layers for pool in (layer.keys, layer.values)]

    @torch.inference_mode()
    def forward(self, segments: Sequence[Segment], *, want_hidden: bool = False) -> PassResult:
        """Compute the segments' KV in place, and return the logits they want, as ``PagedModel.forward``."""
        rows, wanted = _rows(segments, self.block_tokens)
        packed = torch.tensor([token for segment in segments for token in segment.token_ids])
        cuts = self._cuts(len(packed))
        written = [[Event() for _ in self._layers] for _ in cuts[1:]]

        def some(number: int) -> _Array:
            first, last = cuts[number], cuts[number + 1]
            part, here = slice(first, last), wanted[(wanted >= first) & (wanted < last)] - first
            try:
                return self._hidden(packed[part], rows.of(part), here, written[: number + 1])
            finally:  # after a failure, too, or the parts behind this one would wait for ever
                for event in written[number]:
                    event.set()

        *before, last = range(len(cuts) - 1)
        others = [self._beside.submit(some, number) for number in before] if self._beside is not None else []
        try:
            own = some(last)
        finally:  # after a failure, too, no thread may still write into the pool
            wait(others)
        hidden = np.concatenate([*(other.result() for other in others), own]) if others else own
        return PassResult(as_tensor(self._head(hidden)), as_tensor(hidden) if want_hidden else None)

    def _cuts(self, rows: int) -> list[int]:
        """Return where a pass is cut into parts: ``[0, .., rows]``. No cut changes a bit."""
        parts = max(1, min(self._parts, rows // _ROWS_A_PART))
        cuts = [rows * part // parts for part in range(parts + 1)]
        if rows >= 2 * parts * LARGEST:  # cut where linear layers, which take LARGEST rows at once, would cut as well
            cuts[1:-1] = [LARGEST * round(cut / LARGEST) for cut in cuts[1:-1]]
        return cuts

    @torch.inference_mode()
    def _hidden(
        self, token_ids: Tensor, rows: _FusedRows, wanted: _Array, written: Sequence[Sequence[Event]]
    ) -> _Array:
        """Compute the ``[len(wanted), d]`` final hidden states of a part of a pass.

        ``written[p][layer]`` is set once part ``p`` has written that layer's keys and values. The last ``p`` is this
        part's; it waits for the others, whose rows it may attend to.
        """
        *before, own = written
        residual = self._embedding(token_ids).float().numpy()
        delta = np.empty((0, residual.shape[1]), np.float32)
        for number, layer in enumerate(self._layers):
            projected = layer.project(self._normed(residual, delta, layer.before))
            self._write(layer, projected, rows)
            own[number].set()
            for part in before:
                part[number].wait()
            delta = layer.output(self._attended(layer, projected, rows))
            normed = self._normed(residual, delta, layer.between)
            delta = layer.down(self._gated(layer.up(normed)))
        return self._normed(residual[wanted], delta[wanted], self._last_norm)

    @torch.inference_mode()
    def move(self, moves: Sequence[Move]) -> None:
        size = self.block_tokens
        sources = np.array([_slot(move.blocks, at, size) for move in moves for at in move.sources], np.int64)
        targets = np.array([_slot(move.blocks, at, size) for move in moves for at in move.targets], np.int64)
        for layer in self._layers:
            layer.keys[:, targets // size, :, targets % size] = layer.keys[:, sources // size, :, sources % size]
            layer.values[:, targets] = layer.values[:, sources]

    def give_host_memory(self, slots: int) -> None:
        keys, values = self._pool
        self._host = (
            np.zeros((slots, *keys.shape[:2], *keys.shape[3:]), keys.dtype),
            np.zeros((slots, *values.shape[:2], self.block_tokens, self._width), values.dtype),
        )

    def swap(self, copies: Sequence[HostCopy]) -> None:
        size, (keys, values), (host_keys, host_values) = self.block_tokens, self._pool, self._host
        for copy in copies:
            positions = slice(copy.block * size, (copy.block + 1) * size)
            if copy.out:
                host_keys[copy.slot], host_values[copy.slot] = keys[:, :, copy.block], values[:, :, positions]
            else:
                keys[:, :, copy.block], values[:, :, positions] = host_keys[copy.slot], host_values[copy.slot]

    def _pools(self, layers: int) -> tuple[_Array, _Array]:
        """Allocate keys and values of all layers as one array each, which the system maps in large pages."""
        paired = self._stored is not np.float32
        shape = layers, self._kv_heads, self.total_blocks
        keys = np.zeros((*shape, self._width // (1 + paired), self.block_tokens), np.uint32 if paired else np.float32)
        return keys, np.zeros((*shape[:2], self.total_blocks * self.block_tokens, self._width), self._stored)

    def _layer(self, layer: Any, keys: _Array, values: _Array) -> _FusedLayer:
        attention, mlp = layer.self_attn, layer.mlp
        nothing = np.empty(0, np.float32)
        return _FusedLayer(
            _product(attention.q_proj, attention.k_proj, attention.v_proj),
            _product(attention.o_proj),
            _product(mlp.gate_proj, mlp.up_proj),
            _product(mlp.down_proj),
            _weight(layer.input_layernorm),
            _weight(layer.post_attention_layernorm),
            _weight(attention.q_norm) if hasattr(attention, "q_norm") else nothing,
            _weight(attention.k_norm) if hasattr(attention, "k_norm") else nothing,
            keys,
            values,
        )

    @torch.inference_mode()
    def _rotation(self, rotary: Any, longest: int) -> tuple[_Array, _Array]:
        """Return ``[positions, d / 2]`` cosines and sines."""
        positions = torch.arange(min(longest, self.total_blocks * self.block_tokens))[None]
        both = rotary(torch.empty(0, dtype=torch.float32), positions)
        cosines, sines = (one[0, :, : self._width // 2].contiguous().numpy() for one in both)
        return cosines, sines

    def _normed(self, residual: _Array, delta: _Array, weight: _Array) -> _Array:
        out = np.empty(residual.shape, self._stored)
        add_and_normalise(residual, delta, weight, self._eps, out)
        return out

    def _gated(self, both: _Array) -> _Array:
        out = np.empty((len(both), both.shape[1] // 2), self._stored)
        gate(both, out)
        return out

    def _write(self, layer: _FusedLayer, projected: _Array, rows: _FusedRows) -> None:
        """Write keys and values of these rows into the pool."""
        turned = self._cosines, self._sines, rows.positions
        write(projected, self._heads, layer.key, self._eps, *turned, rows.slots, layer.keys, layer.values)

    def _attended(self, layer: _FusedLayer, projected: _Array, rows: _FusedRows) -> _Array:
        eps, cosines, sines = self._eps, self._cosines, self._sines
        keys, values, positions = layer.keys, layer.values, rows.positions
        out = np.empty((len(projected), self._heads * self._width), self._stored)

        def some(part: slice) -> None:
            attend(
                projected[part],
                layer.query,
                eps,
                cosines,
                sines,
                self._scale,
                positions[part],
                rows.sequences[part],
                rows.lengths[part],
                rows.tables,
                rows.paths[part],
                keys,
                values,
                out[part],
            )

        parts = min(torch.get_num_threads(), len(out) // _ROWS_A_THREAD)
        if parts <= 1:
            some(slice(None))
            return out
        cuts = [len(out) * part // parts for part in range(parts + 1)]
        list(self._threads.map(some, map(slice, cuts, cuts[1:])))
        return out


@cache
def _multiplies_and_adds() -> bool:
    """Whether this CPU has a fused multiply-add, on which all sums rely."""
    return platform.machine() not in {"x86_64", "AMD64"} or bool(binding.get_host_cpu_features().get("fma"))


def _rows(segments: Sequence[Segment], block_tokens: int) -> tuple[_FusedRows, _Array]:
    """Return the kernels' arguments for a pass, and the indices of rows that want logits."""
    positions = np.array([position for segment in segments for position in segment.positions()], np.int64)
    sequences = np.repeat(np.arange(len(segments)), [len(segment.token_ids) for segment in segments])
    tables = np.zeros((len(segments), max(-(-segment.stop // block_tokens) for segment in segments)), np.int64)
    at = np.concatenate([np.arange(segment.start, segment.stop) for segment in segments])
    wanted, first = list[int](), 0
    for number, segment in enumerate(segments):
        needed = -(-segment.stop // block_tokens)
        tables[number, :needed] = segment.blocks[:needed]
        first += len(segment.token_ids)
        wanted += range(first - segment.logit_rows, first)
    slots = tables[sequences, at // block_tokens] * block_tokens + at % block_tokens
    straight = at + 1  # slots a row sees of its sequence, itself included
    branches = _branches(segments, tables, block_tokens)
    paths = np.zeros((len(at), max(map(len, branches.values()), default=0)), np.int64)
    branch = np.zeros(len(at), np.int64)
    for row, path in branches.items():
        paths[row, : len(path)], branch[row] = path, len(path)
        straight[row] = segments[sequences[row]].tree_start
    lengths = np.stack([straight, branch], 1)
    return _FusedRows(positions, slots, sequences, lengths, tables, paths), np.array(wanted, np.int64)


def _branches(segments: Sequence[Segment], tables: _Array, block_tokens: int) -> dict[int, list[int]]:
    """Return the slots of the path of each row that is a tree node, the node itself last."""
    found, first = dict[int, list[int]](), 0
    for segment, table in zip(segments, tables, strict=True):
        if segment.parents:
            base, seen = segment.tree_start, ancestors(segment.parents)
            for node in range(max(0, segment.start - base), len(segment.parents)):
                path = base + seen[node].nonzero()[0]
                row = first + base + node - segment.start
                found[row] = (table[path // block_tokens] * block_tokens + path % block_tokens).tolist()
        first += len(segment.token_ids)
    return found


def _slot(blocks: Sequence[int], at: int, block_tokens: int) -> int:
    return blocks[at // block_tokens] * block_tokens + at % block_tokens


def _product(*layers: nn.Module) -> _Product:
    """Return layers with the same input as one product; without conversions where it is a ``PanelProduct``."""
    linear = together(layers)
    if isinstance(linear, PanelProduct):
        return linear.multiplied
    return lambda rows: stored_numbers(linear(as_tensor(rows)))


def _weight(norm: nn.Module) -> _Array:
    weight: Any = norm.weight
    found: _Array = weight.detach().float().numpy()
    return found


def _head_dim(config: Any) -> int:
    return int(getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads)

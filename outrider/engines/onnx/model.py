"""An exported drafter in onnxruntime: passes over rows of the KV pool, in place."""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

from outrider.contracts.errors import ModelUnavailableError
from outrider.contracts.exchanged import FloatRow
from outrider.engines.onnx.exported import ExportedDrafter
from outrider.engines.onnx.kv_rows import KvRows

_FATAL_ONLY = 4
_MOST_BINDINGS = 256  # spans of rows; each binds all buffers
_TYPES = {"tokens": "tensor(int64)", "last": "tensor(int32)", "total": "tensor(int32)"}
_FLOATS = "tensor(float)"


class OnnxModel:
    """``drafter``: what the file says of itself. Not thread-safe."""

    def __init__(self, file: Path, threads: int, sha256: str | None = None) -> None:
        """Load a file, after comparing its hash if one is given.

        Raises:
            ModelUnavailableError: no such file, another hash, damaged, or not exported by this version.
        """
        if sha256 is not None and (found := _sha256(file)) != sha256:
            raise ModelUnavailableError(f"needs {file} with sha256 {sha256}, found {found}; copy it again")
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
        options.log_severity_level = _FATAL_ONLY  # its errors are raised
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        try:
            session = onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
        except Exception as error:  # its exceptions have no base class of their own
            raise ModelUnavailableError(
                f"needs a drafter made by `outrider export drafter` at {file}, found: {str(error)[:300]}; copy it again"
            ) from error
        self._session: Any = session
        self.drafter = ExportedDrafter.read(session.get_modelmeta().custom_metadata_map, str(file))
        self._columns = self._checked(file)
        self._bindings: dict[tuple[int, int], Any] = {}
        self._bound_to = (-1, 0)

    def forward(self, token_ids: Sequence[Sequence[int]], first: int, lengths: Sequence[int], kv: KvRows) -> FloatRow:
        """Compute the KV of new tokens behind the first ``lengths`` positions of consecutive rows.

        Args:
            token_ids: ``[B, S]``; S is 1 where B is above 1.
            first: the first row.
            lengths: ``[B]`` positions before.
            kv: the rows, with room.

        Returns:
            ``[B, n]`` float32, logits after each row's last token; valid until the next pass.
        """
        tokens, last = np.asarray(token_ids, np.int64), np.asarray(lengths, np.int32) + np.int32(len(token_ids[0]) - 1)
        binding = self._binding(first, len(tokens), kv)
        binding.bind_cpu_input("tokens", tokens)
        binding.bind_cpu_input("last", last)
        binding.bind_cpu_input("total", np.array(last.max() + 1, np.int32))
        logits = np.empty((len(tokens), self._columns), np.float32)
        binding.bind_output("logits", "cpu", 0, np.float32, logits.shape, logits.ctypes.data)
        self._session.run_with_iobinding(binding)
        return logits

    def _binding(self, first: int, count: int, kv: KvRows) -> Any:
        """Return what binds these rows as keys and values, both read and written in place."""
        if self._bound_to != (kv.moved, id(kv)):
            self._bindings, self._bound_to = {}, (kv.moved, id(kv))
        found = self._bindings.get((first, count))
        if found is not None:
            return found
        binding = self._session.io_binding()
        for number, buffer in enumerate(kv.buffers):
            rows, name = buffer[first : first + count], f"{('keys', 'values')[number % 2]}.{number // 2}"
            place = "cpu", 0, rows.dtype, rows.shape, rows.ctypes.data
            binding.bind_input(name, *place)
            binding.bind_output(f"new_{name}", *place)
        if len(self._bindings) >= _MOST_BINDINGS:
            self._bindings.clear()
        self._bindings[first, count] = binding
        return binding

    def _checked(self, file: Path) -> int:
        """Return the number of logits; inputs and outputs other than those described are an error."""
        kv, drafter = self.drafter.kv, self.drafter
        found, made = self._session.get_inputs(), self._session.get_outputs()
        layers = kv.layers if 2 * kv.layers == len(found) - len(_TYPES) else 0  # no more names than the graph has
        caches = [f"{kind}.{layer}" for layer in range(layers) for kind in ("keys", "values")]
        made_caches = [f"new_{name}" for name in caches]
        types = _TYPES | dict.fromkeys((*caches, *made_caches), "tensor(int8)" if kv.dtype is np.int8 else _FLOATS)
        inputs, outputs = ({one.name: one.shape for one in each} for each in (found, made))
        columns = drafter.columns
        whole = layers > 0 and {*_TYPES, *caches} == inputs.keys()
        whole &= all(one.type == types.get(one.name, _FLOATS) for one in (*found, *made))
        whole &= {"logits", *made_caches} == outputs.keys()
        whole &= outputs.get("logits", [])[1:] == [columns]
        whole &= all(inputs.get(name, [])[1::2] == [kv.heads, kv.width] for name in caches)
        if not whole:
            raise ModelUnavailableError(
                f"needs {columns} logits and the KV of {kv.layers} layers in {file}, as it describes itself, "
                "found other inputs or outputs; export it again"
            )
        return columns


def _sha256(file: Path) -> str:
    try:
        with file.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError as error:
        raise ModelUnavailableError(f"needs a drafter at {file}, found: {error}; copy it there") from error

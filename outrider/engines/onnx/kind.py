"""The onnx engine as a kind of drafter engine. Imports onnxruntime, and torch to export, only when one is built."""

import hashlib
import logging
from dataclasses import replace
from pathlib import Path

from outrider.contracts.drafting import DrafterEngine
from outrider.contracts.errors import ConfigError, EngineUnavailableError, UnsupportedModelError
from outrider.drafting.recalibration import OnVerdict
from outrider.engines.kinds import BuiltDrafter, DrafterKind, DrafterSpec
from outrider.engines.onnx.exported import FORMAT
from outrider.engines.torch.kind import stopping_of, torch_drafter
from outrider.events import event

SUFFIX = ".onnx"
_LOCK_DEADLINE_S = 1200.0
_LOG = logging.getLogger(__name__)


def onnx_drafter(spec: DrafterSpec, on_verdict: OnVerdict | None = None) -> BuiltDrafter:
    """Build an ``OnnxDrafter`` over an exported file, or over what is exported to the cache the first time.

    Of a model that is not a file it drafts chains alone, and a ``TorchDrafter`` all else; or that drafts everything, if
    the model cannot be exported.
    """
    try:
        from outrider.engines.drafter.chains_first import ChainsFirstDrafter  # noqa: PLC0415
        from outrider.engines.onnx.engine import OnnxDrafter, refused_of  # noqa: PLC0415
        from outrider.engines.onnx.model import OnnxModel  # noqa: PLC0415
    except ImportError as error:
        raise EngineUnavailableError(
            f"needs onnxruntime for engine onnx, found: {error}; install it, or draft with engine torch"
        ) from error
    in_torch = replace(spec, dtype="auto")
    try:
        file = exported_file(spec.model, spec.target)
    except (UnsupportedModelError, OSError) as error:
        event(_LOG, "drafter_not_exported", logging.WARNING, model=spec.model, reason=str(error))
        return torch_drafter(in_torch, on_verdict)
    model = OnnxModel(file, spec.threads)
    engine: DrafterEngine
    engine = chains = OnnxDrafter(model, spec.limits, stopping_of(spec, model.drafter.identity.model_hash), on_verdict)
    if not _is_exported(spec.model):

        def build() -> DrafterEngine:
            event(_LOG, "torch_drafter_needed", model=spec.model)
            return torch_drafter(in_torch, on_verdict).engine

        engine = ChainsFirstDrafter(chains, lambda request: refused_of(request) is None, build)
    return BuiltDrafter(engine, model.drafter.identity)


def exported_file(model: str, target: str) -> Path:
    """Return the .onnx file of a draft model: the one that is named, or else a cached one, exported if it is missing.

    Safe to call from several processes at once: one exports, the others wait. Raises as ``load_drafter`` and
    ``export_drafter``.
    """
    if _is_exported(model):
        return Path(model).expanduser()
    from filelock import FileLock  # noqa: PLC0415

    from outrider.models.embedded import DRAFTER_NAME, outrider_home  # noqa: PLC0415
    from outrider.models.folders import EMBEDDED  # noqa: PLC0415

    key = hashlib.sha256(
        "/".join((str(FORMAT), _identity(model, (EMBEDDED, DRAFTER_NAME)), _identity(target))).encode()
    ).hexdigest()
    file = outrider_home() / "exported" / f"{Path(model).name.removesuffix('.safetensors')}-{key[:16]}{SUFFIX}"
    if file.is_file():
        return file
    file.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{file}.lock", timeout=_LOCK_DEADLINE_S):
        if not file.is_file():
            from outrider.engines.onnx.export import export_drafter  # noqa: PLC0415
            from outrider.models.loading import load_drafter  # noqa: PLC0415

            made = export_drafter(load_drafter(model, target, dtype="float32", device="cpu"), file)
            event(_LOG, "drafter_exported", file=str(file), size_bytes=made.size_bytes)
    return file


def _identity(name: str, drafter_names: tuple[str, ...] = ()) -> str:
    """Return a hash of a model's files: of a draft model, or of the target whose embedding and head it uses."""
    from outrider.models.embedded import embedded_drafter_path  # noqa: PLC0415
    from outrider.models.folders import resolve_folder  # noqa: PLC0415
    from outrider.models.identity import sampled_hash  # noqa: PLC0415
    from outrider.models.target_folder import model_hash  # noqa: PLC0415

    if name in drafter_names:
        return sampled_hash(embedded_drafter_path())
    file = Path(name).expanduser()
    return sampled_hash(file) if file.suffix == ".safetensors" else model_hash(resolve_folder(name))


def _is_exported(model: str) -> bool:
    return model.endswith(SUFFIX)


def _check(device: str, dtype: str) -> None:
    if device != "cpu":
        raise ConfigError("device", "cpu where engine is onnx", device)
    if dtype not in ("auto", "int8"):
        raise ConfigError("dtype", "auto or int8 where engine is onnx", dtype)


ONNX_DRAFTER = DrafterKind(onnx_drafter, chains_only=_is_exported, chains_first=True, check=_check)

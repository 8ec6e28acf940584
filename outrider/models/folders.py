"""Locate a model's files: the built-in pair (``embedded`` stands for either), a folder, or a name on the hub."""

from pathlib import Path

from huggingface_hub import snapshot_download
from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

from outrider.contracts.errors import ModelUnavailableError
from outrider.models.embedded import DRAFTER_NAME, TARGET_NAME, embedded_head_path, ensure_embedded_target

EMBEDDED = "embedded"
AUTO = "auto"  # for files that belong to a pair: those that the package has for it
_HUB_FILES = ["*.json", "*.safetensors", "*.jinja", "*.model", "*.txt"]


def is_embedded_target(name_or_path: str) -> bool:
    return name_or_path in (EMBEDDED, TARGET_NAME)


def resolve_folder(name_or_path: str) -> Path:
    """Return a model's local folder; fetch it if it is the embedded target or a name on the hub.

    Else, or where it cannot be fetched, it is a ``ModelUnavailableError``.
    """
    if is_embedded_target(name_or_path):
        return ensure_embedded_target()
    folder = Path(name_or_path).expanduser()
    if folder.is_dir():
        return folder
    try:
        return Path(snapshot_download(name_or_path, allow_patterns=_HUB_FILES))
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OSError) as error:
        raise ModelUnavailableError(
            f"needs {EMBEDDED!r}, {TARGET_NAME!r}, a folder in Hugging Face format or a reachable hub name, found "
            f"{name_or_path!r}: {error}"
        ) from error


def fetched_folder(name: str) -> Path | None:
    """Return the folder that a model of the hub was fetched to, if it was; fetch nothing."""
    try:
        return Path(snapshot_download(name, allow_patterns=_HUB_FILES, local_files_only=True))
    except (HFValidationError, LocalEntryNotFoundError, OSError):
        return None


def head_path(head: str | None, target: str, drafter: str) -> Path | None:
    """Return the path of a drafter's decision head, if it has one; ``auto``: the embedded pair's, none for others."""
    if head == AUTO:
        own = is_embedded_target(target) and drafter in (EMBEDDED, DRAFTER_NAME)
        return embedded_head_path() if own else None
    return None if head is None else Path(head).expanduser()


def short_name(name_or_path: str) -> str:
    return TARGET_NAME if name_or_path == EMBEDDED else Path(name_or_path).name

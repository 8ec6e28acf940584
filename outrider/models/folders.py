"""Where a model's files are: one of the built-in pair (``embedded`` stands for either), a folder, a name on the hub."""

from pathlib import Path

from huggingface_hub import snapshot_download
from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

from outrider.contracts.errors import ModelUnavailableError
from outrider.models.embedded import TARGET_NAME, ensure_embedded_target

EMBEDDED = "embedded"
_HUB_FILES = ["*.json", "*.safetensors", "*.jinja", "*.model", "*.txt"]


def resolve_folder(name_or_path: str) -> Path:
    """The local folder of a model; fetched if it is the embedded target or a name on the hub.

    Raises:
        ModelUnavailableError: it is none of the three, or cannot be fetched.
    """
    if name_or_path in (EMBEDDED, TARGET_NAME):
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


def short_name(name_or_path: str) -> str:
    """For logs, metrics and requests."""
    return TARGET_NAME if name_or_path == EMBEDDED else Path(name_or_path).name

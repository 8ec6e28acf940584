"""Hash of each drafter group's model, known before any device reports it.

The hash is configured, or computed from the model's files on the machine that assembles the application. It travels
with the application, so no other node needs the files.
"""

from pathlib import Path

from outrider.config.drafters import DrafterGroupConfig
from outrider.config.schema import Config
from outrider.contracts.errors import ConfigError
from outrider.engines.onnx.kind import SUFFIX
from outrider.models.embedded import DRAFTER_NAME, embedded_drafter_path
from outrider.models.folders import EMBEDDED, fetched_folder
from outrider.models.identity import sampled_hash


def draft_model_hashes(config: Config) -> dict[str, str]:
    """Return hashes by group, as far as they are known here; groups without devices are skipped.

    Raises:
        ConfigError: the model of an untrusted group is not known: the first device would decide it for all.
        ModelUnavailableError: a folder holds no model.
    """
    found = dict[str, str]()
    for group in config.drafters:
        if not group.drafts:
            continue
        known = group.model_hash or _hash_here(group.model)
        if known is not None:
            found[group.name] = known
        elif not group.trusted:
            raise ConfigError("drafters[].model_hash", _needed(group), None)
    return found


def _needed(group: DrafterGroupConfig) -> str:
    return (
        f"the hash of group {group.name}'s model, as an untrusted device may claim any; or have {group.model} on "
        "this machine, where it is read"
    )


def _hash_here(model: str) -> str | None:
    """Return the hash that ``load_drafter`` gives; None if the files are not on this machine."""
    embedded = model in (EMBEDDED, DRAFTER_NAME)
    place = embedded_drafter_path() if embedded else Path(model).expanduser()
    if embedded or (place.suffix == ".safetensors" and place.is_file()):
        return sampled_hash(place)
    if place.suffix == SUFFIX:
        return _hash_exported(place) if place.is_file() else None
    folder = place if place.is_dir() else fetched_folder(model)
    if folder is None:
        return None
    from outrider.models.target_folder import model_hash  # noqa: PLC0415 (it loads torch)

    return model_hash(folder)


def _hash_exported(file: Path) -> str:
    from outrider.engines.onnx.model import OnnxModel  # noqa: PLC0415 (it loads onnxruntime)

    return OnnxModel(file, 1).drafter.identity.model_hash

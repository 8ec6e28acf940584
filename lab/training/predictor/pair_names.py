"""Names and hashes of a target and its drafter, without loading either."""

from dataclasses import dataclass
from pathlib import Path

from outrider.contracts.errors import ModelUnavailableError
from outrider.models.embedded import DRAFTER_NAME, embedded_drafter_path
from outrider.models.folders import EMBEDDED, resolve_folder, short_name
from outrider.models.identity import sampled_hash
from outrider.models.target_folder import model_hash


@dataclass(frozen=True, slots=True)
class PairNames:
    """Names and hashes as in ``ModelFacts``."""

    target: str
    target_hash: str
    drafter: str
    drafter_hash: str


def pair_names(target: str, drafter: str) -> PairNames:
    """Return the names of what ``load_target`` and ``load_drafter`` would load.

    Raises:
        ModelUnavailableError: a model is not found.
    """
    target_folder = resolve_folder(target)
    embedded = drafter in (EMBEDDED, DRAFTER_NAME)
    file = embedded_drafter_path() if embedded else Path(drafter).expanduser()
    if embedded or file.suffix == ".safetensors":
        if not file.is_file():
            raise ModelUnavailableError(f"needs a drafter made by `outrider distill` at {file}, found no file")
        name, drafter_hash = file.stem, sampled_hash(file)
    else:
        name, drafter_hash = short_name(drafter), model_hash(resolve_folder(drafter))
    return PairNames(short_name(target), model_hash(target_folder), name, drafter_hash)

"""The decision heads that drafter groups are configured with, read where the application is put together."""

from collections.abc import Sequence
from pathlib import Path

from outrider.config.schema import DrafterGroupConfig
from outrider.contracts.errors import ConfigError
from outrider.models.head_file import Head, read_head


def read_heads(groups: Sequence[DrafterGroupConfig]) -> dict[str, Head]:
    """Each draft model's head, if it has one. They travel with the application: no other node needs the files.

    Raises:
        ConfigError: two groups of one draft model name different heads.
        ModelUnavailableError: a file is no head.
    """
    files: dict[str, str] = {}
    for group in groups:
        if group.head is None:
            continue
        if files.setdefault(group.model, group.head) != group.head:
            raise ConfigError(
                "drafters[].head", f"one head for draft model {group.model}", [files[group.model], group.head]
            )
    return {model: read_head(Path(file).expanduser()) for model, file in files.items()}

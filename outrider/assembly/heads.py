"""The decision heads that drafter groups are configured with, read where the application is put together."""

from pathlib import Path

from outrider.config.schema import Config, DrafterGroupConfig
from outrider.contracts.errors import ConfigError
from outrider.models.head_file import Head, read_head


def head_file(group: DrafterGroupConfig) -> Path | None:
    """Where a group's head is, if it has one."""
    return None if group.head is None else Path(group.head).expanduser()


def may_judge(config: Config) -> bool:
    """Whether any drafter has a head."""
    return any(group.count > 0 and head_file(group) is not None for group in config.drafters)


def read_heads(config: Config) -> dict[str, Head]:
    """Each draft model's head, if it has one. They travel with the application: no other node needs the files.

    Raises:
        ConfigError: two groups of one draft model name different heads, or hidden states cross the link otherwise than
            a head saw them in calibration.
        ModelUnavailableError: a file is no head.
    """
    files: dict[str, Path | None] = {}
    for group in config.drafters:
        if not group.count:
            continue
        file = head_file(group)
        if (other := files.setdefault(group.model, file)) != file:
            raise ConfigError(
                "drafters[].head", f"one head for draft model {group.model}", [other and str(other), file and str(file)]
            )
    heads = {model: read_head(file) for model, file in files.items() if file is not None}
    for model, head in heads.items():
        if head.info.hidden_field != (field := config.wire.hidden_field):
            needed = (
                f"{head.info.hidden_field}, as in the calibration of {model}'s head, or another head, or head: null"
            )
            raise ConfigError("wire.hidden_field", needed, field)
    return heads

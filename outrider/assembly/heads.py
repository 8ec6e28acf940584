"""Read the decision heads of drafter groups, on the machine that assembles the application."""

from pathlib import Path

from outrider.config.schema import Config
from outrider.contracts.errors import ConfigError
from outrider.models.folders import head_path
from outrider.models.head_file import Head, read_head


def read_heads(config: Config) -> dict[str, Head]:
    """Return each draft model's head, if it has one. Heads travel with the application: no other node needs the files.

    Raises:
        ConfigError: two groups of one draft model name different heads, or the configured encoding of hidden states is
            not the one a head was calibrated with.
        ModelUnavailableError: a file is not a head.
    """
    heads = {model: read_head(file) for model, file in head_files(config).items()}
    for model, head in heads.items():
        if head.info.hidden_field != (field := config.wire.hidden_field):
            calibrated = f"{head.info.hidden_field}, as in the calibration of {model}'s head"
            needed = f"{calibrated}, or another head, or decision_head: null"
            raise ConfigError("wire.hidden_field", needed, field)
    return heads


def head_files(config: Config) -> dict[str, Path]:
    """Return the file of each draft model's head, if it has one; two for one model are a ``ConfigError``."""
    named: dict[str, str | None] = {}
    for group in config.drafters:
        if group.drafts and (other := named.setdefault(group.model, group.decision_head)) != group.decision_head:
            raise ConfigError(
                "drafters[].decision_head", f"one head for draft model {group.model}", [other, group.decision_head]
            )
    files = {model: head_path(head, config.model.target, model) for model, head in named.items()}
    return {model: file for model, file in files.items() if file is not None}

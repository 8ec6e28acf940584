"""Which decision head a drafter group has."""

from dataclasses import replace
from pathlib import Path

import pytest

from outrider.assembly.heads import head_file, read_heads
from outrider.config.schema import Config, DrafterGroupConfig
from outrider.contracts.errors import ConfigError
from outrider.models.embedded import DRAFTER_NAME, TARGET_NAME, embedded_head_path


def group(head: str | None = "auto", model: str = DRAFTER_NAME, name: str = "a", count: int = 1) -> DrafterGroupConfig:
    return DrafterGroupConfig(name=name, model=model, head=head, count=count)


@pytest.mark.parametrize(
    ("own", "target", "file"),
    [
        (group(), TARGET_NAME, embedded_head_path()),
        (group(model="embedded"), "embedded", embedded_head_path()),
        (group(), "/models/another", None),
        (group(model="other.safetensors"), TARGET_NAME, None),
        (group(None), TARGET_NAME, None),
        (group("~/own.safetensors"), "/models/another", Path("~/own.safetensors").expanduser()),
    ],
)
def test_auto_is_the_head_of_the_embedded_pair_and_of_no_other(
    own: DrafterGroupConfig, target: str, file: Path | None
) -> None:
    assert head_file(own, target) == file


def test_one_draft_model_has_one_head() -> None:
    config = replace(Config(), drafters=(group(), group("other.safetensors", name="b")))
    with pytest.raises(ConfigError, match="one head for draft model"):
        read_heads(config)

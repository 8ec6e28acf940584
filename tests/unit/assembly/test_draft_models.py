"""Which model a group's devices must have is known where the application is put together, or it is not started."""

from dataclasses import replace
from pathlib import Path

import pytest

from outrider.assembly.draft_models import draft_model_hashes
from outrider.config.drafters import DrafterGroupConfig
from outrider.config.schema import Config
from outrider.contracts.errors import ConfigError, ModelUnavailableError
from outrider.models.embedded import embedded_drafter_path
from outrider.models.identity import sampled_hash

GROUP = DrafterGroupConfig(name="edge", trust="untrusted")
GIVEN = "0123456789abcdef" * 4


def config_of(*groups: DrafterGroupConfig) -> Config:
    return replace(Config(), drafters=groups)


def test_the_embedded_drafter_and_files_are_known() -> None:
    embedded, expected = embedded_drafter_path(), sampled_hash(embedded_drafter_path())
    file = replace(GROUP, name="file", model=str(embedded))
    assert draft_model_hashes(config_of(GROUP, file)) == {"edge": expected, "file": expected}


def test_what_is_configured_counts_wherever_the_files_are() -> None:
    elsewhere = replace(GROUP, model="/only/on/devices.safetensors", model_hash=GIVEN)
    assert draft_model_hashes(config_of(elsewhere)) == {"edge": GIVEN}


@pytest.mark.parametrize("model", ["/only/on/devices.safetensors", "somebody/hub-name"])
def test_an_untrusted_group_of_an_unknown_model_is_refused_and_a_trusted_one_is_not(model: str) -> None:
    unknown = replace(GROUP, model=model)
    with pytest.raises(ConfigError, match=r"drafters\[\]\.model_hash.*group edge"):
        draft_model_hashes(config_of(unknown))
    assert draft_model_hashes(config_of(replace(unknown, trust="trusted"))) == {}
    assert draft_model_hashes(config_of(replace(unknown, count=0))) == {}


def test_a_folder_without_a_model_says_so(tmp_path: Path) -> None:
    with pytest.raises((OSError, ModelUnavailableError), match=r"config\.json"):
        draft_model_hashes(config_of(replace(GROUP, model=str(tmp_path))))

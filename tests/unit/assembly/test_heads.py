"""Which decision heads a configuration has."""

from dataclasses import replace
from pathlib import Path

import pytest

from outrider.assembly.heads import read_heads
from outrider.config.schema import Config, DrafterGroupConfig, WireConfig
from outrider.contracts.errors import ConfigError, ModelUnavailableError
from outrider.models.head_file import save_head
from serve_app.api.service import ServiceSettings
from tests.unit.verification.random_head import head_of


def group(head: str | None, name: str = "a", count: int = 1) -> DrafterGroupConfig:
    return DrafterGroupConfig(name=name, model="small", head=head, count=count)


@pytest.fixture
def file(tmp_path: Path) -> str:
    head = head_of(4, 4)
    save_head(tmp_path / "head.safetensors", head.decisions.weights, head.info)
    return str(tmp_path / "head.safetensors")


def test_a_head_is_read_for_its_draft_model(file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(Path(file).parent))
    assert read_heads(replace(Config(), drafters=(group("~/head.safetensors"),))).keys() == {"small"}
    config = replace(Config(), drafters=(group(file), group(file, "b"), group(None, "c", count=0)))
    (model,), (head,) = zip(*read_heads(config).items(), strict=True)
    assert (model, head.info) == ("small", head_of(4, 4).info)


def test_without_a_head_or_a_drafter_nobody_judges(file: str) -> None:
    config = replace(Config(), drafters=(group(file, count=0), group(None, "b")))
    assert not read_heads(config)
    with pytest.raises(ModelUnavailableError, match="needs a decision head written by"):
        read_heads(replace(config, drafters=(group(file + "x"),)))


@pytest.mark.parametrize("other", [None, "other.safetensors"])
def test_one_draft_model_has_one_head(file: str, other: str | None) -> None:
    config = replace(Config(), drafters=(group(file), group(other, "b")))
    with pytest.raises(ConfigError, match="one head for draft model small"):
        read_heads(config)


def test_states_that_cross_the_link_otherwise_than_in_calibration_are_refused(file: str) -> None:
    config = replace(Config(), drafters=(group(file),), wire=WireConfig(hidden_field="int8"))
    with pytest.raises(ConfigError, match=r"wire\.hidden_field needs fp16, as in the calibration of small's head"):
        read_heads(config)


@pytest.mark.parametrize(("count", "head", "judges"), [(1, "x", True), (0, "x", False), (1, None, False)])
def test_a_service_judges_where_a_drafter_has_a_head(count: int, head: str | None, judges: bool) -> None:
    config = replace(Config(), drafters=(group(head, count=count),))
    assert ServiceSettings.from_config(config).judges is judges

"""Which decision heads a configuration has."""

from dataclasses import replace
from pathlib import Path

import pytest

from lab.training.pair_files import save_head
from outrider.assembly.heads import read_heads
from outrider.config.drafters import DrafterGroupConfig
from outrider.config.schema import Config, WireConfig
from outrider.contracts.errors import ConfigError, ModelUnavailableError
from outrider.models.embedded import (
    DRAFTER_NAME,
    TARGET_NAME,
    embedded_drafter_path,
    embedded_head_path,
    ensure_embedded_target,
)
from outrider.models.folders import head_path
from outrider.models.identity import sampled_hash
from outrider.models.pair_file import check_pair
from outrider.models.target_folder import model_hash
from serve_app.api.service import ServiceSettings
from tests.unit.verification.random_head import head_of


def group(head: str | None, name: str = "a", count: int = 1) -> DrafterGroupConfig:
    return DrafterGroupConfig(name=name, model="small", decision_head=head, count=count)


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


@pytest.mark.parametrize(
    ("head", "target", "drafter", "expected"),
    [
        ("auto", TARGET_NAME, DRAFTER_NAME, embedded_head_path()),
        ("auto", "embedded", "embedded", embedded_head_path()),
        ("auto", "/models/another", DRAFTER_NAME, None),
        ("auto", TARGET_NAME, "other.safetensors", None),
        (None, TARGET_NAME, DRAFTER_NAME, None),
        ("~/own.safetensors", "/models/another", "small", Path("~/own.safetensors").expanduser()),
    ],
)
def test_auto_is_the_head_of_the_embedded_pair_and_of_no_other(
    head: str | None, target: str, drafter: str, expected: Path | None
) -> None:
    assert head_path(head, target, drafter) == expected


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


@pytest.mark.parametrize(
    ("count", "head", "judges"),
    [(1, "x", True), (0, "x", False), (1, None, False), (1, "auto", False)],
)
def test_a_service_judges_where_a_drafter_has_a_head(count: int, head: str | None, judges: bool) -> None:
    config = replace(Config(), drafters=(group(head, count=count),))
    assert ServiceSettings.from_config(config.on_own_host()).judges is judges
    assert not ServiceSettings.from_config(config).judges, "of devices that nobody trusts nothing is judged"


def test_the_default_configuration_has_the_shipped_head_for_the_shipped_pair() -> None:
    head = read_heads(Config())[DRAFTER_NAME]
    assert (head.info.target, head.info.drafter) == (TARGET_NAME, DRAFTER_NAME)
    check_pair(
        head.info,
        target_hash=model_hash(ensure_embedded_target()),
        drafter_hash=sampled_hash(embedded_drafter_path()),
    )
    assert ServiceSettings.from_config(Config().on_own_host()).judges

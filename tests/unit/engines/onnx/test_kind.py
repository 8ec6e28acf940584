"""The onnx engine as a group's: exported once to the cache, from what torch would load."""

from pathlib import Path

import pytest

from outrider.assembly.draft_models import draft_model_hashes
from outrider.config.drafters import DrafterGroupConfig
from outrider.config.reading import parse_config
from outrider.engines.kinds import DrafterSpec
from outrider.engines.limits import EngineLimits
from outrider.engines.onnx.kind import exported_file, onnx_drafter
from outrider.engines.torch.kind import torch_drafter
from tests.unit.models.tiny_models import save_model, tiny_model


def spec_of(model: str, target: Path) -> DrafterSpec:
    return DrafterSpec("onnx", model, str(target), "auto", "cpu", 1, EngineLimits(2**24))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("OUTRIDER_HOME", str(tmp_path / "home"))
    save_model(tmp_path / "model", tiny_model("qwen2", hidden=64))
    return tmp_path / "model"


def test_it_is_exported_once_with_the_identity_that_torch_reports(folder: Path) -> None:
    spec = spec_of(str(folder), folder)
    built, torch = onnx_drafter(spec), torch_drafter(spec).facts
    file = exported_file(spec.model, spec.target)
    written_ns = file.stat().st_mtime_ns
    assert built.facts.__dict__ == {name: getattr(torch, name) for name in built.facts.__dict__}
    assert onnx_drafter(spec).engine.max_context_tokens == 128
    assert file.stat().st_mtime_ns == written_ns
    assert [one.name for one in file.parent.iterdir() if one.suffix == ".onnx"] == [file.name]


def test_an_exported_file_is_a_groups_model_too_with_the_same_hash(folder: Path) -> None:
    file = exported_file(str(folder), str(folder))
    built = onnx_drafter(spec_of(str(file), folder))
    text = f"model: {{target: {folder}}}\ndrafters: [{{name: a, trust: trusted, engine: onnx, model: {file}}}]"
    assert draft_model_hashes(parse_config(text, "test")) == {"a": built.facts.model_hash}


@pytest.mark.parametrize(("field", "value"), [("device", "cuda"), ("dtype", "bfloat16")])
def test_a_group_says_only_what_the_engine_supports(field: str, value: str) -> None:
    with pytest.raises(ValueError, match=f"{field} needs .* where engine is onnx"):
        DrafterGroupConfig("a", engine="onnx", num_gpus=1.0, **{field: value})  # type: ignore[arg-type]  # by name

"""The onnx engine as a group's: exported once to the cache, from what torch would load."""

import os
from pathlib import Path
from typing import Any

import pytest

from outrider.assembly.draft_models import draft_model_hashes
from outrider.config.drafters import DrafterGroupConfig
from outrider.config.reading import parse_config
from outrider.contracts.drafting import DraftPlan, DraftRequest, DraftTerms
from outrider.contracts.exchanged import WireFormat
from outrider.contracts.prefix import EMPTY_PREFIX_HASH, extend_prefix_hash
from outrider.contracts.requests import SamplingParams
from outrider.contracts.verifying import OpenGeneration
from outrider.engines.drafter.engine import TorchDrafter
from outrider.engines.kinds import DrafterSpec
from outrider.engines.limits import EngineLimits
from outrider.engines.onnx.kind import exported_file, onnx_drafter
from outrider.engines.torch.kind import torch_drafter
from tests.unit.engines.drafter_device import draft_of
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


def test_of_a_named_model_trees_are_drafted_as_torch_does(folder: Path) -> None:
    opening = OpenGeneration("a", (5, 17, 8), SamplingParams(temperature=0.0))
    prefix_hash = extend_prefix_hash(EMPTY_PREFIX_HASH, opening.prompt_ids)
    request = DraftRequest("a", 0, 3, (), prefix_hash, DraftPlan("tslt_tree", 2, (2, 2)))
    drafts = []
    for build in (onnx_drafter, torch_drafter):
        built = build(spec_of(str(folder), folder))
        engine = built.engine
        engine.open(opening, DraftTerms(WireFormat(built.facts.vocab_size)))
        drafts.append(draft_of(engine, request))
    assert drafts[0] == drafts[1]


def test_a_model_that_cannot_be_exported_is_drafted_with_by_torch(tmp_path: Path, folder: Path) -> None:
    place = Path(os.environ["OUTRIDER_HOME"]) / "exported"
    place.parent.mkdir()
    place.touch()
    assert isinstance(onnx_drafter(spec_of(str(folder), folder)).engine, TorchDrafter), "no place for it"
    place.unlink()
    narrow = save_model(tmp_path / "narrow", tiny_model("qwen2"))
    assert isinstance(onnx_drafter(spec_of(str(narrow), narrow)).engine, TorchDrafter)


def test_auto_is_onnx_for_the_embedded_drafter_where_it_computes() -> None:
    def engine_of(engine: str = "auto", **fields: Any) -> str:
        return DrafterGroupConfig("a", engine=engine, **fields).engine_name

    assert engine_of() == engine_of(model="x.onnx") == engine_of(dtype="int8") == "onnx"
    assert engine_of(model="x", from_="gateway") == engine_of(model="x", engine="onnx") == "onnx"
    assert engine_of(model="x") == engine_of(dtype="float32") == engine_of(device="cuda", num_gpus=1.0) == "torch"
    assert engine_of(engine="torch") == "torch"


@pytest.mark.parametrize(("field", "value"), [("device", "cuda"), ("dtype", "bfloat16")])
def test_a_group_says_only_what_the_engine_supports(field: str, value: str) -> None:
    with pytest.raises(ValueError, match=f"{field} needs .* where engine is onnx"):
        DrafterGroupConfig("a", engine="onnx", num_gpus=1.0, **{field: value})  # type: ignore[arg-type]  # by name

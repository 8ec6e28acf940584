"""Exported drafters: the model's own choices from one file that says what it is."""

from dataclasses import replace
from pathlib import Path

import onnx
import pytest
import torch

from outrider.contracts.drafting import Draft
from outrider.contracts.errors import ModelUnavailableError, UnsupportedModelError
from outrider.contracts.requests import SamplingParams
from outrider.engines.limits import EngineLimits
from outrider.engines.onnx.engine import OnnxDrafter
from outrider.engines.onnx.export import export_drafter
from outrider.engines.onnx.exported import METADATA_KEY
from outrider.engines.onnx.model import OnnxModel
from outrider.engines.torch.fused import model as fused
from outrider.models.drafter_model import projected_head
from tests.unit.engines.conftest import VOCAB, loaded, onnx_drafter, tiny_llama, torch_drafter
from tests.unit.engines.drafter.test_frequent_head import PARAMS, TOKEN_IDS, proposing_some
from tests.unit.engines.drafter_device import GREEDY, SAMPLED, TERMS, Device, answers_of, draft_of
from tests.unit.engines.reference import target_alone
from tests.unit.engines.torch.test_families import made

ROOM = EngineLimits(2**24)


@pytest.mark.parametrize("family", ["llama 3", "qwen 3", "smollm 2"])
def test_each_family_drafts_its_own_choices(family: str) -> None:
    engine, device = onnx_drafter(made(family)), Device("a", SAMPLED, model=lambda: made(family))
    engine.open(device.opening(), TERMS)
    assert list(draft_of(engine, device.request(9)).token_ids) == target_alone(made(family), device.tokens, SAMPLED, 9)


@pytest.mark.parametrize("family", ["qwen 3 moe", "gemma 3", "smollm 3"])
def test_other_families_are_refused_by_name(family: str, tmp_path: Path) -> None:
    model = made(family)
    with pytest.raises(UnsupportedModelError, match=f"found {type(model).__name__}"):
        export_drafter(loaded(model), tmp_path / "drafter.onnx")
    assert not list(tmp_path.iterdir())


def test_a_processor_that_cannot_multiply_and_add_exports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The device's processor is what drafts."""
    monkeypatch.setattr(fused, "_multiplies_and_adds", lambda: False)
    assert export_drafter(loaded(tiny_llama()), tmp_path / "drafter.onnx").size_bytes > 0


@pytest.mark.parametrize("params", PARAMS.values(), ids=PARAMS.keys())
def test_a_frequent_head_drafts_what_torch_drafts(params: SamplingParams) -> None:
    drafts, engines = [], (onnx_drafter, torch_drafter)
    for make in engines:
        engine, device = make(proposing_some(recognised=True)), Device("a", params)
        engine.open(device.opening(), TERMS)
        drafts.append(draft_of(engine, device.request(8)).token_ids)
    assert drafts[0] == drafts[1]
    assert set(drafts[0]) <= set(TOKEN_IDS.tolist())


def test_a_projected_head_becomes_one_product() -> None:
    model, turned = tiny_llama(), torch.randn(48, 48) / 7
    model.set_output_embeddings(projected_head(turned, model.lm_head.weight))
    device = Device("a", GREEDY)
    engine = onnx_drafter(model)
    engine.open(device.opening(), TERMS)
    assert list(draft_of(engine, device.request(6)).token_ids) == target_alone(model, device.tokens, GREEDY, 6)


def test_equal_models_give_equal_bytes_and_the_card_is_in_them(tmp_path: Path) -> None:
    model = replace(loaded(proposing_some(recognised=True)), name="tiny", model_hash="a" * 64, eos_token_ids=(3,))
    files = [tmp_path / "one.onnx", tmp_path / "two.onnx"]
    made_of = [export_drafter(model, file) for file in files]
    assert files[0].read_bytes() == files[1].read_bytes()
    assert files[0].stat().st_size == made_of[0].size_bytes
    exported = OnnxModel(files[0], 1).drafter
    card = exported.identity
    assert (card.name, card.model_hash, card.eos_token_ids, card.vocab_size) == ("tiny", "a" * 64, (3,), VOCAB)
    assert exported.token_ids is not None
    assert exported.token_ids.tolist() == TOKEN_IDS.tolist()[:-1], "padding is not proposed"


def test_eight_bits_draft_nearly_as_float32(tmp_path: Path) -> None:
    """A random model has no clear favourites: most of a chain from every position of a text is still the same."""
    exact, device = onnx_drafter(tiny_llama()), Device("a", GREEDY)
    export_drafter(loaded(tiny_llama()), tmp_path / "drafter.onnx")
    rounded = OnnxDrafter(OnnxModel(tmp_path / "drafter.onnx", 1), ROOM)
    same = 0
    for number in range(40):
        device.prompt = (*device.prompt[1:], number)
        device.tokens, device.known, device.name = list(device.prompt), len(device.prompt), str(number)
        chains = []
        for engine in (exact, rounded):
            engine.open(device.opening(), TERMS)
            chains.append(draft_of(engine, device.request(1)).token_ids)
        same += chains[0] == chains[1]
    assert same >= 36


@pytest.mark.parametrize(
    "damage",
    [
        *("metadata", "format", "ids", "graph", "layers", "floats", "bits", "type", "name", "number", "ends"),
        *("bytes", "hash", "missing"),
    ],
)
def test_other_files_are_refused(damage: str, tmp_path: Path) -> None:
    file = tmp_path / "drafter.onnx"
    export_drafter(loaded(proposing_some(recognised=True)), file)
    model = onnx.load(str(file))
    text = model.metadata_props[0].value
    changed = {
        "metadata": "{",
        "format": text.replace('"format": 2', '"format": 99'),
        "ids": text.replace(f'"vocab_size": {VOCAB}', '"vocab_size": 4'),
        "graph": text.replace('"layers": 2', '"layers": 3'),
        "layers": text.replace('"layers": 2', '"layers": 2147483647'),  # of which no names are made
        "floats": text.replace('"number_bytes": 1', '"number_bytes": 4'),
        "bits": text.replace('"number_bytes": 1', '"number_bytes": 2'),
        "name": text.replace('"name": "', '"name": "' + "n" * 201),
        "number": text.replace('"vocab_size": ', '"model_hash": 5, "vocab_size": ').replace(
            '"model_hash": "', '"x": "'
        ),
        "ends": text.replace('"eos_token_ids": [', '"eos_token_ids": [-1, '),
    }.get(damage, text)
    model.metadata_props[0].value = changed
    if damage == "type":
        (logits,) = (one for one in model.graph.output if one.name == "logits")
        cast = onnx.helper.make_node("Cast", ["logits"], ["logits_16"], to=onnx.TensorProto.FLOAT16)
        model.graph.node.append(cast)
        logits.name, logits.type.tensor_type.elem_type = "logits_16", onnx.TensorProto.FLOAT16
        for node in model.graph.node[:-1]:
            node.output[:] = ["plain" if name == "logits" else name for name in node.output]
        cast.input[0], model.graph.node[-1].input[0] = "plain", "plain"
        model.graph.node[-1].output[0] = logits.name = "logits"
    assert model.metadata_props[0].key == METADATA_KEY
    file.write_bytes(model.SerializeToString()[: 3000 if damage == "bytes" else None])
    if damage == "missing":
        file.unlink()
    with pytest.raises(ModelUnavailableError, match=r"needs .*, found:? .*(again|there)"):
        OnnxModel(file, 1, sha256="0" * 64 if damage == "hash" else None)


def test_company_hardly_changes_a_chain_in_eight_bits(tmp_path: Path) -> None:
    export_drafter(loaded(tiny_llama()), tmp_path / "drafter.onnx")
    model = OnnxModel(tmp_path / "drafter.onnx", 1)
    assert 4 * model.drafter.kv.token_bytes == replace(model.drafter.kv, number_bytes=4).token_bytes
    same = 0
    for number in range(10):
        devices = [Device(str(length), GREEDY, tuple(range(number, number + length))) for length in (5, 12, 19, 26)]
        together = OnnxDrafter(model, ROOM)
        for device in devices:
            together.open(device.opening(), TERMS)
            together.submit(device.request(4))
        answers = answers_of(together)
        for device in devices:
            alone = OnnxDrafter(model, ROOM)
            alone.open(device.opening(), TERMS)
            answer = answers[device.name]
            assert isinstance(answer, Draft)
            same += answer.token_ids == draft_of(alone, device.request(4)).token_ids
    assert same >= 36

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import Qwen2Config

from outrider.contracts.errors import ModelUnavailableError, ParameterError, VocabularyMismatchError
from outrider.engines.kinds import VerifierSpec
from outrider.engines.limits import EngineLimits
from outrider.engines.vllm.kind import vllm_verifier
from outrider.models.drafter_weights import DrafterInfo, read_drafter_info, save_drafter
from outrider.models.embedded import embedded_drafter_path
from outrider.models.loading import (
    context_tokens,
    drafter_context_tokens,
    full_attention_limit_tokens,
    load_drafter,
    load_target,
    load_target_facts,
)
from outrider.models.tokenizer import load_tokenizer
from outrider.training.distillation.measured_acceptance import evaluate_acceptance
from outrider.training.distillation.student import cut_from_target
from outrider.training.traces import prompt_ids, read_traces
from tests.unit.models.tiny_models import EOS, WORDS, save_model, save_tokenizer, tiny_model

HELD_OUT = Path(__file__).parent / "data" / "held_out_traces.jsonl"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return save_model(tmp_path / "target", tiny_model("llama"))


def test_a_padded_target_is_cut_to_its_real_tokens(folder: Path) -> None:
    loaded = load_target(str(folder), dtype="float32", device="cpu")
    assert loaded.model.config.vocab_size == 48
    assert loaded.vocab_size == WORDS + 1 == len(loaded.tokenizer)
    assert (loaded.eos_token_ids, loaded.max_context_tokens, loaded.name) == ((EOS,), 128, "target")
    assert not loaded.model.training
    assert not any(value.requires_grad for value in loaded.model.parameters())


def test_a_target_is_known_without_loading_it(folder: Path) -> None:
    loaded = load_target(str(folder), dtype="float32", device="cpu", max_context_tokens=64)
    facts = load_target_facts(str(folder), max_context_tokens=64)
    ours, theirs = vars(facts), {name: value for name, value in vars(loaded).items() if name != "model"}
    assert ours.pop("tokenizer").get_vocab() == theirs.pop("tokenizer").get_vocab()
    assert ours == theirs


def test_weights_of_another_width_than_configured_do_not_load(folder: Path) -> None:
    """The facts trust the configuration for the head's width."""
    file = folder / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text(encoding="utf-8")) | {"vocab_size": 40}), encoding="utf-8")
    with pytest.raises(ModelUnavailableError, match="needs a loadable causal LM"):
        load_target(str(folder), dtype="float32", device="cpu")


def test_weights_unlike_their_record_are_refused_by_whoever_loads_them(folder: Path, tmp_path: Path) -> None:
    small = save_model(tmp_path / "small", tiny_model("llama", layers=1, vocab=64, hidden=16))
    for each in (folder, small):
        (each / "SHA256SUMS").write_text(f"{'0' * 64}  model.safetensors\n", encoding="utf-8")
    spec = VerifierSpec("vllm", str(folder), "float32", "cpu", 1, EngineLimits(2**20))
    loads = (
        lambda: load_target(str(folder), dtype="float32", device="cpu"),
        lambda: load_drafter(str(small), str(folder), dtype="float32", device="cpu"),
        lambda: vllm_verifier(spec),
    )
    for load in loads:
        with pytest.raises(ModelUnavailableError, match="the file is damaged"):
            load()


def test_facts_of_what_cannot_be_loaded_are_refused_alike(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ModelUnavailableError, match=r"config\.json"):
        load_target_facts(str(tmp_path))
    with pytest.raises(ParameterError, match=r"max_context_tokens needs an integer in 1\.\.128"):
        load_target_facts(str(folder), max_context_tokens=129)
    (folder / "model.safetensors").unlink()
    with pytest.raises(ModelUnavailableError, match="needs weights as"):
        load_target_facts(str(folder))


def test_differently_padded_models_form_a_pair(folder: Path, tmp_path: Path) -> None:
    small = save_model(tmp_path / "small", tiny_model("llama", layers=1, vocab=64, hidden=16))
    target = load_target(str(folder), dtype="float32", device="cpu")
    drafter = load_drafter(str(small), str(folder), dtype="float32", device="cpu")
    assert drafter.vocab_size == target.vocab_size
    assert drafter.token_map_hash == target.token_map_hash
    assert drafter.model_hash != target.model_hash


def test_another_token_map_is_refused_with_its_first_difference(folder: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    tiny_model("llama").save_pretrained(other)
    save_tokenizer(other, rename={7: "seven"})
    with pytest.raises(VocabularyMismatchError, match="id 7 is 'w7' in the target and 'seven' in the drafter"):
        load_drafter(str(other), str(folder), dtype="float32", device="cpu")


def test_a_distilled_drafter_loads_for_its_target_only(folder: Path, tmp_path: Path) -> None:
    target = load_target(str(folder), dtype="float32", device="cpu")
    file, other_file = tmp_path / "d.safetensors", tmp_path / "other.safetensors"
    weights = cut_from_target(target.model, (0, 1))
    save_drafter(file, weights, DrafterInfo("target", target.model_hash, target.token_map_hash, (0, 1), 32))
    save_drafter(other_file, weights, DrafterInfo("stranger", "", "0123", (0, 1), 32))
    drafter = load_drafter(str(file), str(folder), dtype="bfloat16", device="cpu")
    assert drafter.vocab_size == target.vocab_size
    assert drafter.eos_token_ids == target.eos_token_ids
    assert drafter.model.config.num_hidden_layers == 2
    assert drafter.name == "d"
    with pytest.raises(VocabularyMismatchError, match=r"needs the token map of stranger .*0123.* found") as caught:
        load_drafter(str(other_file), str(folder), dtype="float32", device="cpu")
    assert target.token_map_hash in str(caught.value)


def test_a_finetune_of_the_distilled_target_is_accepted_with_a_warning(
    folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    target = load_target(str(folder), dtype="float32", device="cpu")
    file = tmp_path / "d.safetensors"
    info = DrafterInfo("base", "feed", target.token_map_hash, (0,), 32)
    save_drafter(file, cut_from_target(target.model, (0,)), info)
    load_drafter(str(file), str(folder), dtype="float32", device="cpu")
    assert "distilled from base (hash feed)" in caplog.text


def test_all_tokens_that_end_a_response_are_known(folder: Path) -> None:
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [5, 3]}))
    assert load_target(str(folder), dtype="float32", device="cpu").eos_token_ids == (3, 5, EOS)


def test_what_cannot_be_loaded_is_named(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ModelUnavailableError, match="found 'no/such-model'"):
        load_target("no/such-model", dtype="float32", device="cpu")
    with pytest.raises(ModelUnavailableError, match=r"config\.json"):
        load_target(str(tmp_path), dtype="float32", device="cpu")
    with pytest.raises(ParameterError, match="dtype needs one of float32, bfloat16, float16, found 'int3'"):
        load_target(str(folder), dtype="int3", device="cpu")


def test_context_is_limited_by_model_and_window() -> None:
    sizes: dict[str, Any] = {
        "num_hidden_layers": 2,
        "max_position_embeddings": 128,
        "sliding_window": 32,
        "max_window_layers": 0,
    }
    plain, sliding = Qwen2Config(**sizes), Qwen2Config(**sizes, use_sliding_window=True)
    assert full_attention_limit_tokens(plain) is None
    assert full_attention_limit_tokens(sliding) == 32
    assert context_tokens(plain, None) == 128
    assert context_tokens(sliding, 32) == 32
    with pytest.raises(ParameterError, match=r"max_context_tokens needs an integer <= 32 .* found 128"):
        context_tokens(sliding, None)
    for wanted in (0, 129):
        with pytest.raises(ParameterError, match=rf"max_context_tokens needs an integer in 1\.\.128.* found {wanted}"):
            context_tokens(plain, wanted)


def test_a_drafter_drafts_as_far_as_its_window(folder: Path, tmp_path: Path) -> None:
    """A target with a window is served within it only; of a drafter no more is asked than it can."""
    sizes: dict[str, Any] = {"num_hidden_layers": 2, "max_position_embeddings": 128, "max_window_layers": 0}
    assert drafter_context_tokens(Qwen2Config(**sizes)) is None
    for window, context in ((32, 32), (256, 128)):
        config = Qwen2Config(**sizes, sliding_window=window, use_sliding_window=True)
        assert drafter_context_tokens(config) == context
    sliding = save_model(tmp_path / "sliding", tiny_model("qwen2", layers=1))
    file = sliding / "config.json"
    windowed = {"use_sliding_window": True, "sliding_window": 32, "layer_types": ["sliding_attention"]}
    file.write_text(json.dumps(json.loads(file.read_text(encoding="utf-8")) | windowed), encoding="utf-8")
    assert load_drafter(str(sliding), str(folder), dtype="float32", device="cpu").max_context_tokens == 32
    with pytest.raises(ParameterError, match="max_context_tokens needs an integer <= 32"):
        load_target(str(sliding), dtype="float32", device="cpu")


def test_embedded_tokenizer_has_a_chat_template() -> None:
    tokenizer = load_tokenizer("embedded")
    text = tokenizer.decode(prompt_ids(tokenizer, "Hi"))
    assert isinstance(text, str)
    assert text.endswith("<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n")


def test_the_shipped_drafter_is_accepted_by_the_embedded_target() -> None:
    """Floors well below what was measured on these traces: greedy 0.636, overlap 0.359 (305 and 274 tokens)."""
    torch.set_num_threads(1)
    target = load_target("embedded", dtype="float32", device="cpu")
    drafter = load_drafter("embedded", "smollm2-135m-instruct", dtype="float32", device="cpu")
    assert read_drafter_info(embedded_drafter_path()).target_hash == target.model_hash
    assert drafter.token_map_hash == target.token_map_hash
    traces = read_traces(HELD_OUT)
    assert sum(len(trace.output_ids) for trace in traces if trace.temperature == 0.0) > 200
    report = evaluate_acceptance(target, drafter.model, traces)
    assert report.greedy is not None
    assert report.greedy > 0.55
    assert report.overlap is not None
    assert report.overlap > 0.30

import gzip
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from outrider.contracts.errors import ParameterError
from outrider.models.loading import LoadedModel, load_target
from outrider.training.traces import (
    TraceConfig,
    is_held_out,
    make_traces,
    prompt_ids,
    read_traces,
    split_traces,
)
from tests.unit.models.tiny_models import EOS, WORDS, save_model, tiny_model

PROMPTS = [" ".join(f"w{(3 * i + j) % WORDS}" for j in range(1 + i % 5)) for i in range(10)]
CONFIG = TraceConfig(count=10, max_new_tokens=12, batch=4, seed=3)


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    folder = save_model(tmp_path_factory.mktemp("target"), tiny_model("llama"))
    return load_target(str(folder), dtype="float32", device="cpu")


@torch.inference_mode()
def test_greedy_traces_are_the_targets_own_continuations(target: LoadedModel, tmp_path: Path) -> None:
    config = replace(CONFIG, temperatures=(0.0,))
    for i, trace in enumerate(make_traces(target, PROMPTS, tmp_path / "t.jsonl", config, progress=False)):
        ids = prompt_ids(target.tokenizer, PROMPTS[i])
        assert trace.prompt_ids == tuple(ids)
        for token in trace.output_ids:
            logits = target.model(torch.tensor([ids])).logits[0, -1, : target.vocab_size]
            assert logits[token] >= logits.max() - 1e-4
            ids.append(token)
        assert len(trace.output_ids) == 12 or trace.output_ids[-1] == EOS


def test_no_padding_id_is_sampled_and_nothing_follows_the_end(target: LoadedModel, tmp_path: Path) -> None:
    config = replace(CONFIG, count=80, temperatures=(2.0,), batch=20)
    traces = make_traces(target, PROMPTS, tmp_path / "t.jsonl", config, progress=False)
    assert max(token for trace in traces for token in trace.output_ids) < target.vocab_size
    assert not any(EOS in trace.output_ids[:-1] for trace in traces)
    assert any(trace.output_ids[-1] == EOS for trace in traces)
    assert len({trace.output_ids for trace in traces}) > 70  # a prompt used again is answered with other noise


@pytest.mark.parametrize("name", ["t.jsonl", "t.jsonl.gz"])
def test_making_goes_on_where_it_stopped(target: LoadedModel, tmp_path: Path, name: str) -> None:
    whole = make_traces(target, PROMPTS, tmp_path / "whole.jsonl", CONFIG, progress=False)
    assert [trace.temperature for trace in whole[:4]] == [0.0, 0.7, 1.0, 0.0]
    file = tmp_path / name
    make_traces(target, PROMPTS, file, replace(CONFIG, count=6), progress=False)
    file.write_bytes(file.read_bytes()[:-5])  # killed while it wrote
    assert make_traces(target, PROMPTS, file, CONFIG, progress=False) == whole == read_traces(file)
    assert make_traces(target, PROMPTS, file, replace(CONFIG, count=3), progress=False) == whole[:3]
    assert read_traces(file) == whole


def test_the_target_writes_prompts_as_the_user_of_a_chat(target: LoadedModel, tmp_path: Path) -> None:
    tokenizer = target.tokenizer
    with pytest.raises(ParameterError, match=r"own_prompts needs 0: .* has no chat template"):
        make_traces(target, PROMPTS, tmp_path / "t.jsonl", replace(CONFIG, own_prompts=0.5), progress=False)
    tokenizer.chat_template = (
        "{% for m in messages %}w1 {{ m['content'] }} w2{% endfor %}{% if add_generation_prompt %} w3{% endif %}"
    )
    try:
        given = [tuple(prompt_ids(tokenizer, prompt)) for prompt in PROMPTS]
        half = replace(CONFIG, count=20, own_prompts=0.5)
        traces = make_traces(target, PROMPTS, tmp_path / "half.jsonl", half, progress=False)
        assert make_traces(target, PROMPTS, tmp_path / "again.jsonl", half, progress=False) == traces
        own = [trace.prompt_ids for i, trace in enumerate(traces) if trace.prompt_ids != given[i % len(given)]]
        assert len(own) == len(set(own)) == 10
        [before, after, behind] = (tokenizer.convert_tokens_to_ids(word) for word in ("w1", "w2", "w3"))
        assert all((ids[0], *ids[-2:]) == (before, after, behind) for ids in own)
        written = traces[1].prompt_ids[1:-2]
        logits = target.model(torch.tensor([[before, *written]])).logits[0, :-1, : target.vocab_size]
        assert logits.log_softmax(-1).gather(1, torch.tensor(written)[:, None]).mean() > -np.log(target.vocab_size)
    finally:
        tokenizer.chat_template = None


def test_traces_made_otherwise_are_not_mixed_in(target: LoadedModel, tmp_path: Path) -> None:
    file = tmp_path / "t.jsonl"
    make_traces(target, PROMPTS, file, CONFIG, progress=False)
    for prompts, config in ((PROMPTS, replace(CONFIG, seed=4)), (PROMPTS[:3], CONFIG)):
        with pytest.raises(ParameterError, match="traces needs a new file, or one made with the same settings"):
            make_traces(target, prompts, file, config, progress=False)
    with pytest.raises(ParameterError, match="prompts needs at least one prompt"):
        make_traces(target, [], file, CONFIG, progress=False)


def test_files_that_hold_something_else_are_named(tmp_path: Path) -> None:
    damaged = tmp_path / "damaged.jsonl.gz"
    damaged.write_bytes(gzip.compress(b'{"p": [1], "o": [2], "T": 0}\n')[:-8])
    other = tmp_path / "other.jsonl"
    other.write_text('{"text": "hello"}\n')
    for file in (tmp_path / "missing.jsonl", damaged, other):
        with pytest.raises(ParameterError, match=f"traces needs a complete JSON lines file .*{file.name}"):
            read_traces(file)


def test_one_prompt_in_sixteen_is_held_out_whatever_its_temperature(target: LoadedModel, tmp_path: Path) -> None:
    assert 40 < sum(is_held_out((i, 7)) for i in range(1000)) < 90
    config = replace(CONFIG, count=20, max_new_tokens=1)
    traces = make_traces(target, PROMPTS, tmp_path / "t.jsonl", config, progress=False)
    train, held_out = split_traces(traces)
    assert sorted([*train, *held_out], key=traces.index) == traces
    assert {trace.prompt_ids for trace in train}.isdisjoint(trace.prompt_ids for trace in held_out)

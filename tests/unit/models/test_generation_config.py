import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from transformers import GenerationConfig

from outrider.contracts.errors import ModelUnavailableError, ParameterError
from outrider.contracts.sampling_defaults import SamplingDefaults
from outrider.models.embedded import CARD_SAMPLING, TARGET_NAME
from outrider.models.generation_config import FILE, NEUTRAL, read_sampling_defaults

WHOLE = {
    "do_sample": True,
    "temperature": 0.6,
    "top_p": 0.95,
    "top_k": 20,
    "min_p": 0.05,
    "repetition_penalty": 1.05,
    "eos_token_id": [1, 2],
    "transformers_version": "4.51.0",
}


def model(folder: Path, found: object) -> str:
    """A model's folder, as far as it matters."""
    (folder / FILE).write_text(json.dumps(found), encoding="utf-8")
    return str(folder)


def test_auto_takes_what_vllm_takes_of_the_models_own_file(tmp_path: Path) -> None:
    """VLLM reads it by ``GenerationConfig`` and keeps these names, ``max_new_tokens`` as ``max_tokens``."""
    target = model(tmp_path, WHOLE | {"max_new_tokens": 512})
    theirs = GenerationConfig.from_pretrained(target).to_diff_dict()
    names = ("repetition_penalty", "presence_penalty", "frequency_penalty", "temperature", "top_k", "top_p", "min_p")
    found = read_sampling_defaults("auto", target, {})
    assert found.params == {name: theirs[name] for name in names if name in theirs} != {}
    assert (found.max_tokens, found.most_tokens) == (theirs["max_new_tokens"], None)
    assert found.ignored == ()


def test_the_embedded_model_is_sampled_as_its_card_recommends() -> None:
    for target in ("embedded", TARGET_NAME):
        found = read_sampling_defaults("auto", target, {})
        assert found.params == CARD_SAMPLING == {"temperature": 0.2, "top_p": 0.9}
        assert found.text == "temperature 0.2, top_p 0.9"


@pytest.mark.parametrize("source", NEUTRAL)
def test_nothing_is_taken_where_nothing_is_wanted(source: str, tmp_path: Path) -> None:
    assert read_sampling_defaults(source, model(tmp_path, WHOLE), {}) == SamplingDefaults()
    overridden = read_sampling_defaults(source, TARGET_NAME, {"temperature": 0.5})
    assert (overridden.params, overridden.source) == ({"temperature": 0.5}, "override_generation_config")


def test_a_model_without_a_file_is_neutral(tmp_path: Path) -> None:
    assert read_sampling_defaults("auto", str(tmp_path), {}) == SamplingDefaults()


def test_single_values_are_overridden_or_taken_out() -> None:
    found = read_sampling_defaults("auto", TARGET_NAME, {"temperature": 0.7, "top_p": None, "top_k": -1})
    assert found.params == {"temperature": 0.7, "top_k": 0}


@pytest.mark.parametrize("named", [lambda folder: folder, lambda folder: folder / FILE])
def test_a_file_that_an_operator_names_bounds_all_requests(named: Any, tmp_path: Path) -> None:
    """As vLLM has it: of the model's own file ``max_new_tokens`` is a default only."""
    model(tmp_path, {"temperature": 0, "max_new_tokens": 64})
    found = read_sampling_defaults(str(named(tmp_path)), TARGET_NAME, {})
    assert (found.params, found.max_tokens, found.most_tokens) == ({"temperature": 0}, 64, 64)
    assert read_sampling_defaults("auto", TARGET_NAME, {"max_new_tokens": 9}).most_tokens == 9


def test_what_is_ignored_is_named(tmp_path: Path) -> None:
    asks = {"do_sample": False, "num_beams": 4, "typical_p": 1.0, "no_repeat_ngram_size": 3, "suppress_tokens": None}
    found = read_sampling_defaults("auto", model(tmp_path, asks), {})
    assert (found.params, found.ignored) == ({}, ("do_sample", "num_beams", "no_repeat_ngram_size"))


@pytest.mark.parametrize(
    ("found", "message"),
    [
        ({"temperature": 3.0}, r"needs a number in \[0, 2\] as temperature in .*json, found 3.0; fix it, or set "),
        ({"top_k": 2.5}, "needs an integer as top_k"),
        ({"top_k": float("inf")}, "needs a finite number as top_k"),
        ({"top_p": "0.9"}, "needs a finite number as top_p"),
        ({"min_p": True}, "needs a finite number as min_p"),
        ({"max_new_tokens": 0}, "needs an integer >= 1 as max_new_tokens"),
        ([1], "needs a JSON object in .*, found a list"),
    ],
)
def test_a_value_that_means_nothing_is_told_with_the_way_out(found: object, message: str, tmp_path: Path) -> None:
    target = model(tmp_path, found)
    with pytest.raises(ModelUnavailableError, match=message):
        read_sampling_defaults("auto", target, {})
    if isinstance(found, Mapping):
        assert read_sampling_defaults("auto", target, dict.fromkeys(found)).params == {}


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(ModelUnavailableError, match=f"needs {FILE}, a JSON object, at {tmp_path}/none, found: "):
        read_sampling_defaults(str(tmp_path / "none"), TARGET_NAME, {})
    (tmp_path / FILE).write_text("{", encoding="utf-8")
    with pytest.raises(ModelUnavailableError, match="Expecting property name"):
        read_sampling_defaults("auto", str(tmp_path), {})


def test_an_override_of_nothing_is_refused() -> None:
    with pytest.raises(ParameterError, match=r"^override_generation_config needs names among temperature, "):
        read_sampling_defaults("auto", TARGET_NAME, {"temprature": 1})

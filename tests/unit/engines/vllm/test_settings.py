"""Settings are refused where they are made, before vLLM is imported."""

from dataclasses import fields

import pytest

from outrider.contracts.errors import ParameterError
from outrider.engines.vllm.settings import UNSUPPORTED_OPTIONS
from tests.unit.engines.vllm.conftest import MakeSettings


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"device": "tpu"}, "device needs cpu or cuda"),
        ({"block_tokens": 16}, "kv_block_tokens needs a multiple of 32 for vLLM on cpu, found 16"),
        ({"device": "cuda", "block_tokens": 8}, "a multiple of 16 for vLLM on cuda"),
        ({"max_pass_tokens": 0}, "max_pass_tokens needs at least 1"),
        ({"tensor_parallel_size": 0}, "tensor_parallel_size needs at least 1"),
        ({"options": {"max_num_seqs": 4, "quantization": "fp8"}}, "found 'max_num_seqs'"),
        ({"options": {"kv_transfer_config": {}}}, "found 'kv_transfer_config'"),
    ],
)
def test_what_cannot_be_is_refused(make_settings: MakeSettings, changes: dict[str, object], message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        make_settings(**changes)


def test_every_option_refused_is_one_of_vllms(make_settings: MakeSettings) -> None:
    from vllm.engine.arg_utils import EngineArgs  # noqa: PLC0415 (seconds)

    assert {field.name for field in fields(EngineArgs)} >= UNSUPPORTED_OPTIONS | set(make_settings().owned_arguments())

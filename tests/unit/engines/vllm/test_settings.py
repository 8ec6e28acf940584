"""Settings are refused where they are made, before vLLM is imported."""

from dataclasses import fields

import pytest

from outrider.contracts.errors import ParameterError
from outrider.engines.vllm.settings import UNSUPPORTED_OPTIONS
from tests.unit.engines.vllm.conftest import MakeSettings


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_num_seqs": 4, "quantization": "fp8"}, "found 'max_num_seqs'"),
        ({"kv_transfer_config": {}}, "found 'kv_transfer_config'"),
    ],
)
def test_what_cannot_be_is_refused(make_settings: MakeSettings, options: dict[str, object], message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        make_settings(vllm_options=options)


def test_every_option_refused_is_one_of_vllms(make_settings: MakeSettings) -> None:
    from vllm.engine.arg_utils import EngineArgs  # noqa: PLC0415 (seconds)

    assert {field.name for field in fields(EngineArgs)} >= UNSUPPORTED_OPTIONS | set(make_settings().owned_arguments())

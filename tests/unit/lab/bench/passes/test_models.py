from typing import Any

import pytest
import torch

from lab.bench.passes.run import PassPlan, measured
from lab.bench.passes.shapes import INEXACT, PassShape, Pool, served, weight_bytes
from outrider.engines.torch.linears import computes_bfloat16
from outrider.engines.torch.model import PagedModel
from outrider.engines.torch.served import target_model
from outrider.models.folders import EMBEDDED, resolve_folder
from outrider.models.target_folder import read_config
from tests.unit.engines.conftest import tiny_llama

POOL = Pool(16, 40, 2)


@pytest.mark.skipif(not computes_bfloat16(), reason="this processor does not compute in bfloat16")
def test_every_way_computes_the_same_but_for_rounding() -> None:
    """Over a prompt of its own: what was resident is random."""
    segments = POOL.segments(PassShape(33, 2), 0)
    expected = PagedModel(tiny_llama().bfloat16(), POOL.blocks, 16).forward(segments).logits.float()
    for kind in (served, *INEXACT.values()):
        found = kind(tiny_llama().bfloat16(), POOL.blocks, 16).forward(segments).logits.float()
        assert (found - expected).norm() < 0.05 * expected.norm(), kind


def test_the_served_model_is_measured_as_it_is_served() -> None:
    segments = POOL.segments(PassShape(33, 2), 0)
    expected = target_model(tiny_llama().bfloat16(), POOL.blocks, 16).forward(segments).logits
    assert torch.equal(served(tiny_llama().bfloat16(), POOL.blocks, 16).forward(segments).logits, expected)


def test_weights_are_counted_once_and_looked_up_ones_not() -> None:
    model: Any = tiny_llama()
    table, total = model.get_input_embeddings().weight, sum(one.nbytes for one in model.parameters())
    assert weight_bytes(model) == total - table.nbytes
    assert weight_bytes(tiny_llama().bfloat16()) * 2 == total - table.nbytes
    model.get_output_embeddings().weight = table  # as large as the head it replaces
    assert weight_bytes(model) == total - table.nbytes


def test_a_plan_is_measured_turn_by_turn() -> None:
    plan = PassPlan("embedded", "bfloat16", 1, (PassShape(1, 2), PassShape(4, 1)), 20, 2, 1, 1)
    seen = list[str]()
    found = measured(plan, seen.append)
    assert len(seen) == 2 * len(plan.shapes) * len(found.seconds)
    assert len(found.bytes_per_s) == 2
    assert found.sizes.kv_token == 2 * 2 * keys_per_token()
    for by_shape in found.seconds.values():
        assert set(by_shape) == set(plan.shapes)
        assert all(len(times) == 2 and min(times) > 0 for times in by_shape.values())


def keys_per_token() -> int:
    """Numbers of keys of one position in all layers of the embedded target."""
    config = read_config(resolve_folder(EMBEDDED))
    width = config.hidden_size // config.num_attention_heads
    return int(config.num_hidden_layers * config.num_key_value_heads * width)

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.simulation.roofline import HARDWARE, MODELS, Hardware, ModelShape, RooflineCostModel
from outrider.contracts.cost import BatchWork, CostModel, VerifyCost

A100_32B = RooflineCostModel(MODELS["qwen3-32b"], HARDWARE["a100-80gb"])

blocks = st.lists(st.builds(VerifyCost, st.integers(1, 600), st.integers(0, 4000)), min_size=1, max_size=40)


@pytest.mark.parametrize(
    ("name", "billions"), [("qwen3-32b", 32.8), ("qwen3-14b", 14.8), ("qwen3-0.6b", 0.6), ("smollm2-135m", 0.135)]
)
def test_shapes_have_as_many_weights_as_the_models_are_named_for(name: str, billions: float) -> None:
    assert MODELS[name].weight_bytes / 2e9 == pytest.approx(billions, rel=0.02)


def test_keys_and_values_of_qwen3_32b_take_256_kib_a_token() -> None:
    assert MODELS["qwen3-32b"].kv_bytes_per_token == 256 * 1024


def test_one_token_takes_the_time_to_read_the_weights() -> None:
    shape, gpu = MODELS["qwen3-32b"], HARDWARE["a100-80gb"]
    assert shape.bytes_per_weight * shape.matrix_weights / gpu.bytes_per_s == pytest.approx(0.0314, rel=0.01)
    read_s = (2.0 * shape.matrix_weights + 256 * 1024 * 501) / (gpu.bytes_per_s * A100_32B.memory_share)
    assert A100_32B.predict_s([VerifyCost(1, 500)]) == pytest.approx(read_s + A100_32B.fixed_s)


def test_a_long_prompt_takes_the_time_of_its_arithmetic() -> None:
    tiny = RooflineCostModel(ModelShape(1, 2, 1, 1, 2, 3, 5, tied=True), Hardware("toy", 1e3, 1e9, 1e6), fixed_s=0.0)
    weights = 2 * 2 * 4 + 3 * 2 * 3 + 2 * 5  # attention, feed-forward, head
    flops = 2 * weights * 10 + 4 * 1 * 1 * 2 * 10 * 10
    assert tiny.predict_s([VerifyCost(10, 0)]) == pytest.approx(flops / (1e3 * tiny.compute_share))


@given(blocks)
def test_all_three_ways_to_ask_agree(batch: list[VerifyCost]) -> None:
    model: CostModel = A100_32B
    work = BatchWork()
    for block in batch:
        work = work.plus(block)
    row = np.array([[work.new_tokens, work.interactions, work.cached_tokens]], dtype=np.float64)
    assert model.predict_work_s(work) == model.predict_s(batch)
    assert model.predict_works_s(row)[0] == pytest.approx(model.predict_s(batch), rel=1e-12)


@given(blocks, st.builds(VerifyCost, st.integers(1, 600), st.integers(0, 4000)))
def test_no_block_makes_a_batch_shorter(batch: list[VerifyCost], more: VerifyCost) -> None:
    assert A100_32B.predict_s([*batch, more]) >= A100_32B.predict_s(batch)


def test_memory_left_beside_the_weights_holds_so_many_tokens() -> None:
    free_bytes = 80e9 - MODELS["qwen3-32b"].weight_bytes
    assert A100_32B.kv_tokens() == int(free_bytes / (256 * 1024))
    assert RooflineCostModel(MODELS["qwen3-32b"], HARDWARE["l4"]).kv_tokens() == 0

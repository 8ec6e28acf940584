"""What promises need of the verifier's time, against WISP's formula written out."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.simulation.roofline import HARDWARE, MODELS, RooflineCostModel
from outrider.contracts.cost import LinearCostModel, VerifyCost
from outrider.scheduling.promised_load import PromisedNeed, added_s, each_added_s, load_of
from tests.unit.scheduling.queues import COSTS

A, COMPUTE, READ, _ = COSTS.slopes
BLOCK = VerifyCost(11, 630)


def block_s(new: int, cached: int) -> float:
    return A * new + COMPUTE * new * (new + cached) + READ * cached


def test_a_promise_needs_its_rounds_and_its_prompt() -> None:
    rounds = PromisedNeed(8.0, 5.0, BLOCK)
    assert load_of(rounds, COSTS) == pytest.approx(8.0 * block_s(11, 630) / 5.0)
    prompt = PromisedNeed(8.0, 5.0, BLOCK, prompt_tokens=500, output_tokens=250.0)
    assert load_of(prompt, COSTS) == pytest.approx(8.0 * (block_s(11, 630) / 5.0 + block_s(500, 0) / 250.0))


def test_best_effort_needs_nothing_and_loads_add_up() -> None:
    fast, slow, none = (PromisedNeed(speed, 5.0, BLOCK, 500, 250.0) for speed in (8.0, 2.0, 0.0))
    assert load_of(none, COSTS) == 0.0
    assert sum(load_of(pace, COSTS) for pace in (fast, none, slow)) == pytest.approx(1.25 * load_of(fast, COSTS))


@given(st.integers(1, 20), st.integers(0, 3000), st.floats(1e-3, 1.0))
def test_what_a_pass_costs_without_blocks_is_nobodys(new: int, cached: int, constant_s: float) -> None:
    dear = LinearCostModel(A, COMPUTE, READ, constant_s)
    assert added_s(VerifyCost(new, cached), dear) == pytest.approx(block_s(new, cached), abs=1e-9)


def test_where_one_alone_is_free_it_is_priced_among_others() -> None:
    roofline = RooflineCostModel(MODELS["qwen3-32b"], HARDWARE["a100-80gb"])
    alone_s = roofline.predict_s([BLOCK]) - roofline.predict_s([])
    assert added_s(BLOCK, roofline) == pytest.approx((roofline.predict_s([BLOCK] * 16) - roofline.predict_s([])) / 16)
    assert added_s(BLOCK, roofline) > alone_s


def test_a_model_that_falls_with_its_rows_gives_no_time_back() -> None:
    falling = LinearCostModel(0.0, 0.0, 0.0, 0.1, row_offsets_s=tuple(-0.001 * bucket for bucket in range(26)))
    assert added_s(BLOCK, falling) == 0.0


@given(st.lists(st.tuples(st.integers(0, 600), st.integers(0, 3000)), min_size=1, max_size=9))
def test_many_are_priced_as_each_is(blocks: list[tuple[int, int]]) -> None:
    for model in (COSTS, RooflineCostModel(MODELS["qwen3-32b"], HARDWARE["a100-80gb"])):
        new, cached = np.array(blocks, dtype=np.float64).T
        assert each_added_s(new, cached, model) == pytest.approx([added_s(VerifyCost(*one), model) for one in blocks])

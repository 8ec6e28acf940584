"""vLLM's passes against plain transformers in fp32: what is resident, shared, copied or split makes no difference."""

import random
import sys
from collections.abc import Sequence

import pytest
import torch
from torch import Tensor
from transformers import LlamaForCausalLM

from outrider.contracts.errors import EngineUnavailableError, ParameterError
from outrider.engines.segments import BlockCopy, Segment
from outrider.engines.vllm.model import VllmForward
from tests.unit.engines.vllm.conftest import BLOCK_TOKENS, HIDDEN, KV_BYTES_PER_TOKEN, VOCAB, MakeSettings


def tokens_of(seed: int, length: int) -> list[int]:
    rng = random.Random(seed)
    return [rng.randrange(VOCAB) for _ in range(length)]


@torch.inference_mode()
def rows_of(model: LlamaForCausalLM, tokens: Sequence[int], rows: int) -> Tensor:
    """The last rows of one plain forward pass."""
    logits: Tensor = model(torch.tensor([list(tokens)]), use_cache=False).logits[0]
    return logits[len(tokens) - rows :]


def assert_close(found: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)


def test_ragged_cold_warm_and_chunked_segments(forward: VllmForward, tiny: LlamaForCausalLM) -> None:
    """Blocks out of order; one sequence begins while others go on; a rolled back continuation is written over."""
    long, short, late = tokens_of(1, 80), tokens_of(2, 9), tokens_of(3, 33)
    first = forward.forward([Segment(long[:50], 0, [9, 4], 0), Segment(short, 0, [2], 9)])
    assert_close(first.logits, rows_of(tiny, short, 9))
    assert first.hidden is None
    wrong = [*long[:50], *tokens_of(4, 10)]
    forward.forward([Segment(wrong[50:], 50, [9, 4], 1)])
    more = [*short, *tokens_of(5, 6)]
    second = forward.forward(
        [Segment(late, 0, [7, 1], 1), Segment(long[50:], 50, [9, 4, 3], 4), Segment(more[9:], 9, [2], 6)]
    )
    expected = [rows_of(tiny, late, 1), rows_of(tiny, long, 4), rows_of(tiny, more, 6)]
    assert_close(second.logits, torch.cat(expected))


@pytest.mark.parametrize("rows", [0, 1, 2, 39, 40])
def test_any_number_of_rows(forward: VllmForward, tiny: LlamaForCausalLM, rows: int) -> None:
    tokens = tokens_of(6, 40)
    result = forward.forward([Segment(tokens, 0, [5, 6], rows)])
    assert result.logits.shape == (rows, VOCAB + 7)
    assert_close(result.logits, rows_of(tiny, tokens, rows))


def test_passes_beyond_the_engines_are_split(forward: VllmForward, tiny: LlamaForCausalLM) -> None:
    """One segment of four passes' tokens that wants hundreds of rows, and more segments than a pass takes."""
    long = tokens_of(7, 340)
    others = [tokens_of(8 + i, 3 + i) for i in range(9)]
    segments = [Segment(long, 0, range(11), 300)]
    segments += [Segment(other, 0, [20 + i], i % 3) for i, other in enumerate(others)]
    result = forward.forward(segments, want_hidden=True)
    expected = [rows_of(tiny, long, 300), *(rows_of(tiny, other, i % 3) for i, other in enumerate(others))]
    assert_close(result.logits, torch.cat(expected))
    assert result.hidden is not None
    assert result.hidden.shape == (len(result.logits), HIDDEN)


def test_hidden_states_are_those_before_the_head(forward: VllmForward, tiny: LlamaForCausalLM) -> None:
    tokens = tokens_of(20, 12)
    result = forward.forward([Segment(tokens_of(21, 5), 0, [3], 0), Segment(tokens, 0, [4], 3)], want_hidden=True)
    with torch.inference_mode():
        expected = tiny.model(torch.tensor([tokens])).last_hidden_state[0, -3:]
    assert result.hidden is not None
    assert_close(result.hidden, expected)


def test_branches_over_shared_blocks(forward: VllmForward, tiny: LlamaForCausalLM) -> None:
    """Three paths behind one prefix whose last block is a quarter full: all but the first copy it. The last goes on."""
    prefix = tokens_of(22, 40)
    forward.forward([Segment(prefix, 0, [30, 31], 0)])
    paths = [tokens_of(23, 4), tokens_of(24, 2), tokens_of(25, 30)]
    result = forward.forward(
        [
            Segment(paths[0], 40, [30, 31], 4),
            Segment(paths[1], 40, [30, 32], 2),
            Segment(paths[2], 40, [30, 33, 34], 30),
        ],
        [BlockCopy(31, 32), BlockCopy(31, 33)],
    )
    expected = [rows_of(tiny, [*prefix, *path], len(path)) for path in paths]
    assert_close(result.logits, torch.cat(expected))
    onward = tokens_of(26, 5)
    result = forward.forward([Segment(onward, 70, [30, 33, 34], 5)])
    assert_close(result.logits, rows_of(tiny, [*prefix, *paths[2], *onward], 5))


def test_a_segment_sees_what_one_before_it_writes_in_the_same_pass(
    forward: VllmForward, tiny: LlamaForCausalLM
) -> None:
    tokens = tokens_of(27, 50)
    result = forward.forward([Segment(tokens[:32], 0, [40], 1), Segment(tokens[32:], 32, [40, 41], 18)])
    assert_close(result.logits, torch.cat([rows_of(tiny, tokens[:32], 1), rows_of(tiny, tokens, 18)]))


def test_every_block_but_vllms_null_block_is_ours(forward: VllmForward, tiny: LlamaForCausalLM) -> None:
    assert forward.total_blocks == 63
    assert forward.kv_bytes == 64 * BLOCK_TOKENS * KV_BYTES_PER_TOKEN
    caches = forward._runner._core.model_executor.driver_worker.worker.model_runner.kv_caches  # noqa: SLF001 (vLLM's own)
    null = [cache[0].clone() for cache in caches]
    tokens = {block: tokens_of(100 + block, BLOCK_TOKENS) for block in range(forward.total_blocks)}
    forward.forward([Segment(ids, 0, [block], 0) for block, ids in tokens.items()])
    assert all(torch.equal(cache[0], before) for cache, before in zip(caches, null, strict=True))
    for block in (0, 30, 62):  # a row over what is resident there: nothing was written over
        again = forward.forward([Segment(tokens[block][-1:], BLOCK_TOKENS - 1, [block], 1)])
        assert_close(again.logits, rows_of(tiny, tokens[block], 1))


def test_engines_live_beside_and_after_one_another(make_settings: MakeSettings, tiny: LlamaForCausalLM) -> None:
    """And leave the process as it was: threads, hook, random numbers."""
    tokens = tokens_of(28, 40)
    set_num_threads, excepthook, state = torch.set_num_threads, sys.excepthook, torch.get_rng_state()
    small = VllmForward(make_settings(kv_budget_bytes=6 * BLOCK_TOKENS * KV_BYTES_PER_TOKEN))
    assert small.total_blocks == 5, "less KV than one sequence of the whole context takes"
    other = VllmForward(make_settings(max_pass_tokens=16))
    assert torch.set_num_threads is set_num_threads
    assert sys.excepthook is excepthook
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.get_num_threads() == 1
    for engine in (small, other, small):
        assert_close(engine.forward([Segment(tokens, 0, [4, 0], 7)]).logits, rows_of(tiny, tokens, 7))
    small.close()
    small.close()
    assert_close(other.forward([Segment(tokens, 0, [4, 0], 7)]).logits, rows_of(tiny, tokens, 7))
    other.close()


def test_options_vllm_does_not_have_or_refuses(make_settings: MakeSettings) -> None:
    with pytest.raises(ParameterError, match="names of vLLM's EngineArgs, found 'gpu_memory'"):
        VllmForward(make_settings(vllm_options={"gpu_memory": 0.5}))
    with pytest.raises(EngineUnavailableError, match=r"does not start .*quantization"):
        VllmForward(make_settings(vllm_options={"quantization": "no-such-method"}))
    with pytest.raises(EngineUnavailableError, match=r"does not start .*memory"):
        VllmForward(make_settings(kv_budget_bytes=1 << 50))


@pytest.mark.parametrize("stage", ["model", "rows", "before"])
def test_a_pass_that_goes_wrong_inside_vllm_leaves_it_as_it_was(
    stage: str, forward: VllmForward, tiny: LlamaForCausalLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the model, behind it, and before it: the next pass, of others and of the same, is what it always is."""
    runner = forward._runner._core.model_executor.driver_worker.worker.model_runner  # noqa: SLF001 (where it goes wrong)
    owner, name = {
        "model": (runner, "_model_forward"),
        "rows": (runner.model, "compute_logits"),
        "before": (runner, "_prepare_inputs"),
    }[stage]
    tokens, other = tokens_of(31, 40), tokens_of(32, 20)
    forward.forward([Segment(tokens[:32], 0, [5], 0)])
    times = 0

    def wrong(*_arguments: object, **_more: object) -> None:
        nonlocal times
        times += 1
        raise RuntimeError("nan")

    with monkeypatch.context() as patch:
        patch.setattr(owner, name, wrong)
        for segment in (Segment(tokens[32:], 32, [5, 6], 8), Segment(other, 0, [7], 3)):
            with pytest.raises(RuntimeError, match="nan"):
                forward.forward([segment])
    assert times == 2
    result = forward.forward([Segment(other, 0, [7], 3), Segment(tokens[32:], 32, [5, 6], 8)])
    assert_close(result.logits, torch.cat([rows_of(tiny, other, 3), rows_of(tiny, tokens, 8)]))

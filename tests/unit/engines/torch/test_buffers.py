"""Passes filled up to buckets of rows over shared buffers, as on a GPU: the same bits, at the same addresses."""

import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from outrider.engines.forward_model import PassResult
from outrider.engines.segments import Move, Segment
from outrider.engines.torch import buffers
from outrider.engines.torch.buffers import BUCKETS, LARGEST_BUCKET, bucket_of
from outrider.engines.torch.linears import can_pack
from outrider.engines.torch.model import DraftModel, PagedModel
from outrider.sampling.device_tensors import everywhere_at_once
from tests.unit.engines.torch.test_invariance import gpt2, llama, qwen3_moe

VOCAB, BLOCK_TOKENS, BLOCKS = 512, 8, 40
TREE = (-1, -1, 0, 0, 1)


@pytest.fixture(autouse=True)
def uninitialised_memory_is_nan() -> Iterator[None]:
    """What rows that fill up leave behind must reach no other row."""
    torch.use_deterministic_algorithms(mode=True)
    yield
    torch.use_deterministic_algorithms(mode=False)


@pytest.mark.parametrize(
    ("rows", "filled"), [(1, 1), (3, 4), (4, 4), (5, 8), (41, 48), (249, 256), (256, 256), (257, 257)]
)
def test_a_pass_is_filled_up_to_the_next_bucket(rows: int, filled: int) -> None:
    assert bucket_of(rows) == filled


def test_few_rows_fill_up() -> None:
    assert all(rows <= bucket_of(rows) < rows + 8 for rows in range(1, LARGEST_BUCKET + 1))
    assert {bucket_of(rows) for rows in range(1, LARGEST_BUCKET + 1)} == set(BUCKETS)


Make = Callable[[], Any]


class Noted:
    """A model that notes shape and address of each pass's token ids."""

    def __init__(self, make: Make, kind: type[PagedModel], dtype: torch.dtype, *, filled: bool) -> None:
        torch.manual_seed(0)
        model = make().to(dtype).eval()
        if filled:
            with everywhere_at_once():
                self.model = kind(model, BLOCKS, BLOCK_TOKENS)
        else:
            self.model = kind(model, BLOCKS, BLOCK_TOKENS)
        self.seen: list[tuple[int, int]] = []
        model.register_forward_pre_hook(self._note, with_kwargs=True)

    def _note(self, _module: object, _inputs: object, named: Any) -> None:
        self.seen.append((named["input_ids"].shape[1], named["input_ids"].data_ptr()))


def passes() -> Iterator[list[Segment]]:
    """A prompt in chunks, then drafts, single rows and trees of three generations that come and go."""
    rng = random.Random(0)
    order = [0, *rng.sample(range(1, BLOCKS), BLOCKS - 1)]
    blocks = [order[at::3] for at in range(3)]
    lengths = [0, 0, 0]
    for _ in range(25):
        segments = list[Segment]()
        for one in rng.sample(range(3), rng.randint(1, 3)):
            count = rng.choice((1, 1, 2, 5, 9, 30))
            if lengths[one] + count + len(TREE) > 13 * BLOCK_TOKENS:
                lengths[one] = 0
            tree = TREE if rng.random() < 0.3 else ()
            tokens = [rng.randrange(VOCAB) for _ in range(count + len(tree))]
            segments.append(Segment(tokens, lengths[one], blocks[one], rng.randint(0, len(tokens)), tree))
            lengths[one] += count
        yield segments


def said(model: PagedModel) -> list[PassResult]:
    return [model.forward(segments, want_hidden=True) for segments in passes()]


def narrow(make: Make) -> Make:
    if not can_pack(make().bfloat16()):
        pytest.skip("this processor does not compute in bfloat16")
    return make


@pytest.mark.parametrize("kind", [PagedModel, DraftModel])
@pytest.mark.parametrize("make", [llama, gpt2])
def test_filling_up_changes_no_bit(make: Make, kind: type[PagedModel]) -> None:
    plain, filled = (Noted(narrow(make), kind, torch.bfloat16, filled=one) for one in (False, True))
    for expected, found in zip(said(plain.model), said(filled.model), strict=True):
        assert torch.equal(found.logits, expected.logits)
        assert found.hidden is not None
        assert expected.hidden is not None
        assert torch.equal(found.hidden, expected.hidden)
    assert [rows for rows, _ in filled.seen] == [bucket_of(rows) for rows, _ in plain.seen]
    assert filled.seen != plain.seen


@pytest.mark.parametrize("kind", [PagedModel, DraftModel])
@pytest.mark.parametrize("make", [llama, qwen3_moe])
def test_nor_does_it_change_what_is_said_in_float32(make: Make, kind: type[PagedModel]) -> None:
    plain, filled = (Noted(make, kind, torch.float32, filled=one) for one in (False, True))
    for expected, found in zip(said(plain.model), said(filled.model), strict=True):
        torch.testing.assert_close(found.logits, expected.logits, atol=2e-4, rtol=2e-4)


def test_no_pass_makes_inputs_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    filled = Noted(llama, PagedModel, torch.float32, filled=True)
    said(filled.model)
    assert {pool.shape[1] for pool in filled.model.pools} == {(BLOCKS + 1) * BLOCK_TOKENS}, (
        "a spare block for what fills"
    )
    assert len({address for _, address in filled.seen}) == 1
    monkeypatch.setattr(buffers, "INPUTS", 10)
    small = Noted(llama, PagedModel, torch.float32, filled=True)
    for expected, found in zip(said(filled.model), said(small.model), strict=True):
        assert torch.equal(found.logits, expected.logits)
    assert len({address for _, address in small.seen}) > 1, "what is too large for the buffer goes without"


@pytest.mark.parametrize("filled", [False, True])
def test_kv_is_moved_and_cleared_beside_the_spare_block(*, filled: bool) -> None:
    model = Noted(narrow(llama), PagedModel, torch.bfloat16, filled=filled).model
    model.forward([Segment([1, 2, 3], 0, [BLOCKS - 1], 1)])
    expected = [pool[:, [(BLOCKS - 1) * BLOCK_TOKENS + 2]].clone() for pool in model.pools]
    model.move([Move([BLOCKS - 1], [2], [7])])
    assert all(
        torch.equal(pool[:, [BLOCKS * BLOCK_TOKENS - 1]], one) for pool, one in zip(model.pools, expected, strict=True)
    )
    model.clear([BLOCKS - 1])
    assert not any(pool[:, (BLOCKS - 1) * BLOCK_TOKENS : BLOCKS * BLOCK_TOKENS].any() for pool in model.pools)

"""A small campaign on a tiny model: it finds nothing where all is exact, and what was planted where it is not."""

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch

from lab.bench.exactness.company import Counts, Difference, faults, total, tried
from lab.bench.exactness.reference import Target
from lab.bench.exactness.requests import Request, draw_requests
from outrider.engines.forward_model import MaskedModel, PassResult
from outrider.engines.segments import Move, Segment
from outrider.engines.torch.linears import can_pack
from outrider.engines.torch.model import PagedModel
from tests.unit.engines.conftest import CONTEXT_TOKENS, VOCAB, tiny_llama


class Disturbed:
    """A model whose logits depend a little on how many sequences are in a pass."""

    def __init__(self, model: MaskedModel, by: float, above: int) -> None:
        self.model, self.by, self.above = model, by, above
        self.total_blocks, self.block_tokens, self.no_logits = model.total_blocks, model.block_tokens, model.no_logits

    def forward(self, segments: Sequence[Segment], *, want_hidden: bool = False) -> PassResult:
        found = self.model.forward(segments, want_hidden=want_hidden)
        if len(segments) <= self.above:
            return found
        noise = torch.randn(found.logits.shape, generator=torch.Generator().manual_seed(len(segments)))
        return replace(found, logits=found.logits + (self.by * noise).to(found.logits.dtype))

    def move(self, moves: Sequence[Move]) -> None:
        self.model.move(moves)


class Forgetful(PagedModel):
    """A model that leaves a tree's accepted path where it was computed."""

    def move(self, moves: Sequence[Move]) -> None:
        """Move nothing."""


def requests(count: int) -> tuple[Request, ...]:
    rng = random.Random(1)
    texts = [[rng.randrange(VOCAB) for _ in range(50)] for _ in range(10)]
    return draw_requests(texts, count, 0, VOCAB)


def narrow() -> Any:
    model = tiny_llama().bfloat16()
    if not can_pack(model):
        pytest.skip("this processor does not compute in bfloat16")
    return model


def target(model: MaskedModel) -> Target:
    return Target(model, VOCAB, CONTEXT_TOKENS)


def test_what_is_exact_is_found_exact_to_the_last_bit() -> None:
    asked = requests(24)
    counts = tried(target(PagedModel(narrow(), 400, 16)), asked, 0)
    assert not faults(counts, bits_promised=True)
    # Of each response all is compared, and of some what lies behind it; nothing twice.
    assert counts.tokens == counts.reference_tokens == sum(one.tokens for one in asked)
    assert counts.requests == 24
    assert min(counts.logprobs, counts.trees, counts.accepted_tokens) > 20
    assert counts.accepted_tokens < counts.drafted_tokens
    assert counts.widest > 4
    assert min(counts.engines_lost, counts.generations_lost, counts.evictions) > 0


def test_float32_says_the_same_tokens() -> None:
    counts = tried(target(PagedModel(tiny_llama(), 400, 16)), requests(8), 1)
    assert not faults(counts, bits_promised=False)


@pytest.mark.parametrize(("by", "differ"), [(2.0**-6, False), (1.0, True)])
def test_a_trace_of_company_is_found(by: float, *, differ: bool) -> None:
    """In bits, where it moves no token yet."""
    counts = tried(target(Disturbed(PagedModel(narrow(), 400, 16), by, above=2)), requests(12), 0)
    assert counts.logprob_bits > 0
    assert not differ or counts.differences == len(counts.found) > 0
    assert faults(counts, bits_promised=True)


def test_kv_that_a_tree_leaves_in_the_wrong_place_is_found() -> None:
    counts = tried(target(Forgetful(narrow(), 400, 16)), requests(12), 0)
    assert counts.differences > 0


def test_counts_add_up() -> None:
    one = Counts(tokens=3, widest=4, found=(Difference("a", 1, 2, 3),))
    other = Counts(tokens=5, widest=2, differences=1, found=(Difference("b", 1, 2, 3),) * 30)
    both = total([one, other])
    assert (both.tokens, both.widest, both.differences, len(both.found)) == (8, 4, 1, 20)
    assert both.found[0].request == "a"


def test_faults() -> None:
    fine = Counts(tokens=10, logprobs=5, logprob_bits=1)
    assert faults(Counts(), bits_promised=False) == ["no token was compared"]
    assert not faults(fine, bits_promised=False)
    assert len(faults(fine, bits_promised=True)) == 1
    assert len(faults(replace(fine, differences=2), bits_promised=True)) == 2

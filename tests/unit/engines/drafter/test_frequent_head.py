"""A drafter that proposes some tokens only computes their logits alone, and drafts as if it had computed them all."""

from contextlib import nullcontext

import numpy as np
import pytest
import torch
from transformers import PreTrainedModel

from outrider.contracts.requests import ProtocolName, SamplingParams
from outrider.models.drafter_model import FrequentHead
from outrider.protocols.registry import PROTOCOLS
from outrider.sampling.device_tensors import everywhere_at_once
from tests.unit.engines.conftest import VOCAB, tiny_llama, torch_drafter
from tests.unit.engines.drafter_device import GREEDY, PENALISED, SAMPLED, TERMS, Device, answers_of, draft_of

TOKEN_IDS = torch.tensor([*range(0, VOCAB, 3), VOCAB + 2])  # one is padding
PARAMS = {
    "greedy": GREEDY,
    "sampled": SAMPLED,
    "truncated": SamplingParams(temperature=1.4, seed=8, top_k=9, top_p=0.9, min_p=0.01),
    "penalised": PENALISED,
    "biased": SamplingParams(temperature=0.7, seed=5, logit_bias=((3, 4.0), (4, 100.0), (9, -100.0))),
    "withheld": SamplingParams(temperature=0.9, seed=3, withheld_ids=(0, 3, 6), withheld_until=60),
}


class Unrecognised(torch.nn.Module):
    """The same head, of which an engine sees only that it gives logits of the whole vocabulary."""

    def __init__(self, head: FrequentHead) -> None:
        super().__init__()
        self.head = head

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.head(hidden)
        return logits


def proposing_some(*, recognised: bool) -> PreTrainedModel:
    model = tiny_llama()
    weight = model.lm_head.weight.detach()
    head = FrequentHead(torch.eye(weight.shape[1]), weight, TOKEN_IDS)
    model.set_output_embeddings(head if recognised else Unrecognised(head))
    return model


@pytest.mark.parametrize("params", PARAMS.values(), ids=PARAMS.keys())
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_every_protocol_drafts_the_same_from_fewer_logits(protocol: ProtocolName, params: SamplingParams) -> None:
    some, all_of_them = (torch_drafter(proposing_some(recognised=known)) for known in (True, False))
    device, other = (Device("a", params, protocol=protocol) for _ in range(2))
    expansion = (2, 2, 1) if not PROTOCOLS[protocol].chains else ()
    for engine in (some, all_of_them):
        engine.open(device.opening(), TERMS)
    for _ in range(3):
        drafts = [draft_of(engine, one.request(4, expansion)) for engine, one in ((some, device), (all_of_them, other))]
        assert drafts[0].token_ids
        assert set(drafts[0].token_ids) <= set(TOKEN_IDS.tolist()) - {VOCAB + 2}
        assert drafts[0].token_ids == drafts[1].token_ids
        assert repr(drafts[0].distribution) == repr(drafts[1].distribution)
        for one in (device, other):
            one.tokens += [drafts[0].token_ids[0], 11]


@pytest.mark.parametrize("params", PARAMS.values(), ids=PARAMS.keys())
def test_a_device_of_its_own_chooses_the_same(params: SamplingParams) -> None:
    """All rows at once, and the noise made where they are."""
    drafts = []
    for where in (nullcontext, everywhere_at_once):
        engine, device = torch_drafter(proposing_some(recognised=True)), Device("a", params)
        engine.open(device.opening(), TERMS)
        with where():
            drafts.append(draft_of(engine, device.request(6)))
    assert drafts[0] == drafts[1]


def test_requests_that_name_tokens_and_others_are_drawn_together() -> None:
    engine = torch_drafter(proposing_some(recognised=True))
    alone = torch_drafter(proposing_some(recognised=True))
    devices = [Device(name, params) for name, params in PARAMS.items()]
    expected = {}
    for device in devices:
        for one in (engine, alone):
            one.open(device.opening(), TERMS)
        request = device.request(5)
        engine.submit(request)
        expected[device.name] = draft_of(alone, request)
    assert answers_of(engine) == expected


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_request_that_leaves_none_of_its_tokens_is_drafted_for_all_the_same(protocol: ProtocolName) -> None:
    engine = torch_drafter(proposing_some(recognised=True))
    nothing_left = SamplingParams(temperature=0.9, seed=3, withheld_ids=tuple(TOKEN_IDS.tolist()), withheld_until=1_000)
    device, neighbour = Device("a", nothing_left, protocol=protocol), Device("b", SAMPLED)
    for one in (device, neighbour):
        engine.open(one.opening(), TERMS)
    expansion = (2, 1) if not PROTOCOLS[protocol].chains else ()
    engine.submit(device.request(2, expansion))
    engine.submit(neighbour.request(2))
    answers = answers_of(engine)
    assert set(answers) == {"a", "b"}
    alone = torch_drafter(proposing_some(recognised=True))
    alone.open(neighbour.opening(), TERMS)
    assert answers["b"] == draft_of(alone, Device("b", SAMPLED).request(2))


def test_its_logits_are_those_of_the_whole_head() -> None:
    model = tiny_llama()
    hidden = torch.randn(5, model.config.hidden_size, generator=torch.Generator().manual_seed(1))
    weight = model.lm_head.weight.detach()
    projection = torch.randn(weight.shape[1], weight.shape[1], generator=torch.Generator().manual_seed(2))
    found = FrequentHead(projection, weight, TOKEN_IDS)(hidden)
    whole = hidden @ projection @ weight.T
    torch.testing.assert_close(found[:, TOKEN_IDS], whole[:, TOKEN_IDS], rtol=1e-4, atol=1e-4)
    others = np.setdiff1d(np.arange(len(weight)), TOKEN_IDS.numpy())
    assert torch.isneginf(found[:, others]).all()

"""A protocol that the product does not know, whole in this file: it is drawn, sent, verified, chosen and counted.

``pairs`` drafts one of the two likeliest tokens, each with probability 1/2, and sends both with a bit that says which.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pytest

from outrider.config.reading import parse_config
from outrider.contracts.drafting import Draft, DraftPlan, DraftRequest
from outrider.contracts.errors import ConfigError, MessageError, ParameterError
from outrider.contracts.exchanged import DraftDistribution, FloatRow, IntRow, SparseDraft, WireFormat
from outrider.contracts.prefix import EMPTY_PREFIX_HASH, extend_prefix_hash
from outrider.contracts.requests import GenerationChunk, GenerationRequest, SamplingParams
from outrider.protocols.drawing import best, siblings
from outrider.protocols.protocol import DraftProtocol, DraftRow, DrawnRow, Layer, block, distribution_as
from outrider.protocols.registry import PROTOCOLS, register, unregister
from outrider.selection.acceptance import AcceptanceBook
from outrider.selection.cheapest import Cheapest
from outrider.session.session import CoordinatorSession, DrafterSession
from outrider.text.tokens import TokenTable
from outrider.wire.bits import BitReader, BitWriter, id_bits
from outrider.wire.shapes import read_shape, shape_bits, write_shape
from serve_app.answers import OutriderUsage
from serve_app.api.openai.choices import Choice
from serve_app.api.openai.writing.choice_reader import ChoiceReader
from serve_app.api.openai.writing.usage import usage_of
from tests.unit.selection.simulated_rounds import World, link
from tests.unit.serve_app.api.asked_choices import generation
from tests.unit.serve_app.api.in_memory_service import (
    LENGTH,
    TOKENIZER,
    Service,
    drafter,
    request_for,
    tokens_of,
    truth_of,
)
from tests.unit.serve_app.api.text_service import LIMITS
from tests.unit.serve_app.coordination.in_memory import WIRE
from tests.unit.virtual_clock import on_loop


class Pairs(DraftProtocol):
    name = "pairs"
    code = 12  # behind the codes that fit three bits

    def encode(self, writer: BitWriter, draft: Draft, plan: DraftPlan, wire: WireFormat) -> None:
        rows = distribution_as(SparseDraft, draft).token_ids
        write_shape(writer, draft, plan)
        for token_id, row in zip(draft.token_ids, rows, strict=True):
            writer.ids([row[0], row[-1]], wire.vocab_size)
            writer.flag(value=bool(token_id != row[0]))

    def decode(self, reader: BitReader, request: DraftRequest, wire: WireFormat) -> Draft:
        nodes, _ = read_shape(reader, request.plan)
        token_ids: list[int] = []
        rows = []
        for _ in range(nodes):
            pair = reader.ids(2, wire.vocab_size)
            if pair[0] > pair[1]:
                raise MessageError("needs pairs in order")
            token_ids.append(int(pair[int(reader.flag())]))
            rows.append(np.unique(pair))
        return block(request, tuple(token_ids), None, SparseDraft(tuple(rows), tuple(map(_even, rows))))

    def expected_bits(self, wire: WireFormat, plan: DraftPlan) -> int:
        return plan.window * (2 * id_bits(wire.vocab_size) + 1)

    def overhead_bits(self, wire: WireFormat, plan: DraftPlan) -> int:  # noqa: ARG002 (interface)
        return shape_bits(plan)

    def draw_greedy(self, row: FloatRow, layer: Layer) -> DrawnRow:  # noqa: ARG002 (interface)
        support = np.array(best(row, 1))
        return DrawnRow((int(support[0]),), support, _even(support))

    def rounded(self, row: FloatRow, wire: WireFormat, params: SamplingParams) -> DraftRow:  # noqa: ARG002 (interface)
        support = np.array(sorted(best(row, 2)))
        return DraftRow(_even(support), support)

    def draw_sampled(self, rows: Sequence[DraftRow], layer: Layer) -> list[DrawnRow]:
        drawn = []
        for row in rows:
            assert row.support is not None
            (at,) = siblings(row.probs, layer.numbers(), distinct=False)
            drawn.append(DrawnRow((int(row.support[at]),), row.support, row.logits))
        return drawn

    def distribution(self, rows: Sequence[DrawnRow], wire: WireFormat, params: SamplingParams) -> DraftDistribution:  # noqa: ARG002 (interface)
        supports = tuple(row.support for row in rows if row.support is not None)
        return SparseDraft(supports, tuple(map(_even, supports)))


def _even(support: IntRow) -> FloatRow:
    return np.zeros(len(support), dtype=np.float32)


@pytest.fixture(autouse=True)
def pairs() -> Iterator[None]:
    register(Pairs())
    yield
    unregister(Pairs.name)


def sampled(**fields: object) -> GenerationRequest:
    request = replace(request_for(params=SamplingParams(seed=4)), reproducible=False)
    return replace(request, **fields)  # type: ignore[arg-type]  # fields by name


def usage(request: GenerationRequest, chunks: Sequence[GenerationChunk]) -> OutriderUsage:
    """``usage.outrider`` of a response."""
    reader = ChoiceReader(Choice(0, request, True, None), TokenTable(TOKENIZER.backend_tokenizer))
    for chunk in chunks:
        reader.read(chunk)
    return usage_of([reader])["outrider"]


def test_an_order_names_it_and_a_block_comes_back() -> None:
    plan, support = DraftPlan("pairs", 3), (np.array([3, 9]), np.array([0, 1]))
    request = DraftRequest("g", 1, 2, (), extend_prefix_hash(EMPTY_PREFIX_HASH, (5, 6)), plan)
    coordinator, device = CoordinatorSession(WIRE, "g"), DrafterSession(WIRE, "g", (5, 6))
    heard = device.decode_order(coordinator.encode_order(request))
    assert heard == request
    draft = Draft("g", 1, 2, (9, 0), distribution=SparseDraft(support, tuple(map(_even, support))))
    data = device.encode_answer(draft)
    assert coordinator.decode_answer(data, request) == draft
    with pytest.raises(MessageError, match="code of a protocol"):
        _unregistered(coordinator.encode_order(request))


@on_loop
async def test_greedy_output_is_the_targets_own() -> None:
    service = Service(drafter())
    request = replace(request_for(window=3), protocol="pairs")
    chunks = await service.response(request)
    assert tokens_of(chunks) == truth_of(request)
    assert chunks[-1].stats.accepted_tokens > 0
    await service.idle()


@on_loop
async def test_it_is_drafted_verified_and_counted_in_usage() -> None:
    service = Service(drafter())
    request = sampled(protocol="pairs", window=3)
    chunks = await service.response(request)
    assert len(tokens_of(chunks)) == LENGTH
    told, stats = usage(request, chunks), chunks[-1].stats
    assert told["protocols"] == {"pairs": stats.speculative_rounds, "none": stats.rounds - stats.speculative_rounds}
    assert 0 < stats.accepted_tokens < stats.drafted_tokens
    assert told["lossless"] is True
    drafted = [timing for timing in service.timings if timing.drafted_tokens]
    assert {timing.protocol for timing in drafted} == {"pairs"}
    await service.idle()


@on_loop
async def test_a_policy_chooses_it_where_it_is_allowed() -> None:
    service = Service(drafter(), protocols=("pairs",))
    service.rules = replace(service.rules, policy=Cheapest())
    chunks = await service.response(sampled(window=2))
    assert {name for name, _ in chunks[-1].stats.protocols} == {"pairs"}
    seeded = await service.response(replace(sampled(window=2), generation="h", reproducible=True))
    assert seeded[-1].stats.protocols == (), "it does not keep the tokens a seed stands for"
    await service.idle()


def test_choice_weighs_it_by_its_own_bits() -> None:
    """Over a link of 1 kbit/s it is cheaper than whole rows, and dearer than ids alone."""
    situation = World(link(0.001, 20), 0.8).situation(AcceptanceBook().generation(), window=2)
    for other, found in (("dsd", "pairs"), ("token_ids", "token_ids")):
        choice = Cheapest().choose(replace(situation, protocols=("pairs", other)), None)
        assert choice.chosen.plan == DraftPlan(found, 2)


def test_configuration_and_requests_may_name_it() -> None:
    assert parse_config("speculation: {protocols: [pairs]}", "test").speculation.protocols == ("pairs",)
    limits = replace(LIMITS, protocols=(*LIMITS.protocols, "pairs"))
    assert generation(limits=limits, outrider={"protocol": "pairs"}).protocol == "pairs"
    with pytest.raises(ParameterError, match=r"token_ids.* with a seed"):
        generation(limits=limits, outrider={"protocol": "pairs"}, seed=1)
    with pytest.raises(ParameterError, match="needs one of token_ids"):
        generation(outrider={"protocol": "pairs"})
    with pytest.raises(ConfigError, match=r"wisv_selective, .*pairs, found 'pears'"):
        parse_config("speculation: {protocols: [pears]}", "test")


def test_names_and_codes_are_taken_once() -> None:
    with pytest.raises(ParameterError, match="name needs one that is not in use"):
        register(Pairs())
    unregister("pairs")
    register(Pairs())
    with pytest.raises(ParameterError, match="code needs one that is not in use"):
        register(_SameCode())
    assert "pears" not in PROTOCOLS


class _SameCode(Pairs):
    name = "pears"


def _unregistered(order: bytes) -> None:
    unregister("pairs")
    try:
        DrafterSession(WIRE, "g", (5, 6)).decode_order(order)
    finally:
        register(Pairs())

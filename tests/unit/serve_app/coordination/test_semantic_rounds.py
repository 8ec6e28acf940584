"""Responses whose mismatches are judged: a token is the target's own behind those before it, or a told override."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from outrider.contracts.errors import DrafterLostError
from outrider.contracts.exchanged import FloatField
from outrider.contracts.requests import GenerationChunk, GenerationRequest, TokenOrigin
from outrider.contracts.verifying import AcceptanceRule
from tests.unit.engines.conftest import tiny_llama
from tests.unit.engines.semantic_device import plain_rows
from tests.unit.serve_app.api.in_memory_service import LENGTH, Service, drafter, request_for, tokens_of, truth_of
from tests.unit.serve_app.coordination.in_memory import FIRST, PROMPT
from tests.unit.verification.random_head import head_of
from tests.unit.virtual_clock import on_loop

DRAFTER, TARGET = 48, tiny_llama().config.hidden_size
UPLOADS = ("wisv_full", "wisv_selective")


def service(threshold: float = 0.5, seed: int = 0, rejection: tuple[float, float] = (0.0, 1.0)) -> Service:
    head = head_of(DRAFTER, TARGET, threshold, seed=seed, rejection=rejection)
    return Service(drafter(), judge=head.decisions, heads={FIRST.group: head})


def semantic(protocol: str, window: int = 5, name: str = "g") -> GenerationRequest:
    return replace(request_for(name, window=window), protocol=protocol, semantic=True)


def overrides_of(chunks: Sequence[GenerationChunk]) -> tuple[int, ...]:
    return chunks[-1].stats.overrides


def assert_told(tokens: Sequence[int], overrides: Sequence[int]) -> None:
    """The invariant of semantic verification."""
    logits, _ = plain_rows((*PROMPT, *tokens))
    own = logits[len(PROMPT) - 1 : -1].argmax(dim=-1)
    assert [i for i, token_id in enumerate(tokens) if token_id != own[i]] == list(overrides)


@pytest.mark.parametrize("threshold", [0.0, 0.3, 0.7, 1.0])
@on_loop
async def test_both_uploads_decide_alike(threshold: float) -> None:
    made = []
    for protocol in UPLOADS:
        served = service(threshold)
        chunks = await served.response(semantic(protocol))
        tokens, stats = tokens_of(chunks), chunks[-1].stats
        assert len(tokens) == LENGTH
        assert_told(tokens, overrides_of(chunks))
        assert stats.inexact_rounds == sum(timing.override_tokens > 0 for timing in served.timings)
        assert dict(stats.protocols).keys() <= {protocol}
        assert stats.judged_tokens >= len(stats.overrides)
        spans = [span.origin for chunk in chunks for span in chunk.spans]
        assert (TokenOrigin.OVERRIDE in spans) == bool(stats.overrides)
        made.append((tokens, stats.overrides, stats.rounds))
        await served.idle()
    assert made[0] == made[1]
    if threshold == 0.0:
        assert made[0][0] == truth_of(request_for())
        assert made[0][1] == ()
    if threshold == 1.0:
        assert stats.judged_tokens == len(stats.overrides) > 0, "every draft is taken whole"


@on_loop
async def test_hidden_states_go_up_for_mismatches_alone() -> None:
    bits = {}
    for protocol in UPLOADS:
        served = service()
        bits[protocol] = (await served.response(semantic(protocol)))[-1].stats.payload_up_bits
        resolved = [resolution for call in served.verifier.calls for resolution in call.resolutions]
        assert bool(resolved) == (protocol == "wisv_selective")
        await served.idle()
    assert bits["wisv_selective"] < bits["wisv_full"]


@on_loop
async def test_states_of_eight_bits_with_scales_by_groups_are_judged() -> None:
    served = service()
    wire = replace(served.link_settings.wire, hidden_field=FloatField.INT8)
    served.link_settings = replace(served.link_settings, wire=wire)
    chunks = await served.response(semantic("wisv_full"))
    assert_told(tokens_of(chunks), overrides_of(chunks))
    whole = (await service().response(semantic("wisv_full")))[-1].stats
    assert chunks[-1].stats.payload_up_bits < 0.7 * whole.payload_up_bits
    await served.idle()


@on_loop
async def test_a_request_that_does_not_allow_it_is_not_judged() -> None:
    served = service(threshold=1.0)
    served.rules = replace(
        served.rules, speculation=replace(served.rules.speculation, protocols=("wisv_full", "token_ids"))
    )
    chunks = await served.response(request_for(window=3))
    assert tokens_of(chunks) == truth_of(request_for())
    assert dict(chunks[-1].stats.protocols).keys() == {"token_ids"}
    await served.idle()


@pytest.mark.parametrize("protocol", UPLOADS)
@pytest.mark.parametrize("trouble", ["dies_before", "dies_after", "answer_lost", "forgets_before"])
@on_loop
async def test_losses_of_the_verifier_lose_no_token(protocol: str, trouble: str) -> None:
    served = service()
    setattr(served.verifier, trouble, (3, 6, 7, 11))
    chunks = await served.response(semantic(protocol, window=4))
    assert len(tokens_of(chunks)) == LENGTH
    assert_told(tokens_of(chunks), overrides_of(chunks))
    await served.idle()


@pytest.mark.parametrize("protocol", UPLOADS)
@pytest.mark.parametrize("step", ["draft", "question"])
@on_loop
async def test_a_device_that_is_lost_costs_mismatches_alone(protocol: str, step: str) -> None:
    served = service(threshold=1.0)
    served.fleet.transports[FIRST].lost[step] = DrafterLostError("gone")
    chunks = await served.response(semantic(protocol, window=4))
    tokens = tokens_of(chunks)
    assert len(tokens) == LENGTH
    assert_told(tokens, overrides_of(chunks))
    drift = served.book.acceptance(FIRST).drift
    assert drift is not None
    if protocol == "wisv_selective" or step == "draft":
        assert tokens == truth_of(request_for())
        assert (chunks[-1].stats.judged_tokens, drift.judged) == (0, 0), "what nobody judged tells nothing of a judge"
    await served.idle()


@on_loop
async def test_a_head_that_has_drifted_judges_nothing_more() -> None:
    served = service(threshold=0.0, rejection=(0.02, 0.04))
    count = 0
    while not served.book.acceptance(FIRST).drift.alarmed:  # type: ignore[union-attr]  # it has a head
        await served.response(semantic("wisv_full", window=2, name=f"g{count}"))
        count += 1
        assert count < 200
    assert served.book.acceptance(FIRST).drift.judged >= 200  # type: ignore[union-attr]
    chunks = await served.response(semantic("wisv_full", name="last"))
    assert chunks[-1].stats.judged_tokens == 0
    assert tokens_of(chunks) == truth_of(request_for())
    assert dict(chunks[-1].stats.protocols).keys() == {"token_ids"}, "verified strictly, and still drafted"
    assert not any(
        block.rule is AcceptanceRule.SEMANTIC for call in served.verifier.calls[-3:] for block in call.blocks
    )
    await served.idle()

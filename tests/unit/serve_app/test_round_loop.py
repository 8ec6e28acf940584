"""Responses through round loop, batcher and drafter link over real engines in this process: exact, whatever is lost."""

import asyncio
import functools
import random
from collections import deque
from collections.abc import AsyncGenerator, Callable, Container
from contextlib import aclosing
from dataclasses import replace

import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

from actors.messages import VerifyCall, VerifyReply
from outrider.engines.base import Draft, VerifierEngine
from outrider.errors import (
    ContextTooLongError,
    DrafterLostError,
    GenerationFailedError,
    OutriderError,
    VerifierLostError,
)
from outrider.generation import Generation, GenerationState
from outrider.scheduling.cost_model import LinearCostModel
from outrider.scheduling.fcfs import Fcfs
from outrider.scheduling.policy import BatchLimits
from outrider.text import IncrementalText
from outrider.types import FinishReason, GenerationChunk, GenerationId, GenerationRequest, SamplingParams
from serve_app.batcher import Batcher
from serve_app.drafter_link import DrafterLink
from serve_app.round_loop import RoundLoop, RoundServices, acceptance_rule
from tests.unit.engines.conftest import BLOCK_TOKENS, VOCAB, tiny_llama, torch_drafter, torch_verifier
from tests.unit.engines.reference import target_alone
from tests.unit.serve_app.test_drafter_link import (
    FIRST,
    GREEDY,
    NONSENSE,
    PROMPT,
    SAMPLED,
    SETTINGS,
    EngineTransport,
    Gate,
    MemoryFleet,
    on_loop,
    until,
)

PENALISED = SamplingParams(temperature=1.0, seed=4, repetition_penalty=1.2, frequency_penalty=0.5)
PARAMS = {"greedy": GREEDY, "sampled": SAMPLED, "penalised": PENALISED}
CHUNK = 16
LONG_PROMPT = tuple(random.Random(7).randrange(VOCAB) for _ in range(60))  # four chunks
LENGTH = 24


def tiny_tokenizer() -> PreTrainedTokenizerFast:
    """One word per token, ``w0 .. w96``."""
    raw = Tokenizer(models.WordLevel({f"w{i}": i for i in range(VOCAB)}, unk_token="w0"))  # noqa: S106 (no password)
    raw.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=raw)


TOKENIZER = tiny_tokenizer()


def draft_model() -> LlamaForCausalLM:
    """Like the target, but not quite: right for a while, then wrong."""
    model = tiny_llama()
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(torch.randn_like(weight), alpha=0.03)
    return model


def drafter() -> EngineTransport:
    return EngineTransport(torch_drafter(draft_model()))


class LocalVerifier:
    """A real verifier engine in this process; calls are applied one after the other, as ``VerifierActor`` does."""

    def __init__(self, blocks: int = 200) -> None:
        self._blocks = blocks
        self.max_context_tokens = min(256, blocks * BLOCK_TOKENS)
        self.engine = self._empty()
        self.calls: list[VerifyCall] = []
        self.gates: dict[int, Gate] = {}  # by number of the call
        self.dies_before: Container[int] = ()  # numbers of calls
        self.dies_after: Container[int] = ()  # the call is applied, but nobody learns of it
        self.answer_lost: Container[int] = ()  # the call is applied, and the engine goes on
        self.forgets_before: Container[int] = ()  # restarts in silence: its generations are unknown then
        self.restarting: Gate | None = None
        self._one_at_a_time = asyncio.Lock()

    async def verify(self, call: VerifyCall) -> VerifyReply:
        """Apply one call."""
        async with self._one_at_a_time:
            await asyncio.sleep(0)
            number = len(self.calls)
            self.calls.append(call)
            if number in self.gates:
                await self.gates[number].wait()
            if number in self.dies_before or number in self.forgets_before:
                self.engine = self._empty()
            if number in self.dies_before:
                raise VerifierLostError("died")
            reply = self._apply(call)
            if number in self.dies_after:
                self.engine = self._empty()
            if number in self.dies_after or number in self.answer_lost:
                raise VerifierLostError("died")
            return reply

    async def awaited(self) -> None:
        """It answers again."""
        if self.restarting is not None:
            await self.restarting.wait()

    @property
    def empty(self) -> bool:
        """Whether it holds nothing."""
        usage = self.engine.usage()
        return (usage.generations, usage.used_blocks) == (0, 0)

    def _empty(self) -> VerifierEngine:
        return torch_verifier(tiny_llama(), blocks=self._blocks, prefill_chunk_tokens=CHUNK)

    def _apply(self, call: VerifyCall) -> VerifyReply:
        for closing in call.closings:
            self.engine.close(closing.generation, keep_cache=closing.keep_cache)
        refused: dict[GenerationId, str] = {}
        for opening in call.openings:
            try:
                self.engine.open(opening)
            except OutriderError as error:
                refused[opening.generation] = str(error)
        outcomes = tuple(self.engine.verify(call.blocks, call.resolutions))
        return VerifyReply(outcomes, refused, 0.001, 0.0, 0.0, self.engine.usage())


class Service:
    """What a coordinator has, over local engines."""

    def __init__(
        self, *drafters: EngineTransport, blocks: int = 200, staged: bool = False, eos_token_ids: tuple[int, ...] = ()
    ) -> None:
        self.verifier = LocalVerifier(blocks)
        self.fleet = MemoryFleet(*drafters)
        self.generations: dict[GenerationId, Generation] = {}
        self._eos_token_ids = eos_token_ids
        # A batch that is expected to take no time has the next one staged behind it at once; a slow one never.
        cost_model = LinearCostModel(0.0, 0.0, 0.0, 0.0 if staged else 1e9)
        limits = BatchLimits(max_blocks=4, max_new_tokens=64, prefill_chunk_tokens=CHUNK)
        self.services = RoundServices(
            batcher=Batcher(self.verifier.verify, Fcfs(), limits, cost_model),
            await_verifier=self.verifier.awaited,
            configured_window=5,
            timings=deque(),
        )

    def chunks(self, request: GenerationRequest) -> AsyncGenerator[GenerationChunk, None]:
        """One response, as ``Coordinator`` makes it."""
        most = self.verifier.max_context_tokens
        generation = Generation(request, eos_token_ids=self._eos_token_ids, max_context_tokens=most)
        self.generations[request.generation] = generation
        link = DrafterLink(generation, self.fleet, SETTINGS, acceptance_rule(generation))
        text = IncrementalText(TOKENIZER, request.stop, request.output_ids)
        return RoundLoop(generation, link, text, self.services).run()

    async def response(self, request: GenerationRequest) -> list[GenerationChunk]:
        """All chunks of one response."""
        async with aclosing(self.chunks(request)) as chunks:
            return [chunk async for chunk in chunks]

    async def idle(self) -> None:
        """Nothing is held any more, by the verifier or a drafter."""
        await until(lambda: self.verifier.empty and self.fleet.empty)


def request_for(
    name: str = "g", prompt: tuple[int, ...] = PROMPT, params: SamplingParams = GREEDY, window: int | None = None
) -> GenerationRequest:
    return GenerationRequest(name, prompt, params, max_tokens=LENGTH, window=window)


def truth_of(request: GenerationRequest) -> list[int]:
    return list(_truth(request.prompt_ids, request.params, request.max_tokens))


@functools.cache
def _truth(prompt: tuple[int, ...], params: SamplingParams, length: int) -> tuple[int, ...]:
    return tuple(target_alone(tiny_llama(), prompt, params, length))


def tokens_of(chunks: list[GenerationChunk]) -> list[int]:
    return [token_id for chunk in chunks for token_id in chunk.token_ids]


@pytest.mark.parametrize("params", PARAMS.values(), ids=PARAMS.keys())
@pytest.mark.parametrize("window", [0, 1, 5])
@on_loop
async def test_the_stream_is_what_the_target_alone_says(params: SamplingParams, window: int) -> None:
    service, request = Service(drafter()), request_for(params=params, window=window)
    chunks = await service.response(request)
    assert tokens_of(chunks) == truth_of(request)
    assert "".join(chunk.text for chunk in chunks) == TOKENIZER.decode(tokens_of(chunks))
    assert [chunk.finish_reason for chunk in chunks] == [None] * (len(chunks) - 1) + [FinishReason.LENGTH]
    stats = chunks[-1].stats
    assert stats is not None
    assert stats.rounds == len(chunks) == len(service.services.timings)
    assert [chunk.stats for chunk in chunks[:-1]] == [None] * (len(chunks) - 1)
    if window:
        assert 0 < stats.accepted_tokens <= stats.drafted_tokens
    else:
        assert (stats.drafted_tokens, service.fleet.excluded) == (0, []), "no drafter is asked for"
    assert service.generations["g"].state is GenerationState.FINISHED
    await service.idle()
    assert service.verifier.engine.usage().cached_blocks > 0


@pytest.mark.parametrize("max_tokens", [1, 2, 5, 6, 7, 13])
@on_loop
async def test_max_tokens_is_exact(max_tokens: int) -> None:
    service, request = Service(EngineTransport(torch_drafter(tiny_llama()))), request_for(prompt=LONG_PROMPT)
    chunks = await service.response(replace(request, max_tokens=max_tokens))
    assert tokens_of(chunks) == truth_of(request)[:max_tokens]
    assert chunks[-1].finish_reason is FinishReason.LENGTH


@on_loop
async def test_a_response_may_fill_the_context_and_no_more() -> None:
    service, request = Service(drafter(), blocks=10), replace(request_for(), max_tokens=100)
    chunks = await service.response(request)
    assert len(tokens_of(chunks)) == 40 - len(PROMPT)
    assert tokens_of(chunks) == truth_of(request)[: 40 - len(PROMPT)]
    assert chunks[-1].finish_reason is FinishReason.LENGTH
    await service.idle()


@on_loop
async def test_it_ends_with_an_end_token_or_a_stop_string() -> None:
    request = request_for(params=SAMPLED)
    truth = truth_of(request)
    end = next(i for i in range(9, LENGTH) if truth[i] not in truth[:i])
    chunks = await Service(drafter(), eos_token_ids=(truth[end],)).response(request)
    assert tokens_of(chunks) == truth[: end + 1]
    assert chunks[-1].finish_reason is FinishReason.STOP
    service = Service(drafter())
    chunks = await service.response(replace(request, stop=(f"w{truth[end]}",)))
    assert tokens_of(chunks) == truth[: end + 1]
    assert "".join(chunk.text for chunk in chunks) == f"{TOKENIZER.decode(truth[:end])} "
    assert chunks[-1].finish_reason is FinishReason.STOP
    await service.idle()


@on_loop
async def test_a_resumed_response_goes_on_where_it_was() -> None:
    request = request_for(params=PENALISED)
    truth = truth_of(request)
    chunks = await Service(drafter()).response(replace(request, output_ids=tuple(truth[:9])))
    assert tokens_of(chunks) == truth[9:]


@pytest.mark.parametrize("trouble", ["dies_before", "dies_after", "answer_lost", "forgets_before"])
@pytest.mark.parametrize("calls", [(0,), (2,), (1, 2, 3, 6, 7)], ids=str)
@on_loop
async def test_a_verifier_that_restarts_does_not_change_the_stream(trouble: str, calls: tuple[int, ...]) -> None:
    """In the first call, in the middle of the prefix, later, and several times."""
    service, request = Service(drafter()), request_for(prompt=LONG_PROMPT, params=SAMPLED)
    setattr(service.verifier, trouble, calls)
    chunks = await service.response(request)
    assert tokens_of(chunks) == truth_of(request)
    openings = sum(len(call.openings) for call in service.verifier.calls)
    assert openings > 1 or (trouble == "forgets_before" and calls == (0,))
    await service.idle()


@pytest.mark.parametrize("trouble", ["dies_before", "answer_lost"])
@on_loop
async def test_a_verifier_that_is_lost_again_and_again_fails_the_response(trouble: str) -> None:
    service, request = Service(drafter()), request_for()
    setattr(service.verifier, trouble, range(4, 1000))
    with pytest.raises(GenerationFailedError, match="lost 6 times in a row"):
        await service.response(request)
    output = service.generations["g"].output_ids
    assert output == truth_of(request)[: len(output)]
    assert sum(bool(call.blocks) for call in service.verifier.calls[4:]) == 6
    assert service.generations["g"].state is GenerationState.FAILED
    await until(lambda: service.fleet.empty)
    if trouble == "answer_lost":
        service.verifier.answer_lost = ()
        await service.idle()


@on_loop
async def test_losses_with_progress_between_them_never_add_up() -> None:
    service, request = Service(), request_for(window=0)
    service.verifier.dies_before = lost = range(3, 1000, 4)
    assert tokens_of(await service.response(request)) == truth_of(request)
    assert sum(number in lost for number in range(len(service.verifier.calls))) > 6


@on_loop
async def test_a_prompt_that_does_not_fit_is_refused() -> None:
    service = Service(drafter(), blocks=10)
    with pytest.raises(ContextTooLongError, match=r"needs 61 positions .* limit of 40"):
        await service.response(request_for(prompt=LONG_PROMPT))
    assert service.generations["g"].state is GenerationState.FAILED
    await service.idle()


@pytest.mark.parametrize("change", NONSENSE.values(), ids=NONSENSE.keys())
@on_loop
async def test_a_drafter_that_talks_nonsense_does_not_change_the_stream(change: Callable[[Draft], Draft]) -> None:
    service, request = Service(drafter(), drafter()), request_for(params=SAMPLED)
    service.fleet.transports[FIRST].change = change
    assert tokens_of(await service.response(request)) == truth_of(request)
    assert service.fleet.reported == [FIRST]
    await service.idle()


@pytest.mark.parametrize("step", ["card", "open", "prefill", "draft"])
@on_loop
async def test_without_any_drafter_that_answers_the_stream_goes_on(step: str) -> None:
    service, request = Service(drafter()), request_for(params=SAMPLED)
    service.fleet.transports[FIRST].lost[step] = DrafterLostError("gone")
    assert tokens_of(await service.response(request)) == truth_of(request)
    assert service.fleet.reported[0] == FIRST
    await service.idle()


@pytest.mark.parametrize("state", ["leasing", "prefill", "draft", "first call", "later call", "restarting"])
@on_loop
async def test_a_client_that_leaves_while_a_round_is_made_leaves_nothing_behind(state: str) -> None:
    """The stream's task is cancelled, wherever it waits."""
    service, gate = Service(drafter()), Gate()
    if state == "leasing":
        service.fleet.gate = gate
    elif state == "restarting":
        service.verifier.dies_after, service.verifier.restarting = (3,), gate
    elif state in ("prefill", "draft"):
        service.fleet.transports[FIRST].gates[state] = gate
    else:
        service.verifier.gates[1 if state == "first call" else 8] = gate
    stream = asyncio.create_task(service.response(replace(request_for(prompt=LONG_PROMPT), max_tokens=150)))
    await gate.reached.wait()
    assert not stream.done()
    stream.cancel()
    with pytest.raises(asyncio.CancelledError):
        await stream
    assert service.generations["g"].state is GenerationState.CANCELLED
    gate.opened.set()
    await service.idle()
    assert service.verifier.engine.usage().cached_blocks == 0, "a cancelled generation is not worth memory"
    await until(lambda: asyncio.all_tasks() == {asyncio.current_task()})
    assert service.fleet.empty


@pytest.mark.parametrize("taken", [0, 1, 5])
@on_loop
async def test_a_stream_closed_between_two_chunks_leaves_nothing_behind(taken: int) -> None:
    service, request = Service(drafter()), request_for(params=SAMPLED)
    chunks = service.chunks(request)
    tokens = tokens_of([await anext(chunks) for _ in range(taken)])
    assert tokens == truth_of(request)[: len(tokens)]
    await chunks.aclose()
    assert service.generations["g"].state is (GenerationState.CANCELLED if taken else GenerationState.NEW)
    await service.idle()
    assert service.verifier.engine.usage().cached_blocks == 0
    await until(lambda: asyncio.all_tasks() == {asyncio.current_task()})


@pytest.mark.parametrize("staged", [False, True])
@pytest.mark.parametrize("blocks", [200, 40], ids=["roomy", "scarce"])
@on_loop
async def test_concurrent_responses_share_batches_and_stay_exact(*, staged: bool, blocks: int) -> None:
    rng = random.Random(blocks)
    requests = [
        replace(
            request_for(f"g{i}", LONG_PROMPT[: rng.randint(1, 60)], params, rng.choice([0, 1, 3, 5, None])),
            max_tokens=rng.randint(8, 20),
        )
        for i, params in enumerate([*PARAMS.values()] * 3)
    ]
    service = Service(drafter(), drafter(), blocks=blocks, staged=staged)
    service.verifier.dies_before = (9, 20)
    responses = await asyncio.gather(*(service.response(request) for request in requests))
    for request, chunks in zip(requests, responses, strict=True):
        assert tokens_of(chunks) == truth_of(request), request
    assert max(len(call.blocks) for call in service.verifier.calls) == 4
    await service.idle()


@on_loop
async def test_a_response_that_is_given_up_does_not_disturb_its_company() -> None:
    service = Service(drafter(), blocks=40)
    requests = [request_for(f"g{i}", LONG_PROMPT[: 20 + 9 * i], SAMPLED) for i in range(4)]
    service.verifier.gates[3] = gate = Gate()
    streams = [asyncio.create_task(service.response(request)) for request in requests]
    await gate.reached.wait()
    streams[0].cancel()
    gate.opened.set()
    results = await asyncio.gather(*streams, return_exceptions=True)
    assert isinstance(results[0], asyncio.CancelledError)
    for request, chunks in zip(requests[1:], results[1:], strict=True):
        assert not isinstance(chunks, BaseException)
        assert tokens_of(chunks) == truth_of(request)
    await service.idle()

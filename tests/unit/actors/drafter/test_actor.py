"""The drafter actor without Ray, over every engine there is and one that only this test registers."""

import asyncio
import threading
from collections.abc import Callable, Collection
from dataclasses import replace
from pathlib import Path

import pytest
from transformers import PreTrainedModel

import edge.host as host_module
from actors.drafter.actor import DrafterActor
from actors.waiting import within
from outrider.assembly.drafters import drafter_spec
from outrider.config.reading import parse_config
from outrider.contracts.drafting import Draft, DraftAnswer, DraftPlan, DraftRequest, DraftTerms
from outrider.contracts.errors import (
    ContextTooLongError,
    DrafterBrokenError,
    DraftingFailedError,
    UnsupportedBlockError,
)
from outrider.contracts.exchanged import WireFormat
from outrider.contracts.prefix import EMPTY_PREFIX_HASH, extend_prefix_hash
from outrider.contracts.requests import GenerationId, ProtocolName, SamplingParams
from outrider.contracts.verifying import OpenGeneration
from outrider.drafting.recalibration import OnVerdict
from outrider.engines.kinds import BuiltDrafter, DrafterKind, DrafterSpec
from outrider.engines.registry import DRAFTERS
from outrider.models.loading import load_target
from outrider.session.session import CoordinatorSession
from outrider.wire.replies import Answer, DrafterHoldings, plain_failure, read_reply
from tests.unit.engines.reference import target_alone
from tests.unit.engines.table_drafter import TableDrafter, TableModel, table_drafter
from tests.unit.models.tiny_models import save_model, tiny_model

PROMPT = (5, 17, 8, 30, 2)
PARAMS = SamplingParams(temperature=0.9, seed=3)
# By engine; those of onnx round what they load (tests/unit/engines/onnx).
MODELS: dict[str, Callable[[Path], PreTrainedModel | TableModel]] = {
    "torch": lambda folder: load_target(str(folder), dtype="float32", device="cpu").model,
    "table": lambda _: TableModel(VOCAB),
}
VOCAB = 41
TERMS = DraftTerms(WireFormat(VOCAB))
_WAIT_S = 60.0  # for what never happens


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_model(tmp_path_factory.mktemp("drafter"), tiny_model("llama"))


def actor_of(engine: str, folder: Path, stopping: str = "never") -> DrafterActor:
    stops = f"stopping: {{rule: {stopping}, predictor: null}}"
    text = f"drafters: [{{name: edge, engine: {engine}, model: {folder}, dtype: float32, {stops}}}]"
    return DrafterActor(drafter_spec(parse_config(text, "test").drafters[0], str(folder)))


def request_of(name: str, tokens: list[int], round_number: int, protocol: ProtocolName) -> DraftRequest:
    prefix_hash = extend_prefix_hash(EMPTY_PREFIX_HASH, tokens)
    return DraftRequest(
        name, round_number, len(PROMPT), tuple(tokens[len(PROMPT) :]), prefix_hash, DraftPlan(protocol, 3)
    )


@pytest.mark.parametrize("engine", MODELS)
def test_any_registered_engine_serves(engine: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(DRAFTERS, "table", DrafterKind(table_drafter))

    async def served() -> None:
        actor, model = actor_of(engine, folder), MODELS[engine](folder)
        card = await actor.card()
        assert (card.vocab_size, card.max_context_tokens) == (VOCAB, 128)

        async def two_rounds(name: str) -> None:
            session, tokens = CoordinatorSession(TERMS.wire, name), [*PROMPT]
            await actor.open(OpenGeneration(name, PROMPT, PARAMS), TERMS)
            for number in range(2):
                request = request_of(name, tokens, number, "token_ids")
                order = session.encode_order(request)
                answer = await actor.exchange(name, order)
                assert (await actor.exchange(name, order)).data == answer.data
                draft = session.decode_answer(answer.data, request)
                assert isinstance(draft, Draft)
                assert list(draft.token_ids) == target_alone(model, tokens, PARAMS, 3, VOCAB)
                tokens += [*draft.token_ids[:2], 7]

        await asyncio.gather(two_rounds("a"), two_rounds("b"))
        assert sorted((await actor.held()).generations) == ["a", "b"]
        await actor.close("a")
        assert (await actor.held()).generations == ("b",)
        assert (await actor.usage()).generations == 1
        with pytest.raises(ContextTooLongError):
            await actor.open(OpenGeneration("c", PROMPT * 26, PARAMS), TERMS)

    asyncio.run(served())


def test_what_an_engine_does_not_draft_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(DRAFTERS, "table", DrafterKind(table_drafter))

    async def refused() -> None:
        actor, session = actor_of("table", folder), CoordinatorSession(TERMS.wire, "a")
        await actor.open(OpenGeneration("a", PROMPT, PARAMS), TERMS)
        with pytest.raises(UnsupportedBlockError, match="chains of token ids alone"):
            await actor.exchange("a", session.encode_order(request_of("a", [*PROMPT], 0, "dsd")))

    asyncio.run(refused())


class Stuck(TableDrafter):
    """Begins a step, and does not end it before it may."""

    begun, may_end = threading.Event(), threading.Event()  # anew for each test

    def step(self, among: Collection[GenerationId] | None = None) -> list[DraftAnswer]:
        """On the engine's thread."""
        self.begun.set()
        assert self.may_end.wait(_WAIT_S)
        return super().step(among)


class Poisoned(TableDrafter):
    """Fails at a generation, or at all of them."""

    fails: Callable[[GenerationId], bool] = staticmethod(lambda name: name == "bad")

    def step(self, among: Collection[GenerationId] | None = None) -> list[DraftAnswer]:
        """Fail, or not."""
        if any(self.fails(name) for name in (self.started() if among is None else among)):
            raise RuntimeError("nan")
        return super().step(among)


def poisoned_drafter(spec: DrafterSpec, _on_verdict: OnVerdict | None) -> BuiltDrafter:
    return replace(table_drafter(spec), engine=Poisoned(TableModel(VOCAB)))


async def one_round(actor: DrafterActor, name: str) -> list[int]:
    """Open a generation and have a block drafted."""
    session, request = CoordinatorSession(TERMS.wire, name), request_of(name, [*PROMPT], 0, "token_ids")
    await actor.open(OpenGeneration(name, PROMPT, PARAMS), TERMS)
    draft = session.decode_answer((await actor.exchange(name, session.encode_order(request))).data, request)
    assert isinstance(draft, Draft)
    return list(draft.token_ids)


def test_an_error_of_one_generation_ends_its_drafting_alone(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(DRAFTERS, "table", DrafterKind(poisoned_drafter))

    async def drafted() -> None:
        actor, others = actor_of("table", folder), ["a", "b", "c"]
        told = await asyncio.gather(
            *(one_round(actor, name) for name in ("a", "bad", "b", "c")), return_exceptions=True
        )
        failed = told.pop(1)
        assert told == [target_alone(TableModel(VOCAB), PROMPT, PARAMS, 3, VOCAB)] * 3
        assert isinstance(failed, DraftingFailedError)
        assert str(failed) == "drafting for bad fails: RuntimeError: nan"
        assert sorted((await actor.held()).generations) == others, "nothing of it is kept"
        assert await actor.card()
        with pytest.raises(DraftingFailedError, match="nan"):
            read_reply(plain_failure(failed))
        await actor.prove()

    asyncio.run(within(_WAIT_S, drafted()))


@pytest.mark.parametrize("stopping", ["never", "stop_before", "send_and_stop"])
def test_a_drafter_proves_itself_whatever_stops_its_drafts(folder: Path, stopping: str) -> None:
    """The tiny model is never sure, so that a draft is stopped before its first token."""
    asyncio.run(within(_WAIT_S, actor_of("torch", folder, stopping).prove()))


def test_a_drafter_that_fails_at_one_after_the_other_is_broken(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(DRAFTERS, "table", DrafterKind(poisoned_drafter))
    monkeypatch.setattr(Poisoned, "fails", staticmethod(lambda _: True))

    async def broken() -> None:
        actor = actor_of("table", folder)
        for name in ("a", "b"):
            with pytest.raises(DraftingFailedError):
                await one_round(actor, name)
        await actor.card()
        with pytest.raises(DrafterBrokenError, match="one generation after another"):
            await actor.prove()
        with pytest.raises(DrafterBrokenError, match="one generation after another"):
            await actor.card()

    asyncio.run(within(_WAIT_S, broken()))


def test_one_whose_engine_stands_still_does_not_say_that_it_is_well(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(DRAFTERS, "table", DrafterKind(stuck_drafter))
    monkeypatch.setattr(Stuck, "begun", threading.Event())
    monkeypatch.setattr(Stuck, "may_end", threading.Event())

    async def asked() -> None:
        actor = actor_of("table", folder)
        await actor.card()
        proving = asyncio.create_task(actor.prove())
        try:
            assert await asyncio.to_thread(Stuck.begun.wait, _WAIT_S)
            assert await actor.card(), "a step may take a while"
            monkeypatch.setattr(host_module, "_HUNG_S", 0.0)
            for ask in (actor.card, actor.held):
                with pytest.raises(DrafterBrokenError, match="in one step"):
                    await ask()
            assert not proving.done()
        finally:
            Stuck.may_end.set()
        await proving
        assert await actor.card()

    asyncio.run(within(_WAIT_S, asked()))


def stuck_drafter(spec: DrafterSpec, _on_verdict: OnVerdict | None) -> BuiltDrafter:
    built = table_drafter(spec)
    return replace(built, engine=Stuck(TableModel(VOCAB)))


def test_a_probe_is_answered_while_the_engine_is_in_a_step(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By this a drafter shows that it lives, however long a block takes it."""
    monkeypatch.setitem(DRAFTERS, "table", DrafterKind(stuck_drafter))

    async def probed() -> None:
        actor, session = actor_of("table", folder), CoordinatorSession(TERMS.wire, "a")
        await actor.open(OpenGeneration("a", PROMPT, PARAMS), TERMS)
        order = session.encode_order(request_of("a", [*PROMPT], 0, "token_ids"))
        exchange = asyncio.create_task(actor.exchange("a", order))
        try:
            assert await asyncio.to_thread(Stuck.begun.wait, _WAIT_S)
            assert (await within(_WAIT_S, actor.probe(b"?", 3))).data == bytes(3)
            assert not exchange.done()
        finally:
            Stuck.may_end.set()
        assert (await exchange).data

    asyncio.run(probed())


def test_all_that_it_answers_may_be_asked_for_in_plain_bytes(folder: Path) -> None:
    async def replied() -> None:
        actor = actor_of("torch", folder)
        assert read_reply(await actor.reply("card")) == await actor.card()
        assert read_reply(await actor.reply("open", OpenGeneration("g", PROMPT, PARAMS), TERMS)) is None
        assert read_reply(await actor.reply("held")) == DrafterHoldings(("g",))
        session = CoordinatorSession(TERMS.wire, "g")
        order = session.encode_order(request_of("g", [*PROMPT], 0, "token_ids"))
        answer = read_reply(await actor.reply("exchange", "g", order))
        assert isinstance(answer, Answer)
        assert answer.data == (await actor.exchange("g", order)).data
        assert read_reply(await actor.reply("probe", b"x", 3)) == Answer(bytes(3), 0.0)
        assert read_reply(await actor.reply("close", "g")) is None
        with pytest.raises(ContextTooLongError):
            read_reply(await actor.reply("open", OpenGeneration("h", PROMPT * 100, PARAMS), TERMS))
        for method in ("emulate_link", "__init__", "reply"):
            with pytest.raises(DrafterBrokenError, match=f"AttributeError.*{method}"):
                read_reply(await actor.reply(method))

    asyncio.run(within(_WAIT_S, replied()))

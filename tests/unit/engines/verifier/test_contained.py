"""A block that makes passes go wrong, wherever they do: it fails alone, and nobody else loses anything."""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch

import outrider.engines.verifier.engine as engine_module
from outrider.contracts.errors import VerifierLostError
from outrider.contracts.requests import SamplingParams
from outrider.contracts.verifying import Block, Failed, Outcome, Unfinished, Verified
from outrider.engines.fault_bisection import FaultKind
from outrider.engines.verifier.contained import ContainedPasses
from outrider.engines.verifier.engine import PagedVerifier
from outrider.engines.verifier.generation import HeldGeneration
from outrider.engines.verifier.pass_plan import PassPlan
from outrider.engines.verifier.stepper import Stepper
from outrider.engines.verifier.work import Work
from outrider.events import JsonLines
from tests.unit.engines.conftest import MakeVerifier, tiny_llama
from tests.unit.engines.reference import Client, kept_row_bytes, tiny_alone

POISON = 13  # a seed
GREEDY = SamplingParams(temperature=0.0)
PENALISED = SamplingParams(temperature=1.0, seed=6, repetition_penalty=1.3, frequency_penalty=0.4)
PROMPTS = {"a": [5, 17, 42, 8, 61, 30, 2], "b": [9, 9, 3], "poisoned": [1, 2, 3, 4, 5], "c": [70, 71, 72] * 15}
LENGTH = 8
STAGES = ("before", "planning", "forward", "decision", "commit", "after")


class Poison:
    """Makes passes go wrong that have the poisoned generation in them, at some stage."""

    def __init__(self, patch: pytest.MonkeyPatch, engine: PagedVerifier, stage: str) -> None:
        self.times, self.on = 0, True
        stages: dict[str, tuple[Any, str, Callable[..., bool]]] = {
            "before": (engine, "verify", lambda blocks, *_: _has(blocks)),
            "planning": (PassPlan, "add", lambda _plan, _index, checked, *_: _has([checked.block])),
            "forward": (engine._runner, "forward", _works),  # noqa: SLF001
            "decision": (engine_module, "decide", lambda computed, _judges: _works(computed.works)),
            "commit": (HeldGeneration, "commit", lambda held, _: held.params.seed == POISON),
            "after": (engine, "_run", _works),
        }
        owner, name, poisoned = stages[stage]
        self._wraps(patch, owner, name, poisoned, before=stage not in ("commit", "after"))

    def _wraps(
        self, patch: pytest.MonkeyPatch, owner: Any, name: str, poisoned: Callable[..., bool], *, before: bool
    ) -> None:
        whole = getattr(owner, name)

        def wrapped(*args: Any, **kwargs: Any) -> Any:
            bad = self.on and poisoned(*args)
            if before and bad:
                self._goes_wrong()
            told = whole(*args, **kwargs)
            if bad:
                self._goes_wrong()
            return told

        patch.setattr(owner, name, wrapped)

    def _goes_wrong(self) -> None:
        self.times += 1
        raise RuntimeError("poisoned")


def _has(blocks: Sequence[Block]) -> bool:
    return any(block.generation == "poisoned" for block in blocks)


def _works(works: Sequence[Work]) -> bool:
    return _has([work.block for work in works])


def params_of(name: str) -> SamplingParams:
    if name == "poisoned":
        return SamplingParams(temperature=0.9, seed=POISON, frequency_penalty=0.3)
    return PENALISED if name == "b" else GREEDY


def clients() -> list[Client]:
    return [Client(name, prompt, params_of(name)) for name, prompt in PROMPTS.items()]


def state(engine: PagedVerifier) -> dict[str, object]:
    """All that is held of generations."""
    found: dict[str, object] = {}
    for name, held in engine._generations.items():  # noqa: SLF001 (nobody tells)
        counts = None if held.counts is None else (held.counts.seen.tolist(), held.counts.output.tolist())
        memory = held.kv.computed_tokens, list(held.kv.blocks), held.kv.busy
        last = held.last_outcome, held.begun, held.open_round, held.deferred
        found[name] = tuple(held.token_ids), held.prefix_hash, counts, memory, last, held.forced_scores.entries
    usage = engine.usage()
    found["usage"] = usage.used_blocks, usage.generations, kept_row_bytes(engine)
    return found


def stepped(passes: ContainedPasses, present: Sequence[Client], *, rounds: int) -> dict[str, Outcome]:
    """So many rounds of each of these; of each what it ended with, if that is no token."""
    ended: dict[str, Outcome] = {}
    left = {client.name: client for client in present}
    while left:
        blocks = [client.block() for client in left.values()]
        for block, outcome in zip(blocks, passes.verify(blocks), strict=True):
            client = left[block.generation]
            if isinstance(outcome, Unfinished):
                continue
            if isinstance(outcome, Verified):
                client.take(block, outcome)
                if len(client.output) == rounds:
                    del left[client.name]
            else:
                ended[client.name] = outcome
                del left[client.name]
    return ended


@pytest.mark.parametrize("stage", STAGES)
def test_one_block_fails_alone_and_the_others_are_as_if_it_had_never_been(
    stage: str, make_verifier: MakeVerifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, present = make_verifier(tiny_llama()), clients()
    passes = ContainedPasses(engine)
    for client in present:
        engine.open(client.opening())
    poison = Poison(monkeypatch, engine, stage)
    poison.on = False
    stepped(passes, present, rounds=2)
    poison.on = True
    ended = stepped(passes, present, rounds=LENGTH)
    assert poison.times > 0
    if stage == "after":  # its blocks are decided each time, and told so when they are asked for again
        assert not ended
    else:
        failed = ended.pop("poisoned")
        assert isinstance(failed, Failed)
        assert failed.reason == "RuntimeError: poisoned"
        assert poison.times == 4, "with all, with one more, and alone, twice"
    assert not ended
    assert set(passes.taken_faults()) == {FaultKind.PASS}
    for client in present:
        if client.name != "poisoned" or stage == "after":
            assert client.output == tiny_alone(client.prompt, client.params, LENGTH), client.name


def test_lines_of_the_log_name_the_traces_of_who_is_sampled(
    make_verifier: MakeVerifier, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    engine, present = make_verifier(tiny_llama()), clients()
    Poison(monkeypatch, engine, "before")
    stepper = Stepper(engine)
    for client in present:
        stepper.open(replace(client.opening(), trace_id="the-trace" if client.name == "poisoned" else None))
    stepper.give([client.block() for client in present])
    while not stepper.idle:
        stepper.step()
    lines = [json.loads(JsonLines().format(record)) for record in caplog.records]
    named = {(line["event"], *line.get("trace_ids", ()), line.get("trace_id")) for line in lines}
    assert named == {("pass_failed", "the-trace", None), ("block_failed", "the-trace")}
    stepper.close("poisoned", keep_cache=False)
    assert not stepper._trace_ids  # noqa: SLF001 (nobody tells)


@pytest.mark.parametrize("stage", STAGES[:-1])
def test_a_pass_that_fails_leaves_nothing_behind(
    stage: str, make_verifier: MakeVerifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the block itself; and it may be asked for again."""
    engine, client = make_verifier(tiny_llama()), Client("poisoned", PROMPTS["poisoned"], params_of("poisoned"))
    engine.open(client.opening())
    poison = Poison(monkeypatch, engine, stage)
    poison.on = False
    stepped(ContainedPasses(engine), [client], rounds=2)
    before, poison.on = state(engine), True
    for _ in range(3):
        with pytest.raises(RuntimeError, match="poisoned"):
            engine.verify([client.block(draft=(1, 2, 3))])
        assert state(engine) == before
    assert poison.times == 3
    poison.on = False
    block = client.block(draft=(1, 2, 3))
    (outcome,) = engine.verify([block])
    assert isinstance(outcome, Verified)
    client.take(block, outcome)
    stepped(ContainedPasses(engine), [client], rounds=LENGTH)
    assert client.output == tiny_alone(client.prompt, client.params, LENGTH)


def test_a_long_prompt_goes_on_with_what_was_computed_of_it(
    make_verifier: MakeVerifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = make_verifier(tiny_llama(), prefill_chunk_tokens=16)
    client = Client("poisoned", [3, 1, 4, 1, 5, 9, 2, 6] * 8, params_of("poisoned"))
    engine.open(client.opening())
    poison = Poison(monkeypatch, engine, "forward")
    poison.on = False
    (first,) = engine.verify([client.block()])
    assert isinstance(first, Unfinished)
    computed, poison.on = engine._generations["poisoned"].kv.computed_tokens, True  # noqa: SLF001 (nobody tells)
    assert computed > 0
    with pytest.raises(RuntimeError, match="poisoned"):
        engine.verify([client.block()])
    assert engine._generations["poisoned"].kv.computed_tokens == computed  # noqa: SLF001 (nobody tells)
    poison.on = False
    stepped(ContainedPasses(engine), [client], rounds=LENGTH)
    assert client.output == tiny_alone(client.prompt, client.params, LENGTH)


def test_where_memory_is_short_passes_are_smaller_and_everybody_is_served(
    make_verifier: MakeVerifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, present = make_verifier(tiny_llama()), clients()
    passes, sizes = ContainedPasses(engine), list[int]()
    for client in present:
        engine.open(client.opening())
    whole = engine._runner.forward  # noqa: SLF001 (nobody tells)

    def short(works: Sequence[Any]) -> Any:
        sizes.append(len(works))
        if len(works) > 2:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
        return whole(works)

    monkeypatch.setattr(engine._runner, "forward", short)  # noqa: SLF001 (nobody tells)
    assert not stepped(passes, present, rounds=LENGTH)
    for client in present:
        assert client.output == tiny_alone(client.prompt, client.params, LENGTH), client.name
    assert sizes[0] == 4, "that is what was too many"
    assert max(sizes[1:]) == 2
    assert passes.taken_faults() == (FaultKind.MEMORY,)


@pytest.mark.parametrize("error", [torch.AcceleratorError("gone"), RuntimeError("CUDA error: misaligned address")])
def test_a_device_that_is_gone_ends_the_engine_and_names_who_was_there(
    error: Exception, make_verifier: MakeVerifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, present = make_verifier(tiny_llama()), clients()[:2]
    passes = ContainedPasses(engine)
    for client in present:
        engine.open(client.opening())
    monkeypatch.setattr(engine._runner, "forward", lambda _: (_ for _ in ()).throw(error))  # noqa: SLF001
    with pytest.raises(VerifierLostError, match="the engine is unusable"):
        passes.verify([client.block() for client in present])
    assert passes.under_way == ("a", "b")
    assert passes.taken_faults() == (FaultKind.DEVICE,)


def test_an_engine_that_fails_at_everybody_is_lost(
    make_verifier: MakeVerifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, present = make_verifier(tiny_llama()), clients()
    passes = ContainedPasses(engine)
    for client in present:
        engine.open(client.opening())
    monkeypatch.setattr(engine._runner, "forward", lambda _: (_ for _ in ()).throw(RuntimeError("no")))  # noqa: SLF001
    with pytest.raises(VerifierLostError, match="4 generations in a row"):
        passes.verify([client.block() for client in present])

"""Responses whose grammars are compiled while others go on."""

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import replace
from typing import Any

import pytest

from outrider.contracts.requests import Grammar, SamplingParams
from outrider.contracts.verifying import AutonomousRun, BlockRefused, Failed, OpenGeneration, Resolution, Verified
from outrider.engines.torch.verifier import TorchVerifier
from outrider.engines.verifier.stepper import Stepper
from outrider.grammar.compiling import Grammars
from outrider.grammar.state import GrammarState, Mask, MaskCost
from tests.unit.engines.conftest import tiny_llama, torch_verifier
from tests.unit.engines.reference import Client, tiny_alone
from tests.unit.engines.toy_grammar import END, TOY, VOCAB, toy_grammars

WAIT_S = 60.0
PROMPT = [5, 17, 42, 8, 61, 30, 2]
FREE = SamplingParams(temperature=0.0)
BOUND = SamplingParams(temperature=0.0, grammar=TOY)


class SlowGrammars(Grammars):
    """Compiles when it is let."""

    def __init__(self) -> None:
        self._fast, self.may_compile = toy_grammars(), threading.Event()
        self.may_make_masks, self.asked = threading.Event(), list[str]()
        super().__init__(lambda: None, (END,), VOCAB)  # type: ignore[arg-type, return-value]

    def prepare(self, state: GrammarState, paths: Sequence[Sequence[int]], account: str = "") -> Future[bool]:
        self.asked.append(account)
        return self._masks.submit(lambda: self.may_make_masks.wait(WAIT_S) and state.prepare(paths, 0.02), account)

    def _begun(self, *asked: object) -> object:  # type: ignore[override]
        assert self.may_compile.wait(WAIT_S)
        return self._fast._begun(*asked)  # type: ignore[arg-type]  # noqa: SLF001


class Opened:
    """A stepper over an engine with such grammars."""

    def __init__(self) -> None:
        self.grammars, self.engine, self.woken = SlowGrammars(), torch_verifier(tiny_llama()), threading.Event()
        self.engine._grammars = self.grammars  # noqa: SLF001
        self.stepper = Stepper(self.engine, None, self.woken.set)


def autonomous_run(client: Client, until_round: int) -> OpenGeneration:
    return replace(client.block(), autonomous_run=AutonomousRun(until_round))  # type: ignore[return-value]


def test_others_go_on_while_a_grammar_is_compiled() -> None:
    opened, free, bound = Opened(), Client("free", PROMPT, FREE), Client("bound", PROMPT, BOUND)
    for client in (free, bound):
        opened.stepper.open(client.opening())
    opened.stepper.give([autonomous_run(free, 5), autonomous_run(bound, 5)])  # type: ignore[list-item]
    told = [outcome for _ in range(3) for outcome in opened.stepper.step()]
    assert [outcome.generation for outcome in told] == ["free"] * 3
    assert not opened.woken.is_set()
    opened.grammars.may_compile.set()
    assert opened.woken.wait(WAIT_S)
    while not opened.stepper.idle:
        told += opened.stepper.step()
    for client, params in ((free, FREE), (bound, BOUND)):
        output = [one.next_token for one in told if isinstance(one, Verified) and one.generation == client.name]
        assert output == tiny_alone(PROMPT, params, 6)


def test_a_stepper_with_nothing_but_grammars_to_wait_for_is_idle_until_one_is_there() -> None:
    opened, bound = Opened(), Client("bound", PROMPT, BOUND)
    opened.stepper.open(bound.opening())
    opened.stepper.give([bound.block()])
    assert opened.stepper.idle
    assert opened.stepper.step() == []
    assert opened.stepper.last_pass() == ()
    opened.grammars.may_compile.set()
    assert opened.woken.wait(WAIT_S)
    assert not opened.stepper.idle
    assert isinstance(opened.stepper.step()[0], Verified)


def with_slow_masks(mask_s: float = 1.0) -> tuple[Opened, Client, Client]:
    """Two responses of six tokens each, and masks of one of them that take long from its second token on."""
    opened, free, bound = Opened(), Client("free", PROMPT, FREE), Client("bound", PROMPT, BOUND)
    opened.grammars.may_compile.set()
    for client in (free, bound):
        opened.stepper.open(replace(client.opening(), account=client.name))
    grammar = opened.engine._generations["bound"].grammar  # noqa: SLF001
    assert grammar is not None
    grammar.cost = MaskCost()
    grammar.cost.took(mask_s)
    opened.stepper.give([autonomous_run(free, 5), autonomous_run(bound, 5)])  # type: ignore[list-item]
    return opened, free, bound


def steps_until(opened: Opened, outcomes: int, generation: str = "") -> list[Any]:
    """Step until so many outcomes are there, of one generation if it is named."""
    told, give_up_at_s = list[Any](), time.monotonic() + WAIT_S
    while len([one for one in told if generation in ("", one.generation)]) < outcomes:
        assert time.monotonic() < give_up_at_s
        told += opened.stepper.step()
    return told


def test_others_go_on_while_masks_that_take_long_are_made() -> None:
    opened, free, bound = with_slow_masks()
    told = [outcome for _ in range(4) for outcome in opened.stepper.step()]
    assert [outcome.generation for outcome in told].count("bound") == 1, "its first mask was made with its grammar"
    assert opened.grammars.asked == ["bound"]
    opened.grammars.may_make_masks.set()
    assert opened.woken.wait(WAIT_S)
    told += steps_until(opened, 12 - len(told))
    for client, params in ((free, FREE), (bound, BOUND)):
        output = [one.next_token for one in told if isinstance(one, Verified) and one.generation == client.name]
        assert output == tiny_alone(PROMPT, params, 6)


@pytest.mark.parametrize("slow", [False, True])
def test_a_block_waits_for_what_its_pass_resolves_where_masks_take_long(*, slow: bool) -> None:
    engine, client = torch_verifier(tiny_llama()), Client("bound", PROMPT, BOUND)
    engine._grammars = toy_grammars()  # noqa: SLF001
    engine.open(client.opening())
    grammar = engine._generations["bound"].grammar  # noqa: SLF001
    assert grammar is not None
    grammar.cost = MaskCost()
    grammar.cost.took(1.0 if slow else 0.0)
    waiting = engine.prepare([client.block()], [Resolution("bound", 0, None)])
    assert list(waiting) == ["bound"] * slow
    assert all(wait.done() for wait in waiting.values())


@pytest.mark.parametrize("mask_s", [0.0, 1.0], ids=["at once", "beside"])
def test_masks_that_cannot_be_made_end_their_response_alone(monkeypatch: pytest.MonkeyPatch, mask_s: float) -> None:
    opened, _, _ = with_slow_masks(mask_s)

    def fails(*_: object) -> Mask:
        raise RuntimeError("no mask")

    told = opened.stepper.step()
    monkeypatch.setattr(GrammarState, "_mask", fails)
    opened.grammars.may_make_masks.set()
    told += steps_until(opened, 7 - len(told))
    lost = [outcome for outcome in told if isinstance(outcome, Failed)]
    assert [outcome.generation for outcome in lost] == ["bound"]
    assert "no mask" in lost[0].reason


@pytest.mark.parametrize("mask_s", [0.0, 1.0], ids=["at once", "beside"])
def test_a_mask_that_fails_once_changes_no_token(monkeypatch: pytest.MonkeyPatch, mask_s: float) -> None:
    opened, _, bound = with_slow_masks(mask_s)
    draft = tiny_alone(PROMPT, BOUND, 3)
    opened.stepper.give([replace(bound.block(draft), autonomous_run=AutonomousRun(5))])
    mask, failed = GrammarState._mask, list[object]()  # noqa: SLF001

    def fails_once(state: GrammarState, path: tuple[int, ...]) -> Mask:
        if len(path) == 2 and not failed:
            failed.append(path)
            raise RuntimeError("once")
        return mask(state, path)

    monkeypatch.setattr(GrammarState, "_mask", fails_once)
    opened.grammars.may_make_masks.set()
    told = steps_until(opened, 3, "bound")
    assert failed
    rounds = [one for one in told if one.generation == "bound"]
    said = [*(draft[at] for at in rounds[0].accepted_path), *(one.next_token for one in rounds)]
    assert said == tiny_alone(PROMPT, BOUND, len(said))


@pytest.mark.parametrize("ends", [lambda s: s.close("behind", keep_cache=False), lambda s: s.close_all()])
def test_grammars_of_responses_that_are_over_are_not_compiled(ends: Callable[[Stepper], None]) -> None:
    opened = Opened()
    for name in ("first", "behind"):
        opened.stepper.open(Client(name, PROMPT, BOUND).opening())
    opening = opened.engine._generations["behind"].opening  # noqa: SLF001
    assert opening is not None
    ends(opened.stepper)
    assert opening.cancelled()
    opened.grammars.may_compile.set()


def without_tokens() -> TorchVerifier:
    def fails() -> None:
        raise ValueError("no tokens")

    engine = torch_verifier(tiny_llama())
    engine._grammars = Grammars(fails, (END,), VOCAB)  # type: ignore[arg-type]  # noqa: SLF001
    return engine


def test_grammars_that_cannot_be_compiled_for_a_fault_of_ours_are_no_witnesses_against_the_engine() -> None:
    stepper, clients = Stepper(without_tokens()), [Client(str(number), PROMPT, BOUND) for number in range(5)]
    for client in clients:
        opening = stepper._engine.open(client.opening())  # noqa: SLF001
        assert opening is not None
        assert opening.exception(WAIT_S) is not None
    stepper.give([client.block() for client in clients])
    outcomes = stepper.step()
    assert [type(outcome) for outcome in outcomes] == [Failed] * 5
    assert "could not be read" in outcomes[0].reason  # type: ignore[union-attr]
    assert stepper.taken_faults() == ()


def test_a_grammar_whose_first_mask_fails_is_refused_before_anything_is_computed() -> None:
    engine = torch_verifier(tiny_llama())
    lost = Client("lost", PROMPT, SamplingParams(temperature=0.0, grammar=Grammar("start: nothing")))
    engine.open(lost.opening())
    (refused,) = engine.verify([lost.block()])
    assert isinstance(refused, BlockRefused)
    assert refused.by_grammar
    assert engine.last_pass() == ()

"""An engine of two: the first drafts chains, and generations move to the other with what only that can draft."""

import threading
from collections.abc import Callable

import pytest

from outrider.contracts.drafting import Draft, DrafterEngine, NeedsPrefix
from outrider.contracts.errors import UnsupportedModelError
from outrider.engines.drafter.chains_first import ChainsFirstDrafter
from outrider.engines.drafter.contained import ContainedDrafts
from outrider.engines.onnx.engine import OnnxDrafter, refused_of
from tests.unit.engines.conftest import onnx_drafter, tiny_llama, torch_drafter
from tests.unit.engines.drafter_device import GREEDY, SAMPLED, TERMS, Device, answer_to, answers_of, draft_of


def both(build: Callable[[], DrafterEngine]) -> tuple[ChainsFirstDrafter, OnnxDrafter]:
    chains = onnx_drafter(tiny_llama())
    return ChainsFirstDrafter(chains, lambda request: refused_of(request) is None, build), chains


class Built:
    """Builds the torch drafter once it is let, and keeps it."""

    def __init__(self, *, may: bool = True) -> None:
        self.may, self.engine = threading.Event(), torch_drafter(tiny_llama())
        self.times = 0
        if may:
            self.may.set()

    def __call__(self) -> DrafterEngine:
        self.times += 1
        assert self.may.wait(60)
        return self.engine


def test_nothing_is_built_for_chains() -> None:
    built = Built()
    (engine, chains), device = both(built), Device("a", SAMPLED)
    engine.open(device.opening(), TERMS)
    for _ in range(3):
        draft = draft_of(engine, device.request(3))
        assert draft.token_ids == device.truth(3)
        device.tokens += draft.token_ids[:2]
    assert built.times == 0
    assert engine.usage().used_blocks == chains.usage().used_blocks > 0


@pytest.mark.parametrize("params", [GREEDY, SAMPLED])
def test_a_generation_moves_with_its_tokens_and_stays(params: object) -> None:
    built = Built()
    (engine, chains), device = both(built), Device("a", params)  # type: ignore[arg-type]  # either
    engine.open(device.opening(), TERMS)
    device.tokens += [*draft_of(engine, device.request(3)).token_ids[:2], 9]
    assert draft_of(engine, device.request(expansion=(2, 1))).parents == (-1, -1, 0, 1), "asked for nothing again"
    assert (chains.usage().generations, built.engine.usage().generations) == (0, 1)
    device.tokens.append(4)
    assert draft_of(engine, device.request(3)).token_ids == device.truth(3)
    assert (built.times, chains.usage().generations) == (1, 0)
    other = Device("b", params)  # type: ignore[arg-type]  # as above
    engine.open(other.opening(), TERMS)
    assert draft_of(engine, other.request(3)).token_ids == other.truth(3)
    assert (chains.usage().generations, built.engine.usage().generations) == (1, 1)
    for name in "ab":
        engine.close(name)
    assert (engine.usage().used_blocks, engine.usage().generations, engine.busy) == (0, 0, False)


def test_chains_go_on_while_the_other_engine_is_built() -> None:
    built = Built(may=False)
    (engine, _), tree, chain = both(built), Device("tree", GREEDY), Device("chain", GREEDY)
    for device in (tree, chain):
        engine.open(device.opening(), TERMS)
    engine.submit(tree.request(expansion=(2, 1)))
    for _ in range(3):
        engine.submit(chain.request(3))
        answers = [answer for _ in range(10) for answer in engine.step()]
        assert [(answer.generation, getattr(answer, "token_ids", None)) for answer in answers] == [
            ("chain", chain.truth(3))
        ]
    assert engine.busy
    assert engine.started() == ("tree",)
    engine.submit(tree.request(3))  # in its place, of what waits for the move, too
    built.may.set()
    answer = answers_of(engine)["tree"]
    assert isinstance(answer, Draft)
    assert (answer.token_ids, answer.parents) == (tree.truth(3), None)
    assert built.engine.usage().generations == 1


def test_an_order_that_waits_ends_with_its_generation_or_a_new_one() -> None:
    built = Built(may=False)
    (engine, _), device = both(built), Device("a", GREEDY)
    engine.open(device.opening(), TERMS)
    engine.submit(device.request(expansion=(2, 1)))
    engine.open(device.opening(), TERMS)
    assert not engine.busy
    engine.submit(device.request(expansion=(2, 1)))
    engine.close("a")
    assert not engine.busy
    assert isinstance(answer_to(engine, device.request(expansion=(2, 1))), NeedsPrefix)


def test_where_nothing_can_be_built_only_what_needs_it_fails() -> None:
    def fail() -> DrafterEngine:
        raise UnsupportedModelError("no such weights")

    (engine, _), tree, chain = both(fail), Device("tree", GREEDY), Device("chain", GREEDY)
    for device in (tree, chain):
        engine.open(device.opening(), TERMS)
    engine.submit(tree.request(expansion=(2, 1)))
    engine.submit(chain.request(16))
    contained, failed, drafted = ContainedDrafts(engine), dict[str, str](), list[object]()
    while engine.busy:
        step = contained.step()
        failed |= step.failed
        drafted += step.answers
    assert {name: "no such weights" in reason for name, reason in failed.items()} == {"tree": True}
    assert [getattr(draft, "token_ids", None) for draft in drafted] == [chain.truth(16)]

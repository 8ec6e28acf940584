"""A draft that makes steps go wrong ends by itself; the others are what they would be without it."""

from collections.abc import Sequence
from typing import Any

import pytest

from outrider.contracts.drafting import Draft, DraftPlan, DraftRequest, DraftTerms
from outrider.contracts.exchanged import WireFormat
from outrider.contracts.prefix import EMPTY_PREFIX_HASH, extend_prefix_hash
from outrider.contracts.requests import SamplingParams
from outrider.contracts.verifying import OpenGeneration
from outrider.engines.drafter.contained import ContainedDrafts
from outrider.engines.drafter.engine import TorchDrafter
from tests.unit.engines.conftest import VOCAB, tiny_llama, torch_drafter

TERMS = DraftTerms(WireFormat(VOCAB, top_k=16))
PARAMS = {
    "a": SamplingParams(temperature=0.0),
    "bad": SamplingParams(temperature=0.9, seed=4),
    "b": SamplingParams(temperature=0.8, seed=5, frequency_penalty=0.5),
    "c": SamplingParams(temperature=1.0, seed=6),
}
PLANS = {
    "a": DraftPlan("token_ids", 5),
    "bad": DraftPlan("dsd", 4),
    "b": DraftPlan("token_ids", 3, (2, 2, 1)),
    "c": DraftPlan("dssd", 6),
}
PROMPT = (5, 17, 42, 8, 61, 30, 2)


def asked(engine: TorchDrafter, names: Sequence[str]) -> None:
    """A block of each."""
    for name in names:
        engine.open(OpenGeneration(name, PROMPT, PARAMS[name]), TERMS)
        prefix_hash = extend_prefix_hash(EMPTY_PREFIX_HASH, PROMPT)
        engine.submit(DraftRequest(name, 0, len(PROMPT), (), prefix_hash, PLANS[name], want_hidden=name == "c"))


def drafts(engine: TorchDrafter, failed: dict[str, str] | None = None) -> dict[str, tuple[tuple[int, ...], int]]:
    """Tokens of all blocks, and of how many there is a hidden state."""
    found: dict[str, tuple[tuple[int, ...], int]] = {}
    contained = ContainedDrafts(engine)
    while engine.busy:
        made = contained.step()
        for answer in made.answers:
            assert isinstance(answer, Draft)
            found[answer.generation] = answer.token_ids, 0 if answer.hidden is None else len(answer.hidden)
        if failed is not None:
            failed |= made.failed
    return found


@pytest.mark.parametrize("stage", ["forward", "drawing", "growing", "once"])
@pytest.mark.parametrize("step", [0, 2])
def test_the_others_draft_what_they_would_without_it(stage: str, step: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the first step, in a later one, and where it does not happen again."""
    alone: dict[str, tuple[tuple[int, ...], int]] = {}
    for name in PARAMS:
        engine = torch_drafter(tiny_llama())
        asked(engine, [name])
        alone |= drafts(engine)
    engine, failed, steps = torch_drafter(tiny_llama()), dict[str, str](), 0
    asked(engine, list(PARAMS))
    held, went_wrong = engine._generations["bad"], 0  # noqa: SLF001 (a step names nobody)
    whole = engine._advance if stage == "forward" else engine._draw  # noqa: SLF001 (likewise)
    grow = type(held).grow

    def fail(held_is_there: bool) -> None:
        nonlocal steps, went_wrong
        steps += 1
        if steps > step and held_is_there and not (stage == "once" and went_wrong):
            went_wrong += 1
            raise RuntimeError("nan")

    def wrong(works: Sequence[Any], *rest: Any) -> None:
        fail(any(work.generation is held for work in works))
        whole(works, *rest)

    def grow_wrong(generation: Any, *layer: Any) -> None:
        """By then the hidden states of all are kept, and some have grown."""
        if generation is held:
            fail(held_is_there=True)
        grow(generation, *layer)

    if stage == "growing":
        monkeypatch.setattr(type(held), "grow", grow_wrong)
    else:
        monkeypatch.setattr(engine, "_advance" if stage == "forward" else "_draw", wrong)
    found = drafts(engine, failed)
    assert went_wrong == (1 if stage == "once" else 4)
    if stage == "once":
        assert (found, failed) == (alone, {})
    else:
        del alone["bad"]
        assert (found, failed) == (alone, {"bad": "RuntimeError: nan"})
    assert engine.usage().generations == len(alone)
    for name in alone:
        engine.close(name)
    assert engine.usage().used_blocks == 0

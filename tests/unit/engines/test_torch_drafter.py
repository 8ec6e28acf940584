"""The drafter engine: the same tokens whatever the window, company, memory or order of feedback."""

import random

import numpy as np
import pytest
import torch

from outrider.engines.base import AcceptanceRule, Draft, DraftAnswer, DraftRequest, NeedsPrefix, OpenGeneration
from outrider.engines.torch_drafter import TorchDrafter
from outrider.errors import ContextTooLongError, UnsupportedBlockError
from outrider.prefix import EMPTY_PREFIX_HASH, extend_prefix_hash
from outrider.types import SamplingParams
from tests.unit.engines.conftest import VOCAB, tiny_llama, torch_drafter
from tests.unit.engines.reference import target_alone

GREEDY = SamplingParams(temperature=0.0)
SAMPLED = SamplingParams(temperature=0.9, seed=3)
PENALISED = SamplingParams(temperature=1.0, seed=4, repetition_penalty=1.2, frequency_penalty=0.5)
PROMPT = (5, 17, 42, 8, 61, 30, 2)
WITHHELD = SamplingParams(
    temperature=0.9, seed=3, withheld_ids=tuple(range(0, VOCAB, 2)), withheld_until=len(PROMPT) + 9
)


class Device:
    """One generation on a drafter, and what the coordinator knows of it."""

    def __init__(self, name: str, params: SamplingParams, prompt: tuple[int, ...] = PROMPT) -> None:
        self.name, self.params, self.prompt = name, params, prompt
        self.tokens = list(prompt)
        self.known = len(prompt)
        self.round = 0

    def opening(self) -> OpenGeneration:
        return OpenGeneration(self.name, self.prompt, self.params)

    def request(self, window: int, *, want_hidden: bool = False) -> DraftRequest:
        self.round += 1
        request = DraftRequest(
            generation=self.name,
            round=self.round,
            feedback_position=self.known,
            feedback=tuple(self.tokens[self.known :]),
            prefix_hash=extend_prefix_hash(EMPTY_PREFIX_HASH, self.tokens),
            window=window,
            rule=AcceptanceRule.GREEDY if self.params.greedy else AcceptanceRule.SHARED_NOISE,
            want_hidden=want_hidden,
        )
        self.known = len(self.tokens)
        return request

    def truth(self, length: int) -> tuple[int, ...]:
        """What this model says after the committed tokens, alone."""
        return tuple(target_alone(tiny_llama(), self.tokens, self.params, length))


def answers_of(engine: TorchDrafter, most_steps: int = 200) -> dict[str, DraftAnswer]:
    answers: dict[str, DraftAnswer] = {}
    for _ in range(most_steps):
        if not engine.busy:
            return answers
        answers |= {answer.generation: answer for answer in engine.step()}
    raise AssertionError("still busy")


def draft_of(engine: TorchDrafter, request: DraftRequest) -> Draft:
    engine.submit(request)
    answer = answers_of(engine)[request.generation]
    assert isinstance(answer, Draft)
    return answer


@pytest.mark.parametrize("params", [GREEDY, SAMPLED, WITHHELD], ids=["greedy", "sampled", "withheld"])
def test_drafts_are_the_models_own_choice_with_the_shared_noise(params: SamplingParams) -> None:
    engine, device, rng = torch_drafter(tiny_llama()), Device("a", params), random.Random(1)
    engine.open(device.opening())
    for window in (3, 1, 16, 0, 5):
        draft = draft_of(engine, device.request(window))
        assert draft.token_ids == device.truth(window)
        assert (draft.position, len(draft.features)) == (len(device.tokens), window)
        accepted = rng.randint(0, window)
        device.tokens += [*draft.token_ids[:accepted], rng.randrange(VOCAB)]


def test_penalties_count_drafted_tokens_too() -> None:
    engine, device = torch_drafter(tiny_llama()), Device("a", PENALISED)
    engine.open(device.opening())
    truth = target_alone(tiny_llama(), PROMPT, PENALISED, 12)
    draft = draft_of(engine, device.request(6))
    assert list(draft.token_ids) == truth[:6]
    device.tokens += truth[:4]
    assert list(draft_of(engine, device.request(8)).token_ids) == truth[4:]


def test_company_and_scarce_memory_do_not_change_a_draft() -> None:
    engine = torch_drafter(tiny_llama(), blocks=26)
    rng = random.Random(2)
    devices = [
        Device(f"d{i}", SAMPLED if i % 2 else GREEDY, tuple(rng.randrange(VOCAB) for _ in range(rng.randint(5, 40))))
        for i in range(5)
    ]
    for device in devices:
        engine.open(device.opening())
    for _ in range(3):
        expected = {}
        for device in devices:
            window = rng.randint(1, 6)
            expected[device.name] = device.truth(window)
            engine.submit(device.request(window))
        answers = answers_of(engine)
        for device in devices:
            answer = answers[device.name]
            assert isinstance(answer, Draft)
            assert answer.token_ids == expected[device.name]
            device.tokens += [*answer.token_ids[: rng.randint(0, 3)], rng.randrange(VOCAB)]
    assert engine.usage().evictions > 0
    for device in devices:
        engine.close(device.name)
    assert engine.usage().used_blocks == 0


def test_a_block_joins_while_another_is_being_drafted() -> None:
    engine, first, second = torch_drafter(tiny_llama()), Device("a", GREEDY), Device("b", SAMPLED)
    for device in (first, second):
        engine.open(device.opening())
    engine.submit(first.request(8))
    assert engine.step() == []
    engine.submit(second.request(2))
    order = []
    while engine.busy:
        order += [answer.generation for answer in engine.step()]
    assert order == ["b", "a"], "the shorter block does not wait for the longer one"


def test_a_repeated_request_returns_the_same_draft() -> None:
    engine, device = torch_drafter(tiny_llama()), Device("a", SAMPLED)
    engine.open(device.opening())
    first = draft_of(engine, device.request(4))
    device.tokens += [*first.token_ids[:2], 9]
    request = device.request(4)
    assert draft_of(engine, request) == draft_of(engine, request)


def test_what_the_drafter_does_not_hold_needs_its_prefix() -> None:
    engine, device = torch_drafter(tiny_llama()), Device("a", GREEDY)
    engine.submit(device.request(2))
    assert answers_of(engine) == {"a": NeedsPrefix("a", 1)}
    engine.open(device.opening())
    device.tokens += [1, 2]
    device.known = len(device.tokens)  # the coordinator believes that the drafter has these already
    device.tokens += [3]
    engine.submit(device.request(2))
    assert answers_of(engine) == {"a": NeedsPrefix("a", 2)}
    engine.submit(DraftRequest("a", 3, len(PROMPT), (1, 2), prefix_hash=12345, window=1, rule=AcceptanceRule.GREEDY))
    assert answers_of(engine) == {"a": NeedsPrefix("a", 3)}


def test_hidden_states_are_those_the_tokens_were_drawn_from() -> None:
    engine, device, model = torch_drafter(tiny_llama()), Device("a", GREEDY), tiny_llama()
    engine.open(device.opening())
    draft = draft_of(engine, device.request(3, want_hidden=True))
    with torch.inference_mode():
        output = model.model(input_ids=torch.tensor([[*PROMPT, *draft.token_ids]]))
    assert draft.hidden is not None
    np.testing.assert_allclose(draft.hidden, output.last_hidden_state[0, len(PROMPT) - 1 : -1].numpy(), atol=1e-4)


def test_a_nearly_full_context_shortens_the_block() -> None:
    engine, device = torch_drafter(tiny_llama()), Device("a", GREEDY, (1,) * 252)
    engine.open(device.opening())
    assert len(draft_of(engine, device.request(16)).token_ids) == 4
    with pytest.raises(ContextTooLongError, match="drafter limit of 256"):
        engine.open(Device("b", GREEDY, (1,) * 256).opening())


def test_rules_it_cannot_draft_for_are_refused() -> None:
    engine = torch_drafter(tiny_llama())
    with pytest.raises(UnsupportedBlockError, match="the ratio rule"):
        engine.submit(DraftRequest("a", 0, 0, (), 0, 2, AcceptanceRule.RATIO))

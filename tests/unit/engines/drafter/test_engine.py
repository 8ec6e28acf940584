"""The drafter engine: the same tokens whatever the window, company, memory or order of feedback."""

import random
from dataclasses import replace

import numpy as np
import pytest
import torch

from outrider.contracts.drafting import Draft, DraftPlan, DraftRequest, NeedsPrefix
from outrider.contracts.errors import ContextTooLongError
from outrider.contracts.requests import ProtocolName, SamplingParams
from outrider.protocols.registry import PROTOCOLS
from tests.unit.engines.conftest import (
    DRAFTERS_WITH_KV,
    EVERY_DRAFTER,
    VOCAB,
    WHOLE_DRAFTERS,
    MakeDrafter,
    tiny_llama,
)
from tests.unit.engines.drafter_device import (
    GREEDY,
    PENALISED,
    PROMPT,
    SAMPLED,
    TERMS,
    Device,
    Passes,
    answer_to,
    answers_of,
    draft_of,
)
from tests.unit.engines.reference import target_alone

WITHHELD = SamplingParams(
    temperature=0.9, seed=3, withheld_ids=tuple(range(0, VOCAB, 2)), withheld_until=len(PROMPT) + 9
)


BIASED = SamplingParams(
    temperature=1.2, seed=5, logit_bias=((7, 100.0), (8, -100.0), (9, 3.5)), presence_penalty=2.0, top_k=7, min_p=0.01
)
TRUNCATED = SamplingParams(temperature=2.0, seed=6, top_p=0.4)
EVERY_PARAMS = {
    "greedy": GREEDY,
    "sampled": SAMPLED,
    "withheld": WITHHELD,
    "biased": BIASED,
    "truncated": TRUNCATED,
    "greedy, biased": replace(BIASED, temperature=0.0),
}


@EVERY_DRAFTER
@pytest.mark.parametrize("params", EVERY_PARAMS.values(), ids=EVERY_PARAMS.keys())
def test_token_ids_are_the_models_own_choice_with_the_shared_noise(
    make_drafter: MakeDrafter, params: SamplingParams
) -> None:
    engine, device, rng = make_drafter(), Device("a", params, model=make_drafter.model), random.Random(1)
    engine.open(device.opening(), TERMS)
    for window in (3, 1, 16, 0, 5):
        draft = draft_of(engine, device.request(window))
        assert draft.token_ids == device.truth(window)
        assert draft.position == len(device.tokens)
        assert (draft.parents, draft.correction, draft.distribution) == (None, None, None)
        accepted = rng.randint(0, window)
        device.tokens += [*draft.token_ids[:accepted], rng.randrange(VOCAB)]


@EVERY_DRAFTER
def test_penalties_count_drafted_tokens_too(make_drafter: MakeDrafter) -> None:
    engine, device = make_drafter(), Device("a", PENALISED, model=make_drafter.model)
    engine.open(device.opening(), TERMS)
    truth = target_alone(make_drafter.model(), PROMPT, PENALISED, 12)
    draft = draft_of(engine, device.request(6))
    assert list(draft.token_ids) == truth[:6]
    device.tokens += truth[:4]
    assert list(draft_of(engine, device.request(8)).token_ids) == truth[4:]


@WHOLE_DRAFTERS
def test_accepted_tokens_are_not_computed_again(make_drafter: MakeDrafter) -> None:
    model = tiny_llama()
    engine, device, passes = make_drafter(model), Device("a", GREEDY, protocol="dsd"), Passes(model)
    engine.open(device.opening(), TERMS)
    draft_of(engine, device.request(0))
    passes.taken()  # one that is built by its first order is warmed up
    draft = draft_of(engine, device.request(4))
    assert passes.taken() == 1 + 3
    device.tokens += [*draft.token_ids[:2], 9]
    draft_of(engine, device.request(1))
    assert passes.taken() == 1, "the two accepted tokens are resident"


@EVERY_DRAFTER
def test_feedback_may_take_back_committed_tokens(make_drafter: MakeDrafter) -> None:
    engine, device = make_drafter(), Device("a", GREEDY, model=make_drafter.model)
    engine.open(device.opening(), TERMS)
    device.tokens.append(9)
    draft = draft_of(engine, device.request(4))
    device.tokens[-1:] = [*draft.token_ids[:2]]  # what followed the token taken back, without it
    assert draft.token_ids[0] != 9
    device.known = len(PROMPT)
    assert draft_of(engine, device.request(4)).token_ids == device.truth(4)


@DRAFTERS_WITH_KV
def test_company_and_scarce_memory_do_not_change_a_draft(make_drafter: MakeDrafter) -> None:
    assert make_drafter.scarce_blocks is not None
    engine = make_drafter(blocks=make_drafter.scarce_blocks)
    rng = random.Random(2)
    devices = [
        Device(f"d{i}", SAMPLED if i % 2 else GREEDY, tuple(rng.randrange(VOCAB) for _ in range(rng.randint(5, 40))))
        for i in range(5)
    ]
    for device in devices:
        engine.open(device.opening(), TERMS)
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


@EVERY_DRAFTER
def test_a_block_joins_while_another_is_being_drafted(make_drafter: MakeDrafter) -> None:
    engine, first, second = (
        make_drafter(),
        Device("a", GREEDY, model=make_drafter.model),
        Device("b", SAMPLED, model=make_drafter.model),
    )
    for device in (first, second):
        engine.open(device.opening(), TERMS)
    engine.submit(first.request(8))
    assert engine.step() == []
    engine.submit(second.request(2))
    order = []
    while engine.busy:
        order += [answer.generation for answer in engine.step()]
    assert order == ["b", "a"], "the shorter block does not wait for the longer one"


@WHOLE_DRAFTERS
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_repeated_request_returns_the_same_draft_without_a_pass(
    make_drafter: MakeDrafter, protocol: ProtocolName
) -> None:
    model = tiny_llama()
    engine, device, passes = make_drafter(model), Device("a", SAMPLED, protocol=protocol), Passes(model)
    engine.open(device.opening(), TERMS)
    first = draft_of(engine, device.request(4))
    device.tokens += [*first.token_ids[:2], 9]
    request = device.request(4)
    draft = draft_of(engine, request)
    passes.taken()
    assert draft_of(engine, request) == draft
    assert passes.taken() == 0
    assert draft_of(engine, replace(request, want_hidden=True)).token_ids == draft.token_ids, "even if drafted anew"
    assert passes.taken() > 0


@EVERY_DRAFTER
def test_a_new_request_replaces_the_old(make_drafter: MakeDrafter) -> None:
    engine, device = make_drafter(), Device("a", GREEDY, model=make_drafter.model)
    engine.open(device.opening(), TERMS)
    engine.submit(device.request(8))
    engine.step()
    engine.submit(device.request(2))
    answers = [answer for _ in range(4) for answer in engine.step()]
    assert [(answer.round, answer.generation) for answer in answers] == [(2, "a")]
    assert not engine.busy
    assert engine.usage().used_blocks > 0
    engine.close("a")
    assert engine.usage().used_blocks == 0


@EVERY_DRAFTER
def test_what_the_drafter_does_not_hold_needs_its_prefix(make_drafter: MakeDrafter) -> None:
    engine, device = make_drafter(), Device("a", GREEDY, model=make_drafter.model)
    assert answer_to(engine, device.request(2)) == NeedsPrefix("a", 1)
    engine.open(device.opening(), TERMS)
    device.tokens += [1, 2]
    device.known = len(device.tokens)  # the coordinator believes that the drafter has these already
    device.tokens += [3]
    assert answer_to(engine, device.request(2)) == NeedsPrefix("a", 2)
    plan = DraftPlan("token_ids", 1)
    assert answer_to(engine, DraftRequest("a", 3, len(PROMPT), (1, 2), 12345, plan)) == NeedsPrefix("a", 3)


@EVERY_DRAFTER
def test_generations_come_go_and_are_resumed_beside_each_other(make_drafter: MakeDrafter) -> None:
    """With any window, none, and any part of a draft accepted, or a token taken back."""
    engine, rng = make_drafter(), random.Random(3)
    devices = [Device(str(i), params, model=make_drafter.model) for i, params in enumerate(EVERY_PARAMS.values())]
    held = set[Device]()
    for _ in range(12):
        asked = {}
        for device in rng.sample(devices, 3):
            if device not in held:  # begun, or resumed with what it has said
                engine.open(device.opening(), TERMS)
                device.known = len(device.tokens)
                held.add(device)
            window = rng.randint(0, 5)
            asked[device.name] = device, device.truth(window)
            engine.submit(device.request(window))
        answers = answers_of(engine)
        for name, (device, truth) in asked.items():
            answer = answers[name]
            assert isinstance(answer, Draft)
            assert answer.token_ids == truth
            device.tokens += [*truth[: rng.randint(0, 5)], *([rng.randrange(VOCAB)] if rng.random() < 0.8 else [])]
            if rng.random() < 0.2:
                engine.close(name)
                held.discard(device)
    assert engine.usage().generations == len(held)


@EVERY_DRAFTER
def test_a_closed_generation_is_forgotten_and_may_be_opened_again(make_drafter: MakeDrafter) -> None:
    engine, device = make_drafter(), Device("a", SAMPLED, model=make_drafter.model)
    for name in ("a", "unknown"):
        engine.close(name)
    engine.open(device.opening(), TERMS)
    engine.submit(device.request(8))
    engine.step()
    engine.close("a")
    engine.close("a")
    assert (engine.busy, engine.started(), engine.usage().generations) == (False, (), 0)
    assert answer_to(engine, device.request(2)) == NeedsPrefix("a", 2)
    engine.open(device.opening(), TERMS)
    assert draft_of(engine, device.request(3)).token_ids == device.truth(3)
    engine.open(device.opening(), TERMS)
    assert draft_of(engine, device.request(4)).token_ids == device.truth(4), "in place of the one before"


@WHOLE_DRAFTERS
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_hidden_states_are_those_the_tokens_were_drawn_from(make_drafter: MakeDrafter, protocol: ProtocolName) -> None:
    engine, device, model = make_drafter(), Device("a", GREEDY, protocol=protocol), tiny_llama()
    engine.open(device.opening(), TERMS)
    draft = draft_of(engine, device.request(3, want_hidden=True))
    with torch.inference_mode():
        output = model.model(input_ids=torch.tensor([[*PROMPT, *draft.token_ids]]))
    assert draft.hidden is not None
    np.testing.assert_allclose(draft.hidden, output.last_hidden_state[0, len(PROMPT) - 1 : -1].numpy(), atol=1e-4)


@EVERY_DRAFTER
def test_a_nearly_full_context_shortens_the_block(make_drafter: MakeDrafter) -> None:
    engine, device = make_drafter(), Device("a", GREEDY, (1,) * 252, model=make_drafter.model)
    engine.open(device.opening(), TERMS)
    assert len(draft_of(engine, device.request(16)).token_ids) == 4
    device.tokens += [7] * 6
    assert draft_of(engine, device.request(16)).token_ids == ()
    with pytest.raises(ContextTooLongError, match="drafter limit of 256"):
        engine.open(Device("b", GREEDY, (1,) * 256, model=make_drafter.model).opening(), TERMS)

"""Numbers that are not finite end the response that they are of, and nobody else's; no token is ever chosen by them."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from transformers import PreTrainedModel

from outrider.contracts.exchanged import Deferral, SparseDraft
from outrider.contracts.requests import SamplingParams
from outrider.contracts.verifying import AcceptanceRule, Failed, Outcome, Undecided, Unfinished, Verified
from outrider.engines.forward_model import PassResult
from outrider.engines.segments import Segment
from outrider.engines.torch.attention import TiledAttention
from outrider.engines.torch.model import PagedModel
from outrider.engines.torch.sizes import ANY
from outrider.engines.torch.verifier import TorchVerifier
from outrider.engines.verifier.engine import PagedVerifier
from outrider.engines.verifier.stepper import Stepper
from outrider.sampling.device_tensors import Upload, everywhere_at_once
from tests.unit.engines.conftest import VOCAB, MakeVerifier, branched_verifier, tiny_llama, torch_verifier
from tests.unit.engines.reference import Client, assert_same_logprobs, tiny_alone
from tests.unit.engines.semantic_device import PASSES, ThresholdJudge, hidden_states
from tests.unit.engines.toy_grammar import TOY

PROMPT = [5, 17, 42, 8, 61, 30, 2]
GREEDY = SamplingParams(temperature=0.0)
PARAMS = {
    "greedy": GREEDY,
    "sampled": SamplingParams(temperature=0.8, top_p=0.9, top_k=20, seed=5),
    "penalised": SamplingParams(temperature=1.0, seed=6, repetition_penalty=1.3, logit_bias=((3, 5.0),)),
    "constrained": SamplingParams(temperature=0.0, grammar=TOY),
}
SAID = {token for params in PARAMS.values() for token in tiny_alone(PROMPT, params, 12)}
POISON = next(token for token in range(40, VOCAB) if token not in {*SAID, *PROMPT})  # no numbers behind this token
BAD = [*PROMPT[:3], POISON, *PROMPT[3:]]
each_params = pytest.mark.parametrize("params", PARAMS.values(), ids=PARAMS)


def poisoned(value: float = float("nan")) -> PreTrainedModel:
    model = tiny_llama()
    with torch.no_grad():
        model.model.embed_tokens.weight[POISON] = value
    return model


def tiled_verifier(model: PreTrainedModel, *, blocks: int = 200) -> TorchVerifier:
    """Over the model whose attention reads whole blocks, what no row may see included."""
    engine = torch_verifier(model, blocks=blocks)
    paged = PagedModel(model, blocks, engine.usage().block_tokens)
    paged._rows = ANY  # noqa: SLF001
    upload = Upload()
    attend = paged._prepare_attention([Segment([0], 0, [0], 1)], upload)  # noqa: SLF001
    upload.send(torch.device("cpu"))
    assert isinstance(attend(), TiledAttention)
    engine._runner.serve(paged)  # noqa: SLF001
    return engine


MAKES: dict[str, Callable[..., PagedVerifier]] = {
    "fused": torch_verifier,
    "tiled": tiled_verifier,
    "branched": branched_verifier,
}


@pytest.fixture(params=[nullcontext, everywhere_at_once], ids=["row by row", "at once"])
def device(request: pytest.FixtureRequest) -> Iterator[None]:
    """Both ways of reading a device."""
    way: Callable[[], AbstractContextManager[None]] = request.param
    with way():
        yield


def assert_ended(outcome: Outcome) -> None:
    assert isinstance(outcome, Failed), outcome
    assert outcome.non_finite
    assert "not finite" in outcome.reason


def finished(engine: PagedVerifier, *clients: Client) -> list[Outcome]:
    """What becomes of a block of each, over as many passes as it takes."""
    left, told = [client.block() for client in clients], dict[str, Outcome]()
    while left:
        outcomes = engine.verify(left)
        told |= {each.generation: each for each in outcomes if not isinstance(each, Unfinished)}
        left = [block for block, each in zip(left, outcomes, strict=True) if isinstance(each, Unfinished)]
    return [told[client.name] for client in clients]


@pytest.mark.usefixtures("device")
@each_params
@pytest.mark.parametrize("make", MAKES.values(), ids=MAKES)
def test_the_others_of_a_batch_get_what_they_get_alone(
    make: Callable[..., PagedVerifier], params: SamplingParams
) -> None:
    engine = make(poisoned())
    truth = tiny_alone(PROMPT, params, 12)
    good, bad, also = Client("good", PROMPT, params), Client("bad", BAD, params), Client("also", PROMPT[::-1], GREEDY)
    for client in (good, bad, also):
        engine.open(client.opening())
    first, ended, other = finished(engine, good, bad, also)
    assert_ended(ended)
    assert isinstance(first, Verified)
    assert isinstance(other, Verified)
    good.take(good.block(), first)
    while len(good.output) < 8:
        block = good.block(truth[len(good.output) :][:2])
        (outcome,) = engine.verify([block])
        assert isinstance(outcome, Verified)
        good.take(block, outcome)
    assert good.output == truth[: len(good.output)]
    engine.close("bad", keep_cache=False)
    assert engine.usage().generations == 2


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_every_way_in_which_a_number_is_none(value: float) -> None:
    engine, client = torch_verifier(poisoned(value)), Client("bad", BAD, GREEDY)
    engine.open(client.opening())
    assert_ended(finished(engine, client)[0])


class Rows:
    """A model whose logits are changed on the way."""

    def __init__(self, model: object, change: Callable[[torch.Tensor], torch.Tensor]) -> None:
        self._model, self._change = model, change

    def __getattr__(self, name: str) -> object:
        """As it is."""
        return getattr(self._model, name)

    def forward(self, segments: Sequence[Segment], *, want_hidden: bool = False) -> PassResult:
        result = self._model.forward(segments, want_hidden=want_hidden)  # type: ignore[attr-defined]
        return PassResult(self._change(result.logits), result.hidden)


def one_number(value: float) -> Callable[[torch.Tensor], torch.Tensor]:
    def change(logits: torch.Tensor) -> torch.Tensor:
        logits = logits.clone()
        logits[-1, 11] = value
        return logits

    return change


CHANGES = {
    "one NaN": (one_number(float("nan")), True),
    "one +inf": (one_number(float("inf")), True),
    "one -inf": (one_number(-float("inf")), False),
    "all -inf": (lambda logits: torch.full_like(logits, -float("inf")), True),
    "all but padding -inf": (
        lambda logits: torch.cat([torch.full_like(logits[:, :VOCAB], -float("inf")), logits[:, VOCAB:] * 0], 1),
        True,
    ),
    "half -inf": (lambda logits: torch.where(torch.arange(logits.shape[1]) % 2 == 0, logits, -float("inf")), False),
}


@pytest.mark.usefixtures("device")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize(("change", "ends"), CHANGES.values(), ids=CHANGES)
def test_one_number_of_a_row_is_enough_and_minus_infinity_is_lawful(
    change: Callable[[torch.Tensor], torch.Tensor], dtype: torch.dtype, *, ends: bool
) -> None:
    engine = torch_verifier(tiny_llama())
    rows: Any = Rows(engine._runner._model, lambda logits: change(logits.to(dtype)))  # noqa: SLF001
    engine._runner._model = rows  # noqa: SLF001
    client = Client("a", PROMPT, PARAMS["sampled"])
    engine.open(client.opening())
    (outcome,) = finished(engine, client)
    if ends:
        assert_ended(outcome)
    else:
        assert isinstance(outcome, Verified)


SHAPES = {"chain": (None, 3), "tree": ((-1, 0, *(-1,) * 10), 12)}  # parents and nodes; wider than a prompt is long


@pytest.mark.usefixtures("device")
@each_params
@pytest.mark.parametrize("make", MAKES.values(), ids=MAKES)
@pytest.mark.parametrize(("parents", "nodes"), SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("kv", ["warm", "cold", "evicted"])
def test_a_draft_that_has_no_numbers_behind_it_ends_nothing(
    make: Callable[..., PagedVerifier], params: SamplingParams, parents: tuple[int, ...] | None, nodes: int, kv: str
) -> None:
    """A device may propose what it likes: the block is verified once more without its draft."""
    engine, client = make(poisoned(), blocks=20), Client("a", PROMPT, params)
    truth, told = tiny_alone(PROMPT, params, 12), 0
    engine.open(client.opening())
    if kv != "cold":
        client.take(client.block(), finished(engine, client)[0])  # type: ignore[arg-type]
    while len(client.output) < 8:
        if kv == "evicted":
            evict(engine, client)
        draft = [truth[len(client.output)], POISON, *range(3, nodes + 1)]
        block = client.block(draft, parents=parents)
        while isinstance(outcome := engine.verify([block])[0], Unfinished):
            assert 1 <= outcome.remaining_tokens <= len(client.tokens)
            told += 1
        assert isinstance(outcome, Verified)
        assert POISON not in [outcome.next_token, *(draft[node] for node in outcome.accepted_path)]
        client.take(block, outcome)
    assert told >= 7
    assert client.output == truth[: len(client.output)]


def evict(engine: PagedVerifier, client: Client) -> None:
    """Have others take all KV, published blocks included."""
    others = [Client(f"other {number}", [number, *range(1, 16)], GREEDY) for number in range(1, 6)]
    for other in others:
        engine.open(other.opening())
        assert isinstance(finished(engine, other)[0], Verified)
    assert client.name in {name for name, _ in engine.evicted()} or not engine._generations[client.name].kv.blocks  # noqa: SLF001
    for other in others:
        engine.close(other.name, keep_cache=False)


@pytest.mark.parametrize("make", MAKES.values(), ids=MAKES)
def test_a_draft_behind_a_cold_prompt_leaves_its_scores_and_the_others_alone(
    make: Callable[..., PagedVerifier],
) -> None:
    """As after the loss of a verifier: prompt, output and draft are one pass."""
    truth = tiny_alone(PROMPT, GREEDY, 8)
    told = list[Verified]()
    for draft in ((), (POISON, POISON)):
        engine, other = make(poisoned()), Client("b", PROMPT[::-1], GREEDY)
        client = Client("a", PROMPT, GREEDY, logprobs=2, prompt_logprobs=True)
        for each in (client, other):
            engine.open(each.opening())
        block, (outcome, beside) = client.block(draft), engine.verify([client.block(draft), other.block()])
        assert isinstance(beside, Verified)
        assert beside.next_token == tiny_alone(PROMPT[::-1], GREEDY, 1)[0]
        while isinstance(outcome, Unfinished):
            (outcome,) = engine.verify([block])
        assert isinstance(outcome, Verified)
        assert outcome.next_token == truth[0]
        told.append(outcome)
    assert_same_logprobs(told[1].prompt_logprobs[1:], [each for each in told[0].prompt_logprobs if each is not None])


def test_a_draft_of_a_ratio_rule_that_has_none_ends_the_response() -> None:
    """To test it or not depending on what it is would change what is drawn."""
    params = PARAMS["sampled"]
    engine, client = torch_verifier(poisoned()), Client("a", PROMPT, params)
    engine.open(client.opening())
    client.take(client.block(), finished(engine, client)[0])  # type: ignore[arg-type]
    sent = SparseDraft((np.array([POISON]),), (np.zeros(1, np.float32),))
    block = client.block([POISON], rule=AcceptanceRule.RATIO, distribution=sent)
    assert_ended(engine.verify([block])[0])


@pytest.mark.usefixtures("device")
def test_a_prompts_scores_end_it_in_the_chunk_that_they_are_of() -> None:
    engine = torch_verifier(poisoned(), prefill_chunk_tokens=4)
    bad = Client("bad", [*BAD, *PROMPT, *PROMPT], GREEDY, logprobs=2, prompt_logprobs=True)
    good = Client("good", PROMPT, GREEDY, logprobs=2, prompt_logprobs=True)
    for client in (bad, good):
        engine.open(client.opening())
    ended, scored = finished(engine, bad, good)
    assert_ended(ended)
    assert isinstance(scored, Verified)
    assert len(scored.prompt_logprobs) == len(PROMPT)


@pytest.mark.usefixtures("device")
@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_a_hidden_state_that_a_judge_would_be_asked_about_has_to_be_finite(value: float) -> None:
    engine = torch_verifier(tiny_llama(), judge=ThresholdJudge())
    model = engine._runner._model  # noqa: SLF001

    class Hidden(Rows):
        def forward(self, segments: Sequence[Segment], *, want_hidden: bool = False) -> PassResult:
            result = model.forward(segments, want_hidden=want_hidden)
            if result.hidden is None:
                return result
            hidden = result.hidden.clone()
            hidden[1, 2] = value
            return PassResult(result.logits, hidden)

    client, truth = Client("a", PROMPT, GREEDY), tiny_alone(PROMPT, GREEDY, 8)
    engine.open(client.opening())
    client.take(client.block(), finished(engine, client)[0])  # type: ignore[arg-type]
    wrong = [(truth[1] + 1) % VOCAB, truth[2], truth[3]]
    block = replace(client.block(wrong, rule=AcceptanceRule.SEMANTIC), judge=next(iter(engine._judges)))  # noqa: SLF001
    assert isinstance(engine.verify([block])[0], Undecided), "it is asked otherwise"
    hidden: Any = Hidden(model, lambda logits: logits)
    engine._runner._model = engine._runner._masked = hidden  # noqa: SLF001
    told = replace(block, round=block.round + 1, hidden=hidden_states(PASSES, PASSES, PASSES))
    assert isinstance(engine.verify([told])[0], Unfinished)
    (outcome,) = engine.verify([told])
    assert isinstance(outcome, Verified), "without the draft nothing is to be judged"
    assert (outcome.accepted_path, outcome.next_token) == ((), truth[1])


@pytest.mark.parametrize("make", MAKES.values(), ids=MAKES)
def test_nobody_is_given_the_kv_of_one_that_ended(make: Callable[..., PagedVerifier]) -> None:
    """Neither its prefix by content, nor its blocks as they are: 0 times NaN is NaN."""
    engine = make(poisoned(), blocks=8)
    for number in range(6):
        bad = Client(f"bad {number}", [7, POISON, *range(1, 23)], GREEDY)  # its first chunk is shared by then
        engine.open(bad.opening())
        assert_ended(finished(engine, bad)[0])
        assert (engine.usage().used_blocks, engine.usage().cached_blocks) == (0, 0)
        engine.close(bad.name, keep_cache=True)
        good = Client(f"good {number}", PROMPT, GREEDY)
        engine.open(good.opening())
        for token in tiny_alone(PROMPT, GREEDY, 3):
            (outcome,) = finished(engine, good)
            assert isinstance(outcome, Verified)
            assert outcome.next_token == token
            good.take(good.block(), outcome)
        engine.close(good.name, keep_cache=False)


def test_kv_that_was_left_in_the_middle_of_a_prompt_harms_nobody() -> None:
    """Before anybody could see that it is none."""
    engine = tiled_verifier(poisoned(), blocks=8)
    bad = Client("bad", [POISON, *range(1, 28)], GREEDY)
    engine.open(bad.opening())
    assert isinstance(engine.verify([bad.block()])[0], Unfinished)
    engine.close("bad", keep_cache=False)
    good = Client("good", PROMPT, GREEDY)
    engine.open(good.opening())
    (outcome,) = finished(engine, good)
    assert isinstance(outcome, Verified)
    assert outcome.next_token == tiny_alone(PROMPT, GREEDY, 1)[0]


def test_it_is_counted_and_is_no_witness_against_the_engine() -> None:
    """Else three prompts that overflow would end it."""
    stepper = Stepper(torch_verifier(poisoned()))
    clients = [Client(str(number), BAD, GREEDY) for number in range(5)]
    for client in clients:
        stepper.open(client.opening())
    stepper.give([client.block() for client in clients])
    outcomes = list[Outcome]()
    while not stepper.idle:
        outcomes += [each for each in stepper.step() if not isinstance(each, Unfinished)]
    assert [each.generation for each in outcomes if isinstance(each, Failed) and each.non_finite] == list("01234")
    assert stepper.taken_faults() == ("non_finite",) * 5


def test_a_deferred_correction_is_not_drawn_from_such_a_row() -> None:
    params = PARAMS["sampled"]
    engine, client = torch_verifier(poisoned()), Client("bad", BAD, params)
    engine.open(client.opening())
    block = client.block(bonus=False, rule=AcceptanceRule.RATIO, deferral=Deferral())
    assert_ended(engine.verify([block])[0])


def test_every_engine_ends_it(make_verifier: MakeVerifier) -> None:
    engine, bad, good = make_verifier(poisoned()), Client("bad", BAD, GREEDY), Client("good", PROMPT, GREEDY)
    for client in (bad, good):
        engine.open(client.opening())
    ended, other = finished(engine, bad, good)
    assert_ended(ended)
    assert isinstance(other, Verified)
    assert other.next_token == tiny_alone(PROMPT, GREEDY, 1)[0]

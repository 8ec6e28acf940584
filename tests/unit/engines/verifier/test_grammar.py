"""Grammars under every rule, shape and engine: the output is the target's alone under the same masks."""

import random
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from outrider.contracts.errors import ParameterError
from outrider.contracts.exchanged import Deferral, DraftDistribution
from outrider.contracts.requests import Grammar, SamplingParams
from outrider.contracts.verifying import AcceptanceRule, Block, BlockRefused, Outcome, Resolution, Undecided, Verified
from outrider.engines.verifier.engine import PagedVerifier
from outrider.engines.verifier.stepper import Stepper
from outrider.grammar.state import GrammarState, Mask
from outrider.sampling.device_tensors import everywhere_at_once
from tests.unit.engines.conftest import EXACT_VERIFIERS, MakeVerifier, tiny_llama, torch_verifier, verifier_over
from tests.unit.engines.fake_device import FakeDevice
from tests.unit.engines.languages import allowed_by
from tests.unit.engines.reference import (
    Client,
    assert_decided,
    generate,
    mixed_draft,
    plain_decision,
    tiny_alone,
    tiny_logits,
    verify_until_done,
)
from tests.unit.engines.semantic_device import PASSES, ThresholdJudge, hidden_states, resolution
from tests.unit.engines.toy_grammar import END, SENTENCES, TEXTS, THINK_END, TOY, VOCAB, text_of
from tests.unit.engines.verifier.test_trees import random_tree

PROMPT = [5, 17, 42, 8, 61, 30, 2]
LATER = replace(TOY, begins_after=THINK_END)
OPENS = TEXTS.index("#")
MAYBE = replace(LATER, opened_by=OPENS)
PARAMS = {
    "greedy": SamplingParams(temperature=0.0, grammar=TOY),
    "sampled": SamplingParams(temperature=0.8, top_p=0.9, seed=5, grammar=TOY),
    "hot": SamplingParams(temperature=2.0, seed=7, grammar=TOY),
    "truncated": SamplingParams(temperature=1.0, top_k=3, min_p=0.05, seed=9, grammar=TOY),
    "penalised": SamplingParams(
        temperature=1.0, seed=6, repetition_penalty=1.3, presence_penalty=0.5, logit_bias=((3, 100.0),), grammar=TOY
    ),
    "reasoning": SamplingParams(temperature=1.5, seed=3, logit_bias=((THINK_END, 9.0),), grammar=LATER),
    "reasoning or none": SamplingParams(
        temperature=1.5, seed=4, logit_bias=((THINK_END, 9.0), (OPENS, 4.0)), grammar=MAYBE
    ),
}
each_params = pytest.mark.parametrize("params", PARAMS.values(), ids=PARAMS.keys())


@pytest.fixture(autouse=True)
def _prepared(monkeypatch: pytest.MonkeyPatch) -> None:
    """All masks that a pass asks for are those that ``prepare`` makes before it, but behind what it resolves itself."""
    verify, mask = PagedVerifier.verify, GrammarState._mask  # noqa: SLF001

    def with_all_masks(
        engine: PagedVerifier, blocks: Sequence[Block], resolutions: Sequence[Resolution] = ()
    ) -> list[Outcome]:
        while not resolutions and (waiting := engine.prepare(blocks)):
            for masks in waiting.values():
                masks.result()
        with monkeypatch.context() as patch:
            patch.setattr(GrammarState, "_mask", mask if resolutions else no_more)
            return verify(engine, blocks, resolutions)

    def no_more(_: GrammarState, path: tuple[int, ...]) -> Mask:
        raise AssertionError(f"a mask behind {path} that nobody prepared")

    monkeypatch.setattr(PagedVerifier, "verify", with_all_masks)


def ended(output: list[int]) -> list[int]:
    """Up to the first end."""
    return output[: output.index(END) + 1] if END in output else output


def assert_a_sentence(output: list[int], params: SamplingParams) -> None:
    assert output[-1] == END
    said = output[output.index(THINK_END) + 1 :] if params.grammar != TOY and THINK_END in output else output
    assert text_of(said) in SENTENCES


@each_params
@pytest.mark.parametrize("window", [0, 1, 4, 16])
def test_output_equals_the_target_alone_for_every_window(
    make_verifier: MakeVerifier, params: SamplingParams, window: int
) -> None:
    truth = tiny_alone(PROMPT, params, 40)
    client, rng = Client("a", PROMPT, params), random.Random(window)
    generate(make_verifier(tiny_llama()), [client], lambda c: mixed_draft(truth[len(c.output) :], window, rng), 24)
    assert client.output == truth[: len(client.output)]
    assert_a_sentence(ended(client.output), params)
    assert set(client.output[len(ended(client.output)) :]) <= {END}  # behind an end there is nothing but ends


def test_masks_on_a_device_of_its_own_are_the_same() -> None:
    for params in PARAMS.values():
        truth = tiny_alone(PROMPT, params, 30)
        client, rng = Client("a", PROMPT, params), random.Random(3)
        with everywhere_at_once():
            engine = torch_verifier(tiny_llama())
            generate(engine, [client], lambda c, t=truth, r=rng: mixed_draft(t[len(c.output) :], 3, r), 20)  # type: ignore[misc]
        assert client.output == truth[: len(client.output)]


@each_params
def test_drafts_that_the_grammar_forbids_are_rejected(make_verifier: MakeVerifier, params: SamplingParams) -> None:
    """Whatever is drafted: what the target would say without a grammar, any token, ends in the middle."""
    free = tiny_alone(PROMPT, replace(params, grammar=None), 60)
    truth, rng = tiny_alone(PROMPT, params, 40), random.Random(1)

    def drafted(client: Client) -> list[int]:
        at = len(client.output)
        kinds = (free[at : at + 4], [END] * 3, [*truth[at : at + 2], END, 5], rng.choices(range(VOCAB), k=5))
        return list(rng.choice(kinds))

    client = Client("a", PROMPT, params)
    generate(make_verifier(tiny_llama()), [client], drafted, 24)
    assert client.output == truth[: len(client.output)]


@pytest.mark.parametrize("bonus", [True, False])
@each_params
def test_trees_fork_the_grammar(make_verifier: MakeVerifier, params: SamplingParams, *, bonus: bool) -> None:
    truth = tiny_alone(PROMPT, params, 60)
    for seed in range(3):
        rng, client = random.Random(seed), Client("a", PROMPT, params)
        engine = make_verifier(tiny_llama(), blocks=60)
        engine.open(client.opening())
        while len(client.output) < 20:
            draft, parents = random_tree(truth[len(client.output) :], rng)
            block = client.block(draft, parents=parents, bonus=bonus)
            client.take(block, verify_until_done(engine, [block])[0])
        assert client.output == truth[: len(client.output)]


@pytest.mark.parametrize("sent", ["dense", "sparse", "scalars"])
@pytest.mark.parametrize("name", ["sampled", "hot", "penalised", "reasoning"])
def test_ratio_rules_divide_by_the_masked_row(make_verifier: MakeVerifier, name: str, sent: str) -> None:
    """Decisions are the plain rule's on masked, renormalised rows; so is what a device draws a correction from."""
    params = PARAMS[name]
    logits_of, client = tiny_logits, Client("a", PROMPT, params)
    engine, device = make_verifier(tiny_llama()), FakeDevice(logits_of, params.seed)
    engine.open(client.opening())
    forced: tuple[int, ...] = ()
    deferred = 0
    for window in [3, 1, 5, 2, 4] * 4:
        context = [*client.tokens, *forced]
        draft = device.chain(context, window)
        rows: DraftDistribution = device.scalars(draft) if sent == "scalars" else getattr(device, sent)()
        deferral = Deferral() if sent == "scalars" else None
        block = client.block(draft, forced=forced, rule=AcceptanceRule.RATIO, distribution=rows, deferral=deferral)
        expected = plain_decision(logits_of, client, block)
        outcome = verify_until_done(engine, [block])[0]
        assert_decided(outcome, expected)
        client.take(block, outcome)
        forced = ()
        if outcome.deferred is not None:
            deferred += 1
            drawn = device.correct(outcome.deferred, outcome.accepted_len, len(client.tokens))
            assert drawn is not None
            forced = (drawn,)
    assert_a_sentence(ended(client.output), params)
    assert deferred > 0 or sent != "scalars"


def test_a_correction_that_the_grammar_forbids_is_refused() -> None:
    params = PARAMS["hot"]
    logits_of, client = tiny_logits, Client("a", PROMPT, params)
    engine, device = torch_verifier(tiny_llama()), FakeDevice(logits_of, params.seed)
    engine.open(client.opening())
    while True:
        draft = device.chain(client.tokens, 2)
        sent = device.scalars(draft)
        block = client.block(draft, rule=AcceptanceRule.RATIO, distribution=sent, deferral=Deferral())
        outcome = verify_until_done(engine, [block])[0]
        client.take(block, outcome)
        if outcome.deferred is not None:
            break
    (refused,) = engine.verify([client.block(forced=[TEXT_FORBIDDEN])])
    assert isinstance(refused, BlockRefused)
    assert "target can draw" in refused.reason


TEXT_FORBIDDEN = 33  # "A" occurs in no sentence


@pytest.mark.parametrize("lawful", [0, 1, 3])
def test_forced_tokens_that_the_grammar_forbids_are_refused(lawful: int) -> None:
    """No device has drawn them, so no row is asked; the response goes on as if nobody had said so."""
    params = PARAMS["hot"]
    truth = tiny_alone(PROMPT, params, 20)
    client, engine = Client("a", PROMPT, params), torch_verifier(tiny_llama())
    engine.open(client.opening())
    (refused,) = engine.verify([client.block(forced=[*truth[:lawful], TEXT_FORBIDDEN])])
    assert isinstance(refused, BlockRefused)
    assert f"at position {len(PROMPT) + lawful}, found token {TEXT_FORBIDDEN}" in refused.reason
    assert not refused.by_grammar
    while len(client.output) < 9:
        block = client.block(truth[len(client.output) :][:2])
        client.take(block, verify_until_done(engine, [block])[0])
    assert client.output == truth[: len(client.output)]


@pytest.mark.parametrize("at_once", [True, False])
def test_no_judge_lets_pass_what_the_grammar_forbids(make_verifier: MakeVerifier, *, at_once: bool) -> None:
    """A judge that lets everything pass: what comes out is a sentence all the same, and not the target's own."""
    params = PARAMS["greedy"]
    rng, others = random.Random(4), 0
    for _ in range(6):
        client = Client("a", PROMPT, params)
        engine = make_verifier(tiny_llama(), judge=ThresholdJudge())
        engine.open(client.opening())
        while END not in client.output:
            draft = [rng.choice(lawful_tokens(client.output)), *rng.choices(range(VOCAB), k=3)]
            hidden = hidden_states(*[PASSES] * len(draft)) if at_once else None
            block = replace(client.block(draft, rule=AcceptanceRule.SEMANTIC), hidden=hidden)
            (outcome,) = engine.verify([block])
            if isinstance(outcome, Undecided):
                (outcome,) = engine.verify([], [resolution(block, hidden_states(*[PASSES] * len(outcome.mismatches)))])
            assert isinstance(outcome, Verified)
            client.take(block, outcome)
            others += len(outcome.overrides)
        assert_a_sentence(ended(client.output), params)
    assert others > 0


def lawful_tokens(output: list[int]) -> list[int]:
    return [int(token_id) for token_id in np.flatnonzero(allowed_by(TOY, output))]


@each_params
def test_eviction_and_resumption_are_invisible(make_verifier: MakeVerifier, params: SamplingParams) -> None:
    """KV for one or two of five; each is closed once, and opened again with what it has committed."""
    engine = make_verifier(tiny_llama(), blocks=make_verifier.blocks_of(96))
    rng = random.Random(2)
    clients = [Client(f"c{i}", [rng.randrange(VOCAB) for _ in range(30)], params) for i in range(5)]
    truths = {c.name: tiny_alone(c.prompt, params, 40) for c in clients}
    resumed = set[str]()

    def drafted(client: Client) -> list[int]:
        if len(client.output) > 3 and client.name not in resumed:
            resumed.add(client.name)
            engine.close(client.name, keep_cache=rng.random() < 0.5)
            engine.open(client.opening())
        return mixed_draft(truths[client.name][len(client.output) :], 3, rng)

    generate(engine, clients, drafted, 14)
    assert engine.usage().evictions > 0
    assert len(resumed) == 5
    for client in clients:
        assert client.output == truths[client.name][: len(client.output)]


@each_params
def test_autonomous_runs_follow_the_grammar(params: SamplingParams) -> None:
    from outrider.contracts.verifying import AutonomousRun  # noqa: PLC0415

    truth = ended(tiny_alone(PROMPT, params, 40))
    client = Client("a", PROMPT, params)
    engine = torch_verifier(tiny_llama())
    stepper = Stepper(engine)
    stepper.open(client.opening())
    assert engine._generations["a"].grammar is not None, "it is waited for"  # noqa: SLF001
    stepper.give([replace(client.block(), autonomous_run=AutonomousRun(100, frozenset({END})))])
    output = list[int]()
    while not stepper.idle:
        for outcome in stepper.step():
            assert isinstance(outcome, Verified)
            assert outcome.next_token is not None
            output.append(outcome.next_token)
    assert output == truth


def test_a_pass_that_fails_leaves_the_grammar_where_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    params = PARAMS["hot"]
    truth = tiny_alone(PROMPT, params, 20)
    client, engine = Client("a", PROMPT, params), torch_verifier(tiny_llama())
    opening = engine.open(client.opening())
    assert opening is not None
    opening.result()
    fed = GrammarState.feed
    failures = iter([True, False, True, False, False] * 10)

    def fails_behind(self: GrammarState, token_ids: list[int]) -> int:
        taken = fed(self, token_ids)
        if next(failures):
            raise MemoryError
        return taken

    monkeypatch.setattr(GrammarState, "feed", fails_behind)
    failed = 0
    while len(client.output) < 12:
        block = client.block(truth[len(client.output) :][:2])
        try:
            (outcome,) = engine.verify([block])
        except MemoryError:
            failed += 1
            continue
        assert isinstance(outcome, Verified)
        client.take(block, outcome)
    assert failed > 2
    assert client.output == truth[: len(client.output)]


def test_a_grammar_that_cannot_be_followed_is_told_of_its_request_alone() -> None:
    engine = torch_verifier(tiny_llama())
    lost = Client("lost", PROMPT, SamplingParams(temperature=0.0, grammar=Grammar("start: nothing")))
    found = Client("found", PROMPT, PARAMS["greedy"])
    for client in (lost, found):
        engine.open(client.opening())
    refused, verified = engine.verify([lost.block(), found.block()])
    assert isinstance(verified, Verified)
    assert isinstance(refused, BlockRefused)
    assert refused.by_grammar
    assert "nothing" in refused.reason


def test_an_engine_without_a_tokenizer_takes_no_grammar() -> None:
    model = tiny_llama()
    known = torch_verifier(model)
    engine = verifier_over(known._runner._model, model, blocks=9, prefill_chunk_tokens=16, judge=None)  # type: ignore[arg-type]  # noqa: SLF001
    engine._grammars = None  # noqa: SLF001
    with pytest.raises(ParameterError, match="knows its tokenizer"):
        engine.open(Client("a", PROMPT, PARAMS["greedy"]).opening())


def test_a_request_without_a_grammar_beside_one_is_untouched() -> None:
    free = SamplingParams(temperature=0.8, seed=5)
    clients = [Client("free", PROMPT, free), Client("bound", PROMPT, PARAMS["sampled"])]
    truths = {c.name: tiny_alone(PROMPT, c.params, 30) for c in clients}
    generate(EXACT_VERIFIERS["torch"](tiny_llama()), clients, lambda c: truths[c.name][len(c.output) :][:3], 16)
    for client in clients:
        assert client.output == truths[client.name][: len(client.output)]

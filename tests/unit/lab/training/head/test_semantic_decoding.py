"""Decoding by several rules at once is what decoding by each alone, token by token, comes to."""

from collections.abc import Mapping, Sequence

import numpy as np
import pytest
import torch

from lab.training.head.links import EVALUATED
from lab.training.head.pair import EncodedTask, LoadedPair, ask, paged
from lab.training.head.semantic_decoding import (
    AnswerCounts,
    Decoded,
    FlyRule,
    HeadRule,
    LinkedHead,
    MismatchRule,
    ProbabilityRule,
    RankRule,
    RoundFacts,
    StrictRule,
    decode,
)
from outrider.contracts.link import Csi
from outrider.verification.decision_head import CSI_WIDTH, DecisionHead, HeadWeights, Standard
from outrider.verification.semantic import MismatchQuestion
from tests.unit.lab.training.head.tiny_pairs import LIMIT, greedy, load, rows, tasks
from tests.unit.models.tiny_models import EOS

WINDOW, WIDTH = 9, 32
GOOD, POOR = next(iter(EVALUATED.values())), list(EVALUATED.values())[-1]


def weights() -> HeadWeights:
    """Of a head that has learnt nothing, and says something else everywhere."""
    rng = np.random.default_rng(3)
    states, csi = (Standard(np.zeros(width), np.ones(width)) for width in (WIDTH, CSI_WIDTH))
    inner = rng.normal(size=(8, 2 * WIDTH + CSI_WIDTH)) * 0.4
    return HeadWeights(states, states, csi, inner, rng.normal(size=8), rng.normal(size=8), 0.0)


def head(threshold: float, link: Csi) -> HeadRule:
    return HeadRule(LinkedHead(weights(), link), threshold)


RULES: Mapping[str, MismatchRule] = {
    "strict": StrictRule(),
    "never": head(0.0, GOOD),
    "half, good": head(0.5, GOOD),
    "half, poor": head(0.5, POOR),
    "three quarters": head(0.75, POOR),
    "probable": ProbabilityRule(0.05),
    "first three": RankRule(3),
    "all": head(1.0, GOOD),
}
FLY: Mapping[str, MismatchRule] = {  # a tiny target hesitates everywhere: 1.0986 nats are three equal tokens
    f"{least} nats, {agreeing} agree": FlyRule(least, agreeing)
    for least, agreeing in ((0.0, 1), (0.0, 3), (0.62, 1), (9.0, 1))
}


@pytest.fixture(scope="module")
def models(folders: tuple[str, str]) -> LoadedPair:
    return load(folders)


@pytest.fixture(scope="module")
def asked(models: LoadedPair) -> list[EncodedTask]:
    return ask(models, tasks(models, 12), LIMIT)


def decoded(
    folders: tuple[str, str],
    asked: Sequence[EncodedTask],
    rules: Mapping[str, MismatchRule],
    batch: int,
    window: int = WINDOW,
) -> dict[str, list[Decoded]]:
    pair = paged(load(folders), batch, 3 + LIMIT + window)
    found = decode(pair, asked, rules, window_tokens=window, batch=batch, progress=False)
    for texts in (pair.target, pair.drafter):
        assert texts.free_blocks == texts.total_blocks
    return found


def passes(rule: MismatchRule, facts: RoundFacts) -> bool:
    """Of one mismatch; a head is asked as a verifier asks it."""
    if isinstance(rule, HeadRule):
        judge = DecisionHead(rule.linked.weights, rule.threshold)
        return judge.accepts([MismatchQuestion(facts.drafter_hidden, facts.target_hidden, rule.linked.link)])[0][0]
    return rule.accepts(facts)[0]


def one_by_one(
    models: LoadedPair, asked: EncodedTask, rule: MismatchRule, window: int
) -> tuple[list[int], AnswerCounts]:
    """A plain loop over whole forward passes."""
    start = list(asked.prompt_ids)
    text, counts = list(start), np.zeros(4, int)
    while len(text) - len(start) < LIMIT and text[-1] != EOS:
        draft: list[int] = []
        while len(draft) < min(window, LIMIT - (len(text) - len(start)) - 1) and EOS not in draft:
            draft.append(rows(models, "drafter", text + draft)[0][-1])
        choices, hidden = rows(models, "target", text + draft)
        _, drafters = rows(models, "drafter", text + draft)
        logits = models.target.model(input_ids=torch.tensor([text + draft]), use_cache=False).logits[0].double()
        committed: list[int] = []
        judged = overrides = 0
        for at, token_id in enumerate(draft):
            row = len(text) - 1 + at
            if token_id != choices[row]:
                probs = logits[row, : models.target.vocab_size].softmax(-1)
                later = [place for place in range(at, len(draft)) if draft[place] != choices[len(text) - 1 + place]]
                first = probs.topk(3).values
                entropies = np.full(len(later), float(-(first * first.log()).sum()))
                facts = RoundFacts(
                    draft, choices, later, drafters[row][None].numpy(), hidden[row][None].numpy(),
                    probs[token_id][None].numpy(), np.array([int((probs > probs[token_id]).sum())]), entropies,
                )  # fmt: skip
                judged += 1
                if not passes(rule, facts):
                    break
                overrides += 1
            committed.append(token_id)
        counts += np.array([1, len(committed), judged, overrides])
        committed.append(choices[len(text) - 1 + len(committed)])
        if EOS in committed:
            committed = committed[: committed.index(EOS) + 1]
        text += committed[: LIMIT - (len(text) - len(start))]
    return text[len(start) :], AnswerCounts(*counts.tolist())


@torch.inference_mode()
@pytest.mark.parametrize("name", RULES)
def test_each_rule_gives_what_it_gives_alone_token_by_token(
    folders: tuple[str, str], models: LoadedPair, asked: list[EncodedTask], name: str
) -> None:
    found = decoded(folders, asked, RULES, batch=16)[name]
    for one, own in zip(asked, found, strict=True):
        answer, counts = one_by_one(models, one, RULES[name], WINDOW)
        assert (list(own.answer_ids), own.counts) == (answer, counts)
        assert own.score == one.task.score(str(models.target.tokenizer.decode(answer, skip_special_tokens=True)))


@torch.inference_mode()
@pytest.mark.parametrize("name", FLY)
def test_fly_reads_what_follows_a_mismatch_in_its_block(
    folders: tuple[str, str], models: LoadedPair, asked: list[EncodedTask], name: str
) -> None:
    rules: dict[str, MismatchRule] = {"strict": StrictRule(), "half": head(0.5, GOOD), **FLY}
    found = decoded(folders, asked, rules, batch=16)
    for one, own in zip(asked, found[name], strict=True):
        assert (list(own.answer_ids), own.counts) == one_by_one(models, one, FLY[name], WINDOW)
    assert found["half"] == decoded(folders, asked, {"half": rules["half"]}, batch=16)["half"]
    assert (found[name] == found["strict"]) == (name == "9.0 nats, 1 agree")


def test_rejecting_all_is_the_targets_own_answer_and_rules_differ(
    folders: tuple[str, str], models: LoadedPair, asked: list[EncodedTask]
) -> None:
    found = decoded(folders, asked, RULES, batch=16)
    for one, strict, never in zip(asked, found["strict"], found["never"], strict=True):
        start = list(one.prompt_ids)
        assert list(strict.answer_ids) == greedy(models, start, len(start) + LIMIT)[len(start) :]
        assert strict == never
    assert len({tuple(one.answer_ids for one in own) for own in found.values()}) >= 5


@pytest.mark.parametrize("batch", [1, 2, 7])
def test_room_for_few_texts_changes_nothing(folders: tuple[str, str], asked: list[EncodedTask], batch: int) -> None:
    assert decoded(folders, asked[:5], RULES, batch) == decoded(folders, asked[:5], RULES, 16)


def test_a_hidden_state_that_the_link_rounds_is_what_the_head_sees(
    folders: tuple[str, str], asked: list[EncodedTask]
) -> None:
    pair = paged(load(folders), 16, 3 + LIMIT + WINDOW)
    rules = {"half": head(0.5, GOOD)}
    found = decode(
        pair, asked, rules, window_tokens=WINDOW, batch=16, rounding=lambda hidden: hidden * 0 + 1e3, progress=False
    )
    assert found != decoded(folders, asked, rules, 16)

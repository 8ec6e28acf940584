"""What users say in conversations of several turns, of which some begin with the same system prompt. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lab.bench.harness.mix import USUAL_SHARES, mixed
from lab.bench.harness.prompts import document


@dataclass(frozen=True, slots=True)
class Conversation:
    """``questions`` are asked one after the other, each behind the answer to the one before."""

    system: str
    questions: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Traffic:
    """What all users have in common."""

    turns: int  # of a conversation
    systems: int  # different system prompts, of which a conversation has any
    system_words: int


def conversations(traffic: Traffic, users: int, each: int, session: tuple[int, ...]) -> list[list[Conversation]]:
    """By user, who has so many conversations, one after the other.

    Args:
        traffic: what they are like.
        users: how many.
        each: conversations of one user.
        session: the seed; it begins every conversation, so that no two sessions have a prefix in common.
    """
    rng = np.random.default_rng(session)
    told = ".".join(map(str, session))
    systems = [f"{told}.{number}: {document(rng, traffic.system_words)}" for number in range(traffic.systems)]
    asked = mixed(users * each * traffic.turns, USUAL_SHARES)
    questions = iter([asked[place].text for place in rng.permutation(len(asked))])

    def one() -> Conversation:
        return Conversation(systems[rng.integers(len(systems))], tuple(next(questions) for _ in range(traffic.turns)))

    return [[one() for _ in range(each)] for _ in range(users)]


def messages_of(conversation: Conversation, answers: Sequence[str]) -> list[dict[str, str]]:
    """What is sent for the question behind so many answers: the whole conversation so far."""
    found = [{"role": "system", "content": conversation.system}]
    for question, answer in zip(conversation.questions, answers, strict=False):
        found += [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]
    return [*found, {"role": "user", "content": conversation.questions[len(answers)]}]

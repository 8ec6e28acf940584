"""Conversations of several turns, some of which start with the same system prompt. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lab.bench.harness.mix import USUAL_SHARES, mixed
from lab.bench.harness.prompts import document


@dataclass(frozen=True, slots=True)
class Conversation:
    """``questions`` are sent one after the other, each behind the answer to the one before."""

    system: str
    questions: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Traffic:
    """Properties common to all users."""

    turns: int  # of a conversation
    systems: int  # number of system prompts; each conversation has one of them
    system_words: int


def conversations(traffic: Traffic, users: int, each: int, session: tuple[int, ...]) -> list[list[Conversation]]:
    """Conversations by user, each user's one after the other.

    Args:
        traffic: common properties.
        users: number of users.
        each: conversations of one user.
        session: the seed; it begins every conversation, so that no two sessions have a common prefix.
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
    """The messages of the next question: the whole conversation so far."""
    found = [{"role": "system", "content": conversation.system}]
    for question, answer in zip(conversation.questions, answers, strict=False):
        found += [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]
    return [*found, {"role": "user", "content": conversation.questions[len(answers)]}]

from itertools import chain

from lab.bench.harness.mix import USUAL_SHARES, mixed
from lab.bench.routing.conversations import Traffic, conversations, messages_of

TRAFFIC = Traffic(turns=3, systems=4, system_words=20)


def test_what_is_said_follows_from_the_session_and_no_two_have_a_beginning_in_common() -> None:
    first = conversations(TRAFFIC, 5, 2, (0, 5, 0))
    assert first == conversations(TRAFFIC, 5, 2, (0, 5, 0))
    assert [len(mine) for mine in first] == [2] * 5
    told = [
        {one.system for mine in conversations(TRAFFIC, 5, 2, session) for one in mine}
        for session in ((0, 5, 0), (0, 5, 1), (1, 5, 0))
    ]
    assert all(1 < len(systems) <= TRAFFIC.systems for systems in told), "ten conversations share four beginnings"
    beginnings = [{system.split(":")[0] for system in systems} for systems in told]
    assert len(set().union(*beginnings)) == sum(map(len, beginnings))


def test_questions_are_the_mix_in_another_order() -> None:
    planned = list(chain(*conversations(TRAFFIC, 4, 3, (7,))))
    asked = [question for one in planned for question in one.questions]
    assert len(asked) == 4 * 3 * TRAFFIC.turns
    usual = [prompt.text for prompt in mixed(len(asked), USUAL_SHARES)]
    assert sorted(asked) == sorted(usual)
    assert asked != usual


def test_a_turn_sends_all_that_was_said_before() -> None:
    ((one,),) = conversations(TRAFFIC, 1, 1, (0,))
    first, second, third = one.questions
    assert messages_of(one, []) == [
        {"role": "system", "content": one.system},
        {"role": "user", "content": first},
    ]
    assert [each["content"] for each in messages_of(one, ["a", "b"])] == [one.system, first, "a", second, "b", third]
    assert [each["role"] for each in messages_of(one, ["a"])] == ["system", "user", "assistant", "user"]

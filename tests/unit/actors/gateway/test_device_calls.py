"""What waits for a device is answered once, however long the device is away."""

import random
from collections.abc import Callable
from functools import partial

from hypothesis import given
from hypothesis import strategies as st

from actors.gateway.device_calls import MOST_WAITING, STALE_S, DeviceCalls
from actors.gateway_link import RelayOutcome
from outrider.wire.dialling import FromGateway, NumberedCall, NumberedReply


def test_calls_that_nobody_waits_for_any_more_are_answered_all_the_same() -> None:
    calls, outcomes, sent = DeviceCalls(1), list[RelayOutcome](), list[FromGateway]()

    def answer(outcome: RelayOutcome, _: bytes) -> None:
        outcomes.append(outcome)

    calls.ask(b"while it is away", 1, answer, 0.0)
    calls.ask(b"later", 1, answer, STALE_S)
    calls.connect(sent.append, STALE_S + 1.0)
    assert outcomes == [RelayOutcome.BUSY]
    assert len(sent) == 1
    calls.end()
    assert outcomes == [RelayOutcome.BUSY, RelayOutcome.ELSEWHERE]


class Device:
    """Has calls by number, and forgets them with its connection."""

    def __init__(self) -> None:
        self.calls, self.now_s = DeviceCalls(1), 0.0
        self.here = dict[int, bytes]()
        self.asked, self.answers = 0, dict[bytes, bytes | RelayOutcome]()

    def heard(self, message: FromGateway) -> None:
        assert isinstance(message, NumberedCall)
        assert message.number not in self.here, "a number means one call at a time"
        self.here[message.number] = message.call

    def answered(self, call: bytes, outcome: RelayOutcome, reply: bytes) -> None:
        assert call not in self.answers, "once"
        self.answers[call] = reply if outcome is RelayOutcome.REPLIED else outcome

    def ask(self, count: int) -> None:
        for _ in range(count):
            call, self.asked = b"%d" % self.asked, self.asked + 1
            self.calls.ask(call, 100, partial(self.answered, call), self.now_s)

    def leave(self) -> None:
        self.here.clear()
        self.calls.disconnect()

    def connect(self) -> None:
        self.leave()
        self.calls.connect(self.heard, self.now_s)

    def wait(self) -> None:
        self.now_s += STALE_S * 0.6

    def reply(self, rng: random.Random) -> None:
        for number in rng.sample(sorted(self.here), (len(self.here) + 1) // 2):
            self.calls.replied(NumberedReply(number, self.here.pop(number)))


STEPS = ("ask", "ask many", "reply", "leave", "connect", "wait")


@given(st.lists(st.sampled_from(STEPS), max_size=60), st.randoms())
def test_each_call_gets_its_own_reply_however_numbers_come_again(steps: list[str], rng: random.Random) -> None:
    device = Device()
    device.connect()
    does: dict[str, Callable[[], None]] = {
        "ask": partial(device.ask, 1),
        "ask many": partial(device.ask, 150),
        "reply": partial(device.reply, rng),
        "leave": device.leave,
        "connect": device.connect,
        "wait": device.wait,
    }
    for step in steps:
        does[step]()
        assert len(device.here) <= MOST_WAITING
    device.calls.end()
    assert len(device.answers) == device.asked
    lost = (RelayOutcome.BUSY, RelayOutcome.ELSEWHERE)
    assert all(reply in (call, *lost) for call, reply in device.answers.items())

"""What waits for a device is answered once, however long the device is away."""

from actors.gateway.device_calls import STALE_S, DeviceCalls
from actors.gateway_link import RelayOutcome
from outrider.wire.dialling import FromGateway


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

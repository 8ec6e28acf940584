"""A detached actor ends when nobody asks it for anything any more, and not before."""

from actors.abandoned import end_when_abandoned


class Clock:
    """Moves while somebody waits."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s

    def wait(self, seconds: float) -> None:
        self.now_s += seconds


def test_it_ends_once_and_only_when_it_has_been_silent_for_long() -> None:
    clock, ends = Clock(), list[float]()

    def heard_at_s() -> float:
        return min(clock(), 150.0)  # asked all the time until then

    end_when_abandoned(heard_at_s, lambda: ends.append(clock()), 60.0, clock, clock.wait).join(timeout=60)
    assert len(ends) == 1
    assert 210.0 < ends[0] <= 212.0


def test_what_fails_to_end_is_tried_again() -> None:
    clock, tries = Clock(), list[float]()

    def end() -> None:
        tries.append(clock())
        if len(tries) < 3:
            raise ConnectionError("the head is away")

    end_when_abandoned(lambda: 100.0, end, 60.0, clock, clock.wait).join(timeout=60)
    assert len(tries) == 3

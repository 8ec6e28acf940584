"""What the fleet tells coordinators of one another: changes, in pages, and everything to who knows nothing."""

from hypothesis import given
from hypothesis import strategies as st

from actors.fleet.coordinators import Coordinators
from actors.heartbeats import CoordinatorState, Heartbeat, NewsMark

TTL_S = 10.0
NAMES = [f"c{number}" for number in range(6)]


def beat(name: str, verifier: str = "ready", session: int = 1) -> Heartbeat:
    return Heartbeat(CoordinatorState(name, verifier, ""), b"", session, 1, {})


class Reader:
    """Somebody who is told."""

    def __init__(self) -> None:
        self.known: dict[str, CoordinatorState] = {}
        self.mark: NewsMark | None = None
        self.pages = self.begun = 0

    def read(self, coordinators: Coordinators) -> None:
        """One answer's worth."""
        told = coordinators.news(self.mark)
        self.begun += told.anew
        self.pages += 1
        if told.anew:
            self.known = {}
        self.known |= {state.id: state for state in told.changed}
        for name in told.gone:
            self.known.pop(name, None)
        self.mark = told.mark

    def read_all(self, coordinators: Coordinators) -> None:
        """Until nothing is new."""
        before: object = "nothing"
        while self.mark != before:
            before = self.mark
            self.read(coordinators)


def test_many_are_told_in_pages_and_each_change_once() -> None:
    coordinators, reader = Coordinators(TTL_S, 7), Reader()
    for number in range(1000):
        coordinators.hear(beat(f"c{number}"), 0.0)
    reader.read_all(coordinators)
    assert (len(reader.known), reader.pages, reader.begun) == (1000, 9, 1)
    coordinators.hear(beat("c500", "restarting"), 0.0)
    told = coordinators.news(reader.mark)
    assert (told.changed, told.gone) == ((CoordinatorState("c500", "restarting", ""),), ())


def test_who_reads_while_many_come_and_go_does_not_begin_again_and_again() -> None:
    coordinators, reader = Coordinators(TTL_S, 7), Reader()
    for number in range(2000):
        coordinators.hear(beat(f"passing{number}"), float(number))
        coordinators.hear(beat("stays"), float(number))
        coordinators.forget_silent(float(number))
        if number % 20 == 0:
            reader.read(coordinators)
    reader.read_all(coordinators)
    assert len(reader.known) == len(coordinators) == 11
    assert reader.begun == 1
    late = Reader()
    late.read_all(coordinators)
    assert (late.known, late.pages <= 4) == (reader.known, True), "of those who went long ago nothing is kept"


STEPS = st.one_of(
    st.tuples(st.just("beat"), st.sampled_from(NAMES), st.sampled_from(["ready", "restarting"])),
    st.tuples(st.just("read"), st.integers(0, 2), st.none()),
    st.tuples(st.just("wait"), st.sampled_from([1.0, 4.0, 11.0]), st.none()),
    st.tuples(st.just("crowd"), st.integers(1, 120), st.none()),
)


@given(steps=st.lists(STEPS, max_size=60))
def test_whenever_somebody_reads_it_ends_up_with_how_things_stand(steps: list[tuple[str, str | float, str]]) -> None:
    coordinators, readers, now_s, crowds = Coordinators(TTL_S, 7), [Reader() for _ in range(3)], 0.0, 0
    alive: dict[str, tuple[float, CoordinatorState]] = {}
    for what, which, verifier in steps:
        if what == "beat":
            heartbeat = beat(str(which), verifier)
            coordinators.hear(heartbeat, now_s)
            alive[str(which)] = now_s, heartbeat.state
        elif what == "read":
            readers[int(which)].read(coordinators)
        elif what == "wait":
            now_s += float(which)
        else:
            for _ in range(int(which)):  # each is another one
                crowds += 1
                coordinators.hear(beat(f"one of many {crowds}"), now_s)
                alive[f"one of many {crowds}"] = now_s, CoordinatorState(f"one of many {crowds}", "ready", "")
        coordinators.forget_silent(now_s)
        alive = {name: told for name, told in alive.items() if now_s - told[0] < TTL_S}
    for reader in (*readers, Reader()):
        reader.read_all(coordinators)
        assert reader.known == {name: state for name, (_, state) in alive.items()}


def test_another_process_of_the_same_name_has_to_tell_everything() -> None:
    coordinators = Coordinators(TTL_S, 7)
    assert coordinators.hear(beat("c"), 0.0) is not None
    changes = Heartbeat(CoordinatorState("c", "ready", ""), b"", 2, 5, {}, since=4)
    assert coordinators.hear(changes, 0.0) is None

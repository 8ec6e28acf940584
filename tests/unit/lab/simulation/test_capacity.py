import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.simulation.capacity import capacity


class Counting:
    """A system that holds up to ``knee`` devices; ``dents`` say no below it, ``bumps`` yes beyond."""

    def __init__(self, knee: int, dents: set[int], bumps: set[int]) -> None:
        self.knee, self.dents, self.bumps = knee, dents, bumps
        self.asked: list[int] = []

    def __call__(self, devices: int) -> float:
        self.asked.append(devices)
        return 0.0 if (devices <= self.knee and devices not in self.dents) or devices in self.bumps else 1.0


@given(st.integers(0, 700), st.integers(1, 800), st.integers(1, 700))
def test_finds_the_knee_from_any_guess(knee: int, guess: int, most: int) -> None:
    system = Counting(knee, set(), set())
    found = capacity(system, 0.05, most, guess)
    assert found.devices == min(knee, most)
    assert found.bounded == (knee >= most)
    assert len(system.asked) == len(set(system.asked)), "no run is made twice"
    assert [devices for devices, _ in found.tried] == sorted(system.asked)


def test_a_good_guess_needs_few_runs() -> None:
    near, far = Counting(100, set(), set()), Counting(100, set(), set())
    capacity(near, 0.05, 1024, 97)
    capacity(far, 0.05, 1024, 3)
    assert len(near.asked) < len(far.asked) <= 20


def test_a_dent_below_the_knee_does_not_end_the_search() -> None:
    assert capacity(Counting(100, {96, 97}, set()), 0.05, 1024, 96).devices == 100


def test_a_bump_far_beyond_the_knee_is_not_looked_for() -> None:
    assert capacity(Counting(100, set(), {150}), 0.05, 1024, 90).devices == 100


@pytest.mark.parametrize("eps", [0.0, 0.1])
def test_the_limit_itself_keeps_the_promise(eps: float) -> None:
    assert capacity(lambda devices: eps if devices <= 7 else 1.0, eps, 50).devices == 7


@given(st.integers(20, 400), st.integers(1, 500))
def test_a_coarse_search_is_not_far_off_and_never_above(knee: int, guess: int) -> None:
    found = capacity(Counting(knee, set(), set()), 0.05, 500, guess, resolution=0.05)
    assert knee / 1.05 - 1 <= found.devices <= knee


def test_looking_beyond_finds_more_and_costs_some_runs() -> None:
    wide, near = Counting(200, set(), {206, 208}), Counting(200, set(), {206, 208})
    assert capacity(wide, 0.05, 1024, 198).devices == 208
    assert capacity(near, 0.05, 1024, 198, look_beyond=False).devices == 200
    assert len(near.asked) < len(wide.asked)

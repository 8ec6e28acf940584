"""What a tuner leaves to the next one: what that does with it, and what its file may be."""

import json
import random
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.contracts.errors import ParameterError
from outrider.selection.modes import DRAFT, LOOKUP, NONE
from outrider.selection.tuning.learned import MAX_LEARNED_BYTES, LearnedChoice, learned_key, parsed, written
from outrider.selection.tuning.rewards import Reward
from outrider.selection.tuning.speculation_tuner import SpeculationTuner
from tests.unit.selection.simulated_verifier import Speed, World, constant

KEY = learned_key("target", "drafter", "torch")
FIRST_S = 30.0  # of a start


def served(speed: Speed, load: int, seconds: float, learned: LearnedChoice | None = None) -> World:
    """A verifier under that load, whose tuner begins with what was learned, by way of its file."""
    world = World(speed)
    world.tuner = SpeculationTuner((NONE, DRAFT), 0.0, learned and parsed(written(learned, KEY), KEY))
    world.load(load)
    return world.until(seconds)


@pytest.mark.parametrize("load", [1, 4, 16])
@pytest.mark.parametrize("ratio", [0.4, 0.8, 0.95])
def test_a_restart_does_not_try_again_what_lost(ratio: float, load: int) -> None:
    before = served(constant(ratio), load, 60.0)
    assert dict(before.tuner.report(60.0).probes)["draft"] >= 1
    after = served(constant(ratio), load, FIRST_S, before.tuner.learned())
    assert after.share(NONE, 0.0) == 1.0
    assert dict(after.tuner.report(FIRST_S).probes)["draft"] == 0


@pytest.mark.parametrize("load", [1, 4, 16])
def test_a_restart_begins_with_what_won(load: int) -> None:
    before = served(constant(1.4), load, 60.0)
    after = served(constant(1.4), load, FIRST_S, before.tuner.learned())
    assert after.share(DRAFT, 1.0) == 1.0
    always = World(constant(1.4), arms_to_choose=(DRAFT,))
    always.load(load)
    assert after.rate(0.0, FIRST_S) > 0.97 * always.until(FIRST_S).rate(0.0, FIRST_S)


def test_a_machine_of_another_speed_changes_nothing() -> None:
    before = served(constant(0.8), 4, 60.0)
    after = served(lambda *now: 0.4 * constant(0.8)(*now), 4, FIRST_S, before.tuner.learned())
    assert after.share(NONE, 0.0) == 1.0


@pytest.mark.parametrize(("then", "now"), [(0.7, 1.4), (1.4, 0.7)])
def test_what_was_learned_on_other_prompts_is_found_wrong(then: float, now: float) -> None:
    before = served(constant(then), 4, 60.0)
    after = served(constant(now), 4, 180.0, before.tuner.learned())
    assert after.tuner.report(180.0).kept == ("draft" if now > 1.0 else "none")
    assert after.rate(60.0, 180.0) > 0.93 * 4 * max(after.speed(mode, 4, 0.0) for mode in (NONE, DRAFT))


def test_starts_one_after_another_keep_what_was_measured_at_other_loads() -> None:
    """Each in its own scale: a mode's rewards of earlier starts are told as if measured at today's speed."""
    learned = served(constant(0.8), 4, 60.0).tuner.learned()
    faster = served(lambda *now: 3.0 * constant(0.8)(*now), 4, FIRST_S, learned).tuner.learned()
    assert {one.load for one in faster.rewards["draft"]} == {one.load for one in learned.rewards["draft"]}
    first, second = (
        one.rewards["draft"][-1].tokens_per_s / one.rewards["none"][-1].tokens_per_s for one in (learned, faster)
    )
    assert second == pytest.approx(first, rel=0.01)
    assert served(constant(0.8), 4, FIRST_S, faster).share(NONE, 0.0) == 1.0


def test_modes_that_there_are_no_more_are_passed_over() -> None:
    learned = served(constant(1.4), 4, 60.0).tuner.learned()
    tuner = SpeculationTuner((LOOKUP, NONE), 0.0, learned)
    assert tuner.mode is LOOKUP
    assert [name for name, _ in tuner.report(0.0).rewards] == ["lookup", "none"]


_WHOLE = LearnedChoice(
    "draft", {"none": (Reward(4.0, 20.0, 3.0, 0.01),), "draft": (Reward(4.1, 25.0, 2.0, 0.02),)}, {"none": 40.0}
)


@given(
    st.dictionaries(
        st.sampled_from(["none", "lookup", "draft"]),
        st.lists(
            st.builds(Reward, *(st.floats(0.5, 100.0),) * 2, st.floats(0.1, 8.0), st.floats(1e-4, 1.0)), max_size=64
        ),
    ),
    st.dictionaries(st.sampled_from(["none", "draft"]), st.floats(0.0, 300.0)),
)
def test_what_is_written_is_read(rewards: dict[str, list[Reward]], pauses_s: dict[str, float]) -> None:
    learned = LearnedChoice("none", {mode: tuple(cells) for mode, cells in rewards.items()}, pauses_s)
    text = written(learned, KEY)
    assert parsed(text, KEY) == learned
    assert len(text) < MAX_LEARNED_BYTES


def changed(**fields: object) -> str:
    return json.dumps({**json.loads(written(_WHOLE, KEY)), **fields})


@pytest.mark.parametrize(
    "text",
    [
        "",
        "null",
        "[" * 30_000,
        "\0",
        written(_WHOLE, KEY)[:-20],
        written(_WHOLE, "another key"),
        changed(version=2),
        changed(more=1),
        changed(kept=["draft"]),
        changed(kept="x" * 1000),
        changed(rewards={"none": [[4.0, 20.0, 3.0]]}),
        changed(rewards={"none": [[4.0, 0.0, 3.0, 0.01]]}),
        changed(rewards={"none": [[4.0, float("nan"), 3.0, 0.01]]}),
        changed(rewards={"none": [[-1.0, 20.0, 3.0, 0.01]]}),
        changed(rewards={"none": [[1e400, 20.0, 3.0, 0.01]]}),
        changed(rewards={"none": [[4.0, 20.0, 3.0, 0.01]] * 65}),
        changed(rewards={f"mode{number}": [] for number in range(9)}),
        changed(pauses_s={"none": 1e9}),
        changed(pauses_s={"none": -1.0}),
    ],
)
def test_anything_else_is_refused_with_a_short_reason(text: str) -> None:
    with pytest.raises(ParameterError) as refused:
        parsed(text, KEY)
    assert len(str(refused.value)) < 500


def test_mutated_files_are_refused_or_harmless() -> None:
    """A tuner that begins with what is left of one works."""
    whole, rng = written(_WHOLE, KEY).encode(), random.Random(1)
    read = 0
    for _ in range(600):
        mutated = bytearray(whole)
        for _ in range(rng.randint(1, 3)):
            mutated[rng.randrange(len(mutated))] = rng.randrange(32, 127)
        try:
            learned = parsed(mutated.decode(), KEY)
        except ParameterError:
            continue
        read += 1
        world = World(constant(0.8))
        world.tuner = SpeculationTuner((NONE, DRAFT), 0.0, learned)
        world.load(4)
        world.until(1.0)
    assert read > 3, "digits may be others"


def test_a_key_is_of_all_its_parts() -> None:
    keys = {learned_key(*parts) for parts in (("a", "b"), ("a", "c"), ("ab",), ("a", "b", None))}
    assert len(keys) == 4
    assert all(Path(key).name == key for key in keys)


def test_later_promises_are_no_matter_of_the_next_start() -> None:
    tuner = SpeculationTuner((NONE,), 0.0, replace(_WHOLE, kept="none"))
    assert all(one.late is None for cells in tuner.learned().rewards.values() for one in cells)

"""Who costs a verifier its process is found; whoever was only there is not."""

from hypothesis import given
from hypothesis import strategies as st

from outrider.scheduling.crash_suspects import CrashSuspects

NAMES = "abcdefgh"


@given(st.sets(st.sampled_from(NAMES), min_size=1), st.data())
def test_the_one_that_kills_is_found_and_nobody_else(present: set[str], data: st.DataObject) -> None:
    """As a batcher does it: suspects alone, one after the other, in any order; all others together."""
    killer = data.draw(st.sampled_from(sorted(present)))
    says = data.draw(st.booleans())
    suspects, guilty, losses = CrashSuspects(), None, 0
    while guilty is None:
        waiting = set(present)
        while guilty is None and waiting:
            suspected = sorted(name for name in waiting if name in suspects.names)
            within = {data.draw(st.sampled_from(suspected))} if suspected else set(waiting)
            if killer in within:
                losses += 1
                suspects, guilty = suspects.lost(within, within if says else ())
                break
            waiting -= within
            for name in within:
                suspects = suspects.decided(name)
    assert guilty == killer
    assert losses <= (3 if says else 6)
    assert killer not in suspects.names


def test_machines_fail_and_nobody_is_suspected_for_one_loss_in_silence() -> None:
    suspects, guilty = CrashSuspects().lost("abc")
    assert (list(suspects.names), guilty) == ([], None)
    for name in "abc":
        suspects = suspects.decided(name)
    suspects, guilty = suspects.lost("ab")
    assert (list(suspects.names), guilty) == ([], None)
    suspects, guilty = suspects.lost("bc")
    assert (list(suspects.names), guilty) == (["b"], None), "it was there both times, and nothing of it was decided"


def test_a_verifier_that_fails_at_everybody_convicts_one_at_most() -> None:
    suspects, convicted = CrashSuspects(), []
    for _ in range(20):
        for name in "abcd":
            suspects, guilty = suspects.lost(name, name)
            convicted += [guilty] if guilty else []
    assert len(convicted) == 1
    suspects = suspects.decided("e")
    suspects, guilty = suspects.lost("b", "b")
    assert guilty == "b", "since then somebody was served"


@given(st.lists(st.tuples(st.sampled_from(["lost", "decided", "over"]), st.sets(st.sampled_from(NAMES), min_size=1))))
def test_nothing_is_kept_of_those_that_are_over(events: list[tuple[str, set[str]]]) -> None:
    suspects = CrashSuspects()
    for what, names in events:
        if what == "lost":
            suspects, _ = suspects.lost(names)
        for name in names if what != "lost" else ():
            suspects = suspects.decided(name) if what == "decided" else suspects.over(name)
            assert name not in suspects.names
            assert name not in suspects.losses
    for name in NAMES:
        suspects = suspects.over(name)
    assert (suspects.losses, suspects.losses_alone) == ({}, {})

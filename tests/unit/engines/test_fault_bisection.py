"""Whoever is to blame is found, alone and twice; whoever is not is served once."""

from math import ceil, log2

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.contracts.errors import VerifierLostError
from outrider.engines.fault_bisection import (
    MOST_FAILURES,
    ConsecutiveFailures,
    FaultBisection,
    FaultKind,
    PassBound,
    fault_kind,
)

STEPS = st.integers(1, 40).flatmap(
    lambda members: st.tuples(st.just(members), st.sets(st.integers(0, members - 1), max_size=4))
)


class OutOfMemoryError(RuntimeError):
    """By this name torch raises one."""


class AcceleratorError(RuntimeError):
    """Likewise."""


def tried(attempts: FaultBisection, fails: set[int]) -> tuple[FaultBisection, list[tuple[tuple[int, ...], bool]]]:
    """Passes as they were made, until nothing is left: one with any of these in it goes wrong."""
    passes: list[tuple[tuple[int, ...], bool]] = []
    while (group := attempts.next) is not None:
        went = not fails & set(group)
        passes.append((group, went))
        attempts = attempts.went() if went else attempts.failed(FaultKind.PASS)
    return attempts, passes


@given(STEPS)
def test_the_guilty_fail_alone_twice_and_all_others_are_served_once(step: tuple[int, set[int]]) -> None:
    members, culprits = step
    attempts, passes = tried(FaultBisection.of(members, PassBound()), culprits)
    assert set(attempts.culprits) == culprits
    assert len(attempts.culprits) == len(culprits)
    served = [member for group, went in passes if went for member in group]
    assert sorted(served) == sorted(set(range(members)) - culprits)
    assert attempts.served == len(served)
    for member in culprits:
        assert [group for group, went in passes if group == (member,) and not went] == [(member,)] * 2
    levels = ceil(log2(members)) + 1 if members > 1 else 1
    assert len(passes) <= 1 + len(culprits) * (2 * levels + 1)


@given(STEPS, st.integers(1, 40))
def test_no_pass_is_larger_than_the_bound(step: tuple[int, set[int]], most: int) -> None:
    members, culprits = step
    attempts, passes = tried(FaultBisection.of(members, PassBound(most)), culprits)
    assert max(len(group) for group, _ in passes) <= most
    assert set(attempts.culprits) == culprits


@given(STEPS)
def test_one_that_failed_once_and_not_again_is_served(step: tuple[int, set[int]]) -> None:
    members, once = step
    attempts, left = FaultBisection.of(members, PassBound()), set(once)
    while (group := attempts.next) is not None:
        failing = left & set(group)
        attempts = attempts.failed(FaultKind.PASS) if failing else attempts.went()
        if len(group) == 1:
            left -= failing
    assert attempts.culprits == ()
    assert attempts.served == members


@given(st.integers(1, 64), st.integers(1, 64))
def test_memory_that_is_short_shrinks_passes_and_they_grow_again(members: int, fits: int) -> None:
    """Passes of so many fit: all are served, the bound stays below twice that, and all are tried again in the end."""
    bound = PassBound()
    for _ in range(200):
        attempts = FaultBisection.of(members, bound)
        while (group := attempts.next) is not None:
            attempts = attempts.went() if len(group) <= fits else attempts.failed(FaultKind.MEMORY)
        assert attempts.culprits == ()
        assert attempts.served == members
        bound = attempts.bound
        assert (bound.most is None) == (members <= fits)
        assert bound.most is None or bound.most <= 2 * fits
    sizes = set[int]()
    for _ in range(10_000):
        sizes.add(bound.most or members)
        bound = bound.after_pass(bound.most or members)
    assert max(sizes) >= members, "what was taken away comes back"


def test_what_an_exception_stands_for() -> None:
    kinds: dict[FaultKind, list[Exception]] = {
        FaultKind.PASS: [ValueError("nan"), RuntimeError("shapes do not match"), AssertionError()],
        FaultKind.MEMORY: [
            MemoryError(),
            OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB"),
            RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory"),
            AcceleratorError("CUDA error: out of memory"),
        ],
        FaultKind.DEVICE: [
            AcceleratorError("unspecified launch failure"),
            RuntimeError("CUDA error: an illegal memory access was encountered"),
            RuntimeError("CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling cublasGemmEx"),
        ],
        FaultKind.LOST: [VerifierLostError("a worker died; CUDA error")],
    }
    for kind, errors in kinds.items():
        assert {fault_kind(error) for error in errors} == {kind}


@pytest.mark.parametrize("served", [0, 1])
def test_several_that_fail_alone_in_a_row_speak_against_the_engine(served: int) -> None:
    witnesses = ConsecutiveFailures()
    for name in "abc"[: MOST_FAILURES + 1]:
        assert not witnesses.against_engine
        witnesses = witnesses.after(frozenset({name}), served)
    assert witnesses.against_engine == (served == 0)
    again = ConsecutiveFailures()
    for _ in range(9):
        again = again.after(frozenset({"a"}), 0)
    assert not again.against_engine, "one is one, however often"

"""Real processes that validate: what is hostile ends at its bounds, and harms neither the pool nor other accounts."""

import asyncio
import errno
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, wait
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from outrider.contracts.errors import NotAdmittedError
from outrider.grammar.validating import GrammarKind, GrammarSource, GrammarVerdict, validate
from serve_app.api.grammars.pool import MAX_WAITING, PROCESSES, SPARES, GrammarPool
from serve_app.api.grammars.process import Lost, ValidatorProcess
from tests.hostile.measures import cpu_s
from tests.unit.grammar.hostile import ENDLESS

GOOD = GrammarSource(GrammarKind.JSON_SCHEMA, '{"type": "object"}')
LONG_S = 60.0  # of a test: nothing may take that
_COMPILES_S = 0.05  # of processor time, which no process uses that waits for a grammar
HUNGRY = GrammarSource(GrammarKind.REGEX, r"\p{Alphabetic}" * 30_000)  # 190 MiB
OWNER = """
from outrider.grammar.validating import GrammarKind, GrammarSource
from serve_app.api.grammars.pool import GrammarPool
from tests.unit.grammar.hostile import ENDLESS

pool = GrammarPool()
pool.submit(GrammarSource(GrammarKind.REGEX, "a"), 60.0, "a").result(60.0)
future = pool.submit(GrammarSource(GrammarKind.RULES, ENDLESS), 2.0, "a")
print(*pool.pids, flush=True)
future.result(60.0)
"""


def endless(number: int = 0) -> GrammarSource:
    return GrammarSource(GrammarKind.RULES, f"// {number}\n{ENDLESS}")


@pytest.fixture(scope="module")
def shared() -> Iterator[GrammarPool]:
    pool = GrammarPool()
    yield pool
    pool.close()


@pytest.fixture
def pool() -> Iterator[GrammarPool]:
    own = GrammarPool()
    yield own
    own.close()


@pytest.fixture
def process() -> Iterator[ValidatorProcess]:
    own = ValidatorProcess()
    own.wait_until_warm()
    yield own
    own.close()


def verdict_of(future: "Future[GrammarVerdict]") -> GrammarVerdict:
    return future.result(LONG_S)


def warm(pool: GrammarPool) -> None:
    assert verdict_of(pool.submit(GOOD, LONG_S, "warm")).is_valid


def test_a_grammar_is_validated_and_remembered_for_its_account(pool: GrammarPool) -> None:
    first = verdict_of(pool.submit(GOOD, LONG_S, "a"))
    assert first.is_valid
    assert "json_schema" in first.text
    again = pool.submit(GOOD, LONG_S, "a")
    assert again.done()
    assert verdict_of(again) is first
    assert not pool.submit(GOOD, LONG_S, "b").done()
    assert not verdict_of(pool.submit(GrammarSource(GrammarKind.REGEX, "(a"), LONG_S, "a")).is_valid


def test_time_is_the_processors_own(process: ValidatorProcess) -> None:
    """Another program that has the processor is no fault of the grammar; one that never gives it back is waited for."""
    os.kill(process.pid, signal.SIGSTOP)
    goes_on = threading.Timer(2.5, os.kill, (process.pid, signal.SIGCONT))
    goes_on.start()
    assert isinstance(process.validate(GOOD, 2.0), GrammarVerdict)
    goes_on.join()
    os.kill(process.pid, signal.SIGSTOP)
    assert process.validate(GOOD, 0.2) is Lost.DEADLINE


def test_a_process_that_used_up_its_time_ends_by_itself(process: ValidatorProcess) -> None:
    assert process.validate(endless(), 0.2) is Lost.DEADLINE
    with suppress(ChildProcessError):  # waited for already
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert process.validate(GOOD, LONG_S) is Lost.GONE


def test_one_thread_of_a_process_validates_all_its_grammars(process: ValidatorProcess) -> None:
    """A thread for each leaves an arena behind where others take the processor, and ends a process that is well."""

    def threads() -> set[str]:
        return {each.name for each in Path(f"/proc/{process.pid}/task").iterdir()}

    before = threads()
    assert before - {str(process.pid)}, "one with a small stack, besides the first"
    for _ in range(3):
        assert isinstance(process.validate(GOOD, LONG_S), GrammarVerdict)
    assert threads() == before


def test_a_process_that_passes_its_deadline_is_killed_and_replaced(pool: GrammarPool) -> None:
    warm(pool)
    before = set(pool.pids)
    verdict = verdict_of(pool.submit(endless(), 0.2, "a"))
    assert "within 200 ms" in verdict.needed
    wait_until_whole(pool)
    after = set(pool.pids)
    killed = before - after  # one, or two where a busy machine had the first time out as well
    assert killed
    assert not any(Path(f"/proc/{pid}").exists() for pid in killed)
    assert verdict_of(pool.submit(GrammarSource(GrammarKind.REGEX, "b"), LONG_S, "a")).is_valid


def test_a_process_that_takes_too_much_memory_ends_alone() -> None:
    process = ValidatorProcess(memory_bytes=64 * 2**20)
    try:
        process.wait_until_warm()
        assert process.validate(GOOD, LONG_S) == validate(GOOD)
        assert process.validate(HUNGRY, LONG_S) is Lost.CRASHED
        assert process.validate(GOOD, LONG_S) is Lost.GONE
    finally:
        process.close()


def test_rules_that_refer_to_each_other_too_deeply_end_no_verifier(pool: GrammarPool) -> None:
    """The library descends by recursion: what it can on the stack here it can on a verifier's, which is larger."""
    warm(pool)
    chains = {
        depth: "root ::= r0\n" + "\n".join(f"r{i} ::= r{i + 1}" for i in range(depth)) + f'\nr{depth} ::= "a"'
        for depth in (500, 3000)
    }
    short, long = (
        verdict_of(pool.submit(GrammarSource(GrammarKind.RULES, chains[depth]), LONG_S, "a")) for depth in chains
    )
    assert short.is_valid
    assert "within its memory" in long.needed
    wait_until_whole(pool)


def test_a_crash_is_the_grammars_fault_and_a_kill_is_not(pool: GrammarPool) -> None:
    warm(pool)
    for number, needed in ((signal.SIGSEGV, "within its memory"), (signal.SIGABRT, "within its memory")):
        before = set(pool.pids)
        future = pool.submit(endless(number), LONG_S, "a")
        os.kill(busy_one(pool), number)
        assert needed in verdict_of(future).needed
        wait_until_whole(pool)
        assert len(before - set(pool.pids)) == 1
    future = pool.submit(endless(), LONG_S, "a")
    os.kill(killed := busy_one(pool), signal.SIGKILL)
    other = busy_one(pool)
    assert other != killed, "another process is asked"
    os.kill(other, signal.SIGSEGV)
    assert "within its memory" in verdict_of(future).needed
    wait_until_whole(pool)
    for pid in pool.pids:
        os.kill(pid, signal.SIGKILL)
    assert verdict_of(pool.submit(GrammarSource(GrammarKind.REGEX, "c"), LONG_S, "a")).is_valid


def wait_until_whole(pool: GrammarPool) -> None:
    """Until it has all its processes."""
    give_up_at_s = time.monotonic() + LONG_S
    while sum(map(is_validator, pool.pids)) < PROCESSES + SPARES:
        assert time.monotonic() < give_up_at_s
        time.sleep(0.01)


def busy_one(pool: GrammarPool) -> int:
    """The process that compiles; one that has been warm and busy since, and uses the processor, has its grammar."""
    give_up_at_s = time.monotonic() + LONG_S
    used_s = dict[int, float]()
    while time.monotonic() < give_up_at_s:
        for process in pool._busy.copy():  # noqa: SLF001 (nobody else needs to know which one)
            pid = process.pid
            if process.is_warm and cpu_s(pid) > used_s.setdefault(pid, cpu_s(pid)) + _COMPILES_S:
                return pid
        time.sleep(0.01)
    raise AssertionError("no process works")


def test_another_accounts_grammar_does_not_wait_behind_hostile_ones(pool: GrammarPool) -> None:
    warm(pool)
    hostile = [pool.submit(endless(i), 1.0, "hostile") for i in range(MAX_WAITING)]
    assert verdict_of(pool.submit(GOOD, LONG_S, "other")).is_valid
    assert sum(future.done() for future in hostile) <= 3, "of 64 at most those that were before it are done"
    for future in hostile:
        future.cancel()


def test_a_full_queue_is_told_at_once(pool: GrammarPool) -> None:
    futures = list[Future[GrammarVerdict]]()
    with pytest.raises(NotAdmittedError, match="try again") as refused:
        futures.extend(pool.submit(endless(i), 5.0, "a") for i in range(2 * MAX_WAITING))
    assert refused.value.retry_after_s == 1
    assert MAX_WAITING <= len(futures) <= MAX_WAITING + 2
    for future in futures:
        assert future.cancel()
    assert verdict_of(pool.submit(GOOD, LONG_S, "a")).is_valid, "whoever leaves makes room"


def test_the_same_grammar_is_compiled_once(pool: GrammarPool) -> None:
    futures = [pool.submit(endless(), 0.5, "a") for _ in range(3 * MAX_WAITING)]
    assert len({verdict_of(future).needed for future in futures}) == 1


def test_leaving_is_of_one_only(pool: GrammarPool) -> None:
    gone, stays = (pool.submit(GOOD, LONG_S, "a") for _ in range(2))
    gone.cancel()
    assert verdict_of(stays).is_valid


def test_an_event_loop_never_waits(pool: GrammarPool) -> None:
    async def both() -> tuple[GrammarVerdict, int]:
        slow = asyncio.create_task(pool.validate(endless(), 1.0, "a"))
        turns = 0
        while not slow.done():
            await asyncio.sleep(0.001)
            turns += 1
        return slow.result(), turns

    warm(pool)
    verdict, turns = asyncio.run(both())
    assert not verdict.is_valid
    assert turns > 50


class Failing(ValidatorProcess):
    """One that cannot be started as often as ``errors`` says, as where a machine has no memory or descriptors left."""

    errors: list[Exception] = []  # noqa: RUF012 (of the test that sets it)

    def __init__(self) -> None:
        if self.errors:
            raise self.errors.pop()
        super().__init__()


def fail(monkeypatch: pytest.MonkeyPatch, *errors: Exception) -> list[Exception]:
    left = list(errors)
    monkeypatch.setattr(Failing, "errors", left)
    monkeypatch.setattr("serve_app.api.grammars.pool.ValidatorProcess", Failing)
    return left


@pytest.mark.parametrize("error", [OSError(errno.EMFILE, "no descriptors"), MemoryError(), ValueError("anything")])
def test_processes_that_cannot_be_started_for_a_while_end_no_thread(
    pool: GrammarPool, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    warm(pool)
    wait_until_whole(pool)
    left = fail(monkeypatch, *[error] * 4)
    for pid in pool.pids:
        os.kill(pid, signal.SIGKILL)
    with pytest.raises(type(error)):
        verdict_of(pool.submit(GOOD, LONG_S, "a"))
    for number in range(8):
        future = pool.submit(endless(number), 0.1, "a")  # which ends a process, so that one is started
        assert wait([future], LONG_S).done
    assert not left
    for account in "abc":
        assert verdict_of(pool.submit(GrammarSource(GrammarKind.REGEX, "d"), LONG_S, account)).is_valid
    wait_until_whole(pool)


def test_a_pool_starts_though_its_processes_cannot_at_first(monkeypatch: pytest.MonkeyPatch) -> None:
    fail(monkeypatch, *[OSError(errno.EAGAIN, "no processes")] * 2)
    pool = GrammarPool()
    try:
        pool.start()
        with pytest.raises(OSError, match="no processes"):
            verdict_of(pool.submit(GOOD, LONG_S, "a"))
        assert verdict_of(pool.submit(GOOD, LONG_S, "a")).is_valid
        wait_until_whole(pool)
        assert len(pool.pids) == PROCESSES + SPARES
    finally:
        pool.close()


def test_a_process_that_cannot_be_started_leaves_no_descriptor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    before = len(list(Path("/proc/self/fd").iterdir()))
    kept = list[BaseException]()
    for _ in range(3):
        with pytest.raises(OSError, match="nowhere") as raised:
            ValidatorProcess()
        kept.append(raised.value)
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_processes_end_with_the_pool_and_with_its_process() -> None:
    pool = GrammarPool()
    warm(pool)
    pids = pool.pids
    future = pool.submit(endless(), LONG_S, "a")
    pool.close()
    assert future.cancelled()
    assert not [pid for pid in pids if is_validator(pid)]


def test_processes_end_when_their_owner_is_killed() -> None:
    """Those that wait at once, one that works by its own alarm."""
    root = Path(__file__).parents[5]
    with subprocess.Popen([sys.executable, "-c", OWNER], stdout=subprocess.PIPE, cwd=root, text=True) as owner:
        assert owner.stdout is not None
        pids = [int(pid) for pid in owner.stdout.readline().split()]
        owner.kill()
    assert len(pids) == PROCESSES + SPARES
    give_up_at_s = time.monotonic() + LONG_S
    while alive := [pid for pid in pids if is_validator(pid)]:
        assert time.monotonic() < give_up_at_s, alive
        time.sleep(0.05)


def is_validator(pid: int) -> bool:
    try:
        return "outrider.grammar.validator" in Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return False


SCHEMA_KEYWORDS = (
    *("maxItems", "minItems", "maxLength", "minLength", "maxProperties", "minProperties", "multipleOf"),
    *("maximum", "minimum", "exclusiveMaximum"),
)
numbers = st.sampled_from([0, 1, 2, 7, 100, 4096, 65_536, 2**31, 10**9, 10**18, 10**30, -1, 0.5, 1e300])
patterns = st.recursive(
    st.sampled_from(["a", ".", "[a-z]", "\\w", "\\d", "\\p{L}", "(ab|a)", ".*", "[^a]"]),
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(["*", "+", "?", "{3}", "{0,90}", "{4096}", "{1000000000}"])).map(
            lambda both: f"({both[0]}){both[1]}"
        ),
        st.lists(inner, min_size=2, max_size=40).map("".join),
        st.lists(inner, min_size=2, max_size=40).map("|".join).map("({})".format),
    ),
    max_leaves=30,
)


def wider(inner: "st.SearchStrategy[Any]") -> "st.SearchStrategy[Any]":
    names = st.sampled_from(["a", "b", "enum", "$ref", "maxItems"])
    several = st.lists(inner, min_size=1, max_size=6)
    return st.one_of(
        *(st.fixed_dictionaries({keyword: several}) for keyword in ("anyOf", "allOf", "oneOf", "prefixItems")),
        st.fixed_dictionaries({"properties": st.dictionaries(names, inner, max_size=4)}),
        st.fixed_dictionaries({"$defs": st.dictionaries(names, inner, max_size=3), "allOf": several}),
        st.fixed_dictionaries({"items": inner, "maxItems": numbers, "minItems": numbers}),
        st.fixed_dictionaries({"additionalProperties": inner}),
    )


schemas = st.recursive(
    st.one_of(
        st.dictionaries(st.sampled_from(SCHEMA_KEYWORDS), numbers, max_size=4),
        st.sampled_from(["#", "#/$defs/a", "#/$defs/b", "#/properties/a"]).map(lambda ref: {"$ref": ref}),
        st.fixed_dictionaries({"type": st.sampled_from(["array", "object", "string", "integer", "number", "null"])}),
        st.fixed_dictionaries({"pattern": patterns}),
        st.fixed_dictionaries({"enum": st.lists(numbers, max_size=3)}),
        st.fixed_dictionaries({"format": st.sampled_from(["date-time", "email", "uuid", "uri", "ipv6", "none"])}),
    ),
    wider,
    max_leaves=25,
)
lark = st.lists(
    st.tuples(
        st.sampled_from(["start", "a", "b", "A", "B"]),
        st.lists(
            st.one_of(
                st.sampled_from(
                    ["a", "b", "A", "B", '"x"', "(", ")", "|", "*", "{0,90}", "{1000000000}", "~9", "&", "%json"]
                ),
                patterns.map("/{}/".format),
                schemas.map(lambda schema: f"%json {json.dumps(schema)}"),
            ),
            max_size=12,
        ).map(" ".join),
    ).map(": ".join),
    max_size=8,
).map("\n".join)
sources = st.one_of(
    schemas.map(lambda schema: GrammarSource(GrammarKind.JSON_SCHEMA, json.dumps(schema))),
    patterns.map(lambda pattern: GrammarSource(GrammarKind.REGEX, pattern)),
    lark.map(lambda rules: GrammarSource(GrammarKind.RULES, rules)),
    lark.map(
        lambda rules: GrammarSource(GrammarKind.RULES, rules.replace("start:", "root ::=").replace(": ", " ::= "))
    ),
    patterns.map(lambda pattern: GrammarSource(GrammarKind.JSON_SCHEMA, "{}", whitespace_pattern=pattern)),
)


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@example(source=GrammarSource(GrammarKind.REGEX, "\\w" * 30_000))
@example(source=GrammarSource(GrammarKind.JSON_SCHEMA, json.dumps({"type": "object", "required": list("ab") * 16_000})))
@given(source=sources)
def test_any_grammar_is_answered_and_its_process_lives_or_is_replaced(
    shared: GrammarPool, source: GrammarSource
) -> None:
    max_compile_s = 0.5
    warm(shared)
    began_s = time.monotonic()
    verdict = verdict_of(shared.submit(source, max_compile_s, "a"))
    assert time.monotonic() - began_s < 10 * max_compile_s
    assert verdict.is_valid == bool(verdict.text)
    wait_until_whole(shared)

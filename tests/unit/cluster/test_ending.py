"""Nothing is left of a service whose process was killed, and a second signal ends one that hangs."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster import session_reaper
from cluster.session_reaper import end_all, left_of

_DRIVER = """
import subprocess, sys, time
from pathlib import Path
from cluster.session_reaper import start_reaper
session = Path(sys.argv[1])
start_reaper(session)
for argument in (f"--log-dir={session}/logs", str(session), f"{session}-of-another/logs"):
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)", argument],
        stdout=subprocess.DEVNULL, start_new_session=True)
print("begun", flush=True)
time.sleep(600)
"""
_HANGS = """
import threading
from cluster.local import end_on_signals
end_on_signals()
try:
    print("begun", flush=True)
    threading.Event().wait()
except KeyboardInterrupt:
    print("ending", flush=True)
    while True:
        try:
            threading.Event().wait()
        except BaseException:
            pass
"""


def begun(code: str, *arguments: str) -> "subprocess.Popen[str]":
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def eventually_none_left(session: Path) -> bool:
    give_up_at_s = time.monotonic() + 120
    while left_of(session) and time.monotonic() < give_up_at_s:
        time.sleep(0.1)
    return not left_of(session)


@pytest.fixture
def other(tmp_path: Path) -> Iterator[Path]:
    """Another session, whose processes are ended behind the test."""
    session = tmp_path / "session-of-another"
    yield session
    for process in left_of(session):
        os.kill(process, signal.SIGKILL)


def test_processes_of_a_killed_drivers_session_are_ended_and_no_others(tmp_path: Path, other: Path) -> None:
    session = tmp_path / "session"
    driver = begun(_DRIVER, str(session))
    assert driver.stdout is not None
    assert driver.stdout.readline() == "begun\n"
    assert len(left_of(session)) >= 2
    driver.kill()
    driver.communicate()
    assert eventually_none_left(session)
    assert len(left_of(other)) == 1


_RESTARTED = """
import subprocess, sys
session = sys.argv[1] + sys.argv[2]
for _ in range(3):
    worker = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)", session])
    print("begun", flush=True)
    worker.wait()
"""


def test_a_process_that_is_gone_already_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    session = tmp_path / "session"
    gone = begun("")
    gone.wait()
    running = begun("import time; print('begun', flush=True); time.sleep(600)", str(session))
    assert running.stdout is not None
    assert running.stdout.readline() == "begun\n"
    monkeypatch.setattr(session_reaper, "left_of", lambda folder: [gone.pid, *left_of(folder)])
    end_all(session)
    assert running.wait(timeout=120) == -signal.SIGKILL
    for process in (gone, running):
        process.communicate()


def test_what_is_started_meanwhile_is_ended_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    session = tmp_path / "session"
    # its own argument does not name the session's folder, so it goes on and starts the next one
    starter = begun(_RESTARTED, str(session)[:3], str(session)[3:])
    assert starter.stdout is not None
    stdout = starter.stdout

    def left_when_the_next_has_begun(folder: Path) -> list[int]:
        line = stdout.readline()
        assert line in {"begun\n", ""}
        while not (left := left_of(folder)) and line:
            time.sleep(0.01)  # it shows no arguments yet
        return left

    monkeypatch.setattr(session_reaper, "left_of", left_when_the_next_has_begun)
    end_all(session)
    assert starter.wait(timeout=120) == 0
    starter.communicate()
    assert not left_of(session)


def test_one_scan_that_finds_none_is_not_believed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    running = begun("import time; print('begun', flush=True); time.sleep(600)")
    assert running.stdout is not None
    assert running.stdout.readline() == "begun\n"
    scans = iter([[], [running.pid], [], []])
    monkeypatch.setattr(session_reaper, "left_of", lambda _: next(scans))
    end_all(tmp_path)
    assert running.wait(timeout=120) == -signal.SIGKILL
    running.communicate()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_second_signal_ends_what_hangs(number: signal.Signals) -> None:
    process = begun(_HANGS)
    assert process.stdout is not None
    assert process.stdout.readline() == "begun\n"
    process.send_signal(number)
    assert process.stdout.readline() == "ending\n"
    process.send_signal(number)
    process.communicate(timeout=120)
    assert process.returncode == -number

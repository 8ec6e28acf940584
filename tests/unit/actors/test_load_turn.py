"""Who loads first, and that nobody waits for ever behind one that hangs or died."""

import subprocess
import sys
import threading
import time
from pathlib import Path

from actors.load_turn import load_turn

WAIT_S = 60.0
HOLDS = """
import sys, time
from pathlib import Path
from actors.load_turn import load_turn
with load_turn(Path(sys.argv[1]), 0.0) as has_turn:
    print(has_turn, flush=True)
    time.sleep(600)
"""


def test_one_has_the_turn_and_the_next_gets_it_when_that_one_is_done(tmp_path: Path) -> None:
    order, holds, may_end = list[str](), threading.Event(), threading.Event()

    def first() -> None:
        with load_turn(tmp_path, WAIT_S) as has_turn:
            assert has_turn
            holds.set()
            may_end.wait(WAIT_S)
            order.append("first")

    thread = threading.Thread(target=first)
    thread.start()
    assert holds.wait(WAIT_S)
    with load_turn(tmp_path, 0.0) as has_turn:
        assert not has_turn, "it goes on all the same"
    may_end.set()
    with load_turn(tmp_path, WAIT_S) as has_turn:
        assert has_turn
        order.append("second")
    thread.join(WAIT_S)
    assert order == ["first", "second"]


def test_a_process_that_dies_gives_its_turn_back(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", HOLDS, str(tmp_path)], stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "True\n"
        began_s = time.monotonic()
        with load_turn(tmp_path, 0.2) as has_turn:
            assert not has_turn
        assert time.monotonic() - began_s >= 0.2
        holder.kill()
        with load_turn(tmp_path, WAIT_S) as has_turn:
            assert has_turn


def test_where_there_is_no_folder_everybody_goes_on_at_once(tmp_path: Path) -> None:
    began_s = time.monotonic()
    with load_turn(tmp_path / "none", WAIT_S) as has_turn:
        assert not has_turn
    assert time.monotonic() - began_s < WAIT_S

"""A disk that takes no more costs log and caches, never what a process is there for.

Each test is a process of its own whose files may have a few KiB each (``RLIMIT_FSIZE``): the system refuses the rest as
it does on a full disk, in the middle of a write.
"""

import json
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

_WITHIN_S = 300
_BOUNDED = """
import resource
_, most = resource.getrlimit(resource.RLIMIT_FSIZE)
def full(most_bytes): resource.setrlimit(resource.RLIMIT_FSIZE, (most_bytes, most))
def room(): resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
"""


def told(script: str, folder: Path) -> list[dict[str, object]]:
    """Run a script in a folder; the events that are in its log."""
    log = folder / "log"
    with log.open("wb") as stderr:
        command = [sys.executable, "-c", _BOUNDED + dedent(script), str(folder)]
        done = subprocess.run(command, stderr=stderr, stdout=subprocess.PIPE, timeout=_WITHIN_S, check=False, text=True)
    text = log.read_text()
    assert done.returncode == 0, text[-4000:] + done.stdout
    lines = [line for line in text.splitlines() if line]
    found = [json.loads(line) for line in lines if line.startswith("{") and line.endswith("}")]
    assert len(found) >= len(lines) - 1, "one line may be there in part"
    return found


def test_events_are_counted_while_the_log_is_full(tmp_path: Path) -> None:
    events = told(
        """
        import logging
        from outrider.events import event, write_events
        write_events()
        log = logging.getLogger("outrider.somewhere")
        full(4096)
        for number in range(500):
            event(log, "happened", number=number)
        room()
        for number in range(500, 503):
            event(log, "happened", number=number)
        """,
        tmp_path,
    )
    numbers = [each["number"] for each in events if each["event"] == "happened"]
    (refused,) = [each["lines"] for each in events if each["event"] == "log_lines_refused"]
    assert isinstance(refused, int)
    assert numbers[-3:] == [500, 501, 502]
    assert len(numbers) < 200
    assert 500 <= len(numbers) + refused <= 600, "one line may be there in part, and what the buffer had comes later"
    assert (tmp_path / "log").stat().st_size < 2**16, "no traceback for each"


def test_a_compiled_function_that_cannot_be_kept_computes_all_the_same(tmp_path: Path) -> None:
    (tmp_path / "summing.py").write_text(
        dedent(
            """
            from outrider.engines.torch.fused.compiling import compiled

            @compiled()
            def doubled(number):
                return 2 * number

            @compiled()
            def trebled(number):
                return 3 * number
            """
        )
    )
    use = """
        import os, sys
        os.environ["NUMBA_CACHE_DIR"] = sys.argv[1]
        sys.path.insert(0, sys.argv[1])
        from outrider.events import write_events
        write_events()
        import summing
        full({most})
        assert (summing.doubled(3), summing.trebled(3)) == (6, 9)
        room()
        """
    refused = told(use.format(most=1000), tmp_path)
    assert [each["event"] for each in refused] == ["compiled_not_kept"], "once, not a line for each function"
    assert told(use.format(most="most"), tmp_path) == [], "nothing half is there"
    kept = [file for file in tmp_path.rglob("*.nb?") if file.stat().st_size]
    assert len(kept) == 4
    for file in kept:
        file.write_bytes(file.read_bytes()[:-9])
    damaged = told(use.format(most="most"), tmp_path)
    assert {each["event"] for each in damaged} <= {"compiled_not_read", "compiled_not_kept"}
    assert damaged
    assert told(use.format(most="most"), tmp_path) == [], "what was damaged is kept anew"


def test_a_file_is_written_whole_or_stays_as_it_was(tmp_path: Path) -> None:
    told(
        """
        import sys
        from pathlib import Path
        from outrider.documents.whole_file import FileNotWrittenError, write_whole
        file = Path(sys.argv[1]) / "a" / "figures.json"
        write_whole(file, "before")
        full(1000)
        try:
            write_whole(file, "x" * 5000)
        except FileNotWrittenError as error:
            assert "figures.json, found: [Errno 27]" in str(error), error
        else:
            raise AssertionError
        assert [each.name for each in file.parent.iterdir()] == ["figures.json"]
        assert file.read_text() == "before"
        write_whole(file, "after")
        assert file.read_text() == "after"
        """,
        tmp_path,
    )


def test_a_round_log_tells_once_and_goes_on_when_there_is_room(tmp_path: Path) -> None:
    events = told(
        """
        import sys
        from pathlib import Path
        from actors.drafter.round_log import RoundFiles, RoundLogWriter
        from outrider.contracts.verifying import AcceptanceRule
        from lab.training.predictor.log_reading import read_log
        from outrider.events import write_events
        from tests.unit.actors.drafter.test_round_log import HEADER, verdict
        write_events()
        folder = Path(sys.argv[1]) / "rounds"
        files, log = RoundFiles(folder, 2**20, HEADER), RoundLogWriter()

        def noted(count):
            for number in range(count):
                log.note(f"g{number}", verdict())
                log.write_waiting(files)
                log._attempt(files.flush)

        full(1000)
        noted(300)
        refused = [read_log(file.read_bytes()) for file in folder.glob("*.rounds")]
        assert any(each is not None and each.rounds for each in refused)
        room()
        noted(1500)
        files.close()
        logs = [read_log(file.read_bytes()) for file in folder.glob("*.rounds")]
        assert sum(len(each.rounds) for each in logs if each is not None) > 500
        """,
        tmp_path,
    )
    assert [each["event"] for each in events] == ["round_log_refused"]

"""The garbage collector rests while a process starts, and leaves alone what is there then."""

import subprocess
import sys

PROGRAM = """
import gc
from actors.start import started, starting
starting()
assert not gc.isenabled()
loaded = [[] for _ in range(1000)]
started()
assert gc.isenabled()
print(gc.get_freeze_count() > len(loaded))
"""


def test_nothing_is_collected_until_all_is_loaded() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    assert done.stdout == "True\n"

"""Links of a namespace of one's own are slow, lossy or cut as they are told, and whole again afterwards."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
_WITHIN_S = 120
_SCRIPT = """
import os, socket, sys, threading
from tests.chaos.links import Loopback, connections_to, enter, ports_of
from tests.chaos.schedules import FaultKind

reason = enter(["-c", sys.orig_argv[-1]])
if reason:
    print(f"not here: {reason}")
    raise SystemExit
server = socket.create_server(("127.0.0.1", 0))
port = server.getsockname()[1]

def echo():
    connection, _ = server.accept()
    while data := connection.recv(65536):
        connection.sendall(data)

threading.Thread(target=echo, daemon=True).start()
client = socket.create_connection(("127.0.0.1", port), timeout=60)
client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

def there_and_back(size):
    client.sendall(b"x" * size)
    found = 0
    while found < size:
        found += len(client.recv(65536))

there_and_back(1000)
assert port in ports_of(os.getpid())
assert client.getsockname()[1] in ports_of(os.getpid())
assert connections_to(port) == 1
links = Loopback()
for kind in (FaultKind.SLOW, FaultKind.LOSSY):
    with links.impaired(kind, [port]) as impaired:
        assert impaired.packets() == 0
        for _ in range(40):
            there_and_back(500)  # all of it arrives
        assert impaired.packets() > 0, kind
with links.impaired(FaultKind.PARTITION, [port]) as impaired:
    client.settimeout(1.0)
    try:
        there_and_back(1000)
    except TimeoutError:
        pass
    else:
        raise AssertionError("it went through")
    assert impaired.packets() > 0
    other = socket.create_server(("127.0.0.1", 0))  # others are not cut off
    socket.create_connection(other.getsockname(), timeout=5).close()
client.settimeout(60.0)
found = 0
while found < 1000:  # what was held back comes
    found += len(client.recv(65536))
there_and_back(1000)
print("as told")
"""


def test_what_the_kernel_drops_and_delays_is_counted() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _SCRIPT], cwd=ROOT, capture_output=True, text=True, check=False, timeout=_WITHIN_S
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "as told\n" or done.stdout.startswith("not here: "), done.stdout

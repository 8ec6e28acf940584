"""What a case costs: memory and processor time of processes, by the kernel; what the client beside has noted."""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

MIB = 2**20
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def children_of() -> dict[int, list[int]]:
    """All processes of this machine, by their parents."""
    found: dict[int, list[int]] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit() and (fields := _stat(int(folder.name))):
            found.setdefault(int(fields[1]), []).append(int(folder.name))
    return found


def descendants(pid: int) -> Iterator[int]:
    """Children of a process, theirs, and so on."""
    known = children_of()
    left = list(known.get(pid, ()))
    while left:
        each = left.pop()
        yield each
        left += known.get(each, ())


def name_of(pid: int) -> str:
    """Its command line; empty once it is gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_text(errors="replace").replace("\0", " ").strip()
    except OSError:
        return ""


def alive(pid: int) -> bool:
    """Whether it has not ended."""
    fields = _stat(pid)
    return bool(fields) and fields[0] not in "ZX"


def cpu_s(pid: int) -> float:
    """Processor time that a process has used itself; 0 once it is gone."""
    fields = _stat(pid)
    return sum(map(int, fields[11:13])) / _TICKS_PER_S if fields else 0.0


def memory_bytes(pid: int) -> int:
    """Resident now."""
    return _kib(pid, "VmRSS") * 1024


def begin_peak(pid: int) -> None:
    """Forget what a process's peak was."""
    try:
        Path(f"/proc/{pid}/clear_refs").write_text("5")
    except OSError:
        return


def peak_bytes(pid: int) -> int:
    """The most that was resident since."""
    return _kib(pid, "VmHWM") * 1024


def address_space_bytes(pid: int) -> int:
    """Mapped now."""
    return _kib(pid, "VmSize") * 1024


def free_bytes() -> int:
    """Memory of the machine that can be had without swapping."""
    lines = Path("/proc/meminfo").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable:")) * 1024


def _stat(pid: int) -> list[str]:
    """Fields of a process from its state on: state, parent, ..."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return []


def _kib(pid: int, name: str) -> int:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith(f"{name}:")), 0)


@dataclass
class Usage:
    """Processes from a moment on.

    Attributes:
        at_start: memory of each then.
    """

    pids: Sequence[int]
    at_start: Mapping[int, int] = field(init=False)
    _cpu_s: float = field(init=False)

    def __post_init__(self) -> None:
        """Begin."""
        for pid in self.pids:
            begin_peak(pid)
        self.at_start = {pid: memory_bytes(pid) for pid in self.pids}
        self._cpu_s = sum(map(cpu_s, self.pids))

    @property
    def growth_mib(self) -> float:
        """The largest peak of one of them above what it had at the start."""
        grown = [peak_bytes(pid) - began for pid, began in self.at_start.items()]
        return max([0, *grown]) / MIB

    @property
    def cpu_s(self) -> float:
        """Of all of them together; of those that are gone nothing is known."""
        return max(0.0, sum(map(cpu_s, self.pids)) - self._cpu_s)


@dataclass(frozen=True, slots=True)
class Noted:
    """A line of the client beside."""

    kind: str
    at_s: float
    value: str


def read_notes(lines: Iterable[str]) -> list[Noted]:
    """Whole lines of its file; the last may be half written."""
    found = []
    for line in lines:
        kind, _, rest = line.rstrip("\n").partition(" ")
        at_s, _, value = rest.partition(" ")
        if value:
            found.append(Noted(kind, float(at_s), value))
    return found


class Notes:
    """The file of the client beside, read on and on; only its last minutes are kept."""

    def __init__(self, path: Path) -> None:
        self._file = path.open()
        self._rest = ""
        self.lines: list[Noted] = []

    def read(self) -> None:
        """Take what has been written meanwhile."""
        text = self._rest + self._file.read()
        whole, newline, self._rest = text.rpartition("\n")
        self.lines += read_notes((whole + newline).splitlines())
        if len(self.lines) > 200_000:
            self.lines = self.lines[-100_000:]

    def settled(self, since_s: float) -> bool:
        """Whether ``/health`` and both long streams have got on since."""
        self.read()
        newer = [note for note in reversed(self.lines[-4000:]) if note.at_s > since_s]
        streams = {note.value.partition("/")[0] for note in newer if note.kind == "token"} - {"short"}
        return len(streams) >= 2 and any(note.kind == "health" for note in newer)

    def between(self, began_s: float, ended_s: float) -> "Beside":
        """What happened, waits that began or ended in that time included."""
        self.read()
        return beside(self.lines, began_s, ended_s)

    def close(self) -> None:
        """Read no more."""
        self._file.close()


@dataclass(frozen=True, slots=True)
class Beside:
    """What the client beside saw during a case; 0 where there was nothing to see.

    Attributes:
        late_s: its own longest delay, which the machine adds to all others.
    """

    loop_s: float
    late_s: float
    silence_s: float
    first_token_s: float
    tokens_per_s: float
    broken: tuple[str, ...]


def beside(notes: Sequence[Noted], began_s: float, ended_s: float) -> Beside:
    """Of all notes those that a case may have caused."""
    near = [note for note in notes if began_s - 130.0 < note.at_s < ended_s + 130.0]
    waited: dict[str, list[float]] = {"health": [0.0], "late": [0.0], "first": [0.0]}
    for note in near:
        if note.kind in waited:
            took_s = float(note.value)
            if note.at_s - took_s < ended_s and note.at_s > began_s:
                waited[note.kind].append(took_s)
    streams: dict[str, list[float]] = {}
    for note in near:
        if note.kind == "token":
            streams.setdefault(note.value, []).append(note.at_s)
    asked = {note.value.partition("/")[0]: note for note in near if note.kind == "asks" and note.at_s < ended_s}
    waited["first"] += [ended_s - note.at_s for note in asked.values() if note.value not in streams]  # and waits still
    gaps = [
        after_s - before_s
        for times in streams.values()
        for before_s, after_s in pairwise(times)
        if before_s < ended_s and after_s > began_s
    ]
    tokens = sum(1 for note in near if note.kind == "token" and began_s < note.at_s < ended_s)
    broken = tuple(note.value for note in near if note.kind == "broken" and began_s < note.at_s < ended_s + 0.1)
    texts = dict[str, str]()
    for note in (one for one in notes if one.kind == "text"):
        which, _, digest = note.value.partition(" ")
        if texts.setdefault(which, digest) != digest and began_s < note.at_s < ended_s + 0.1:
            broken += (f"another text of {which}",)
    return Beside(
        loop_s=max(waited["health"]),
        late_s=max(waited["late"]),
        silence_s=max([0.0, *gaps]),
        first_token_s=max(waited["first"]),
        tokens_per_s=tokens / max(ended_s - began_s, 0.01),
        broken=broken,
    )

"""Memory of a service's processes on this machine, sampled during a load."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from lab.bench.harness.repeating import repeated

_EVERY_S = 0.5
_PREFIX = "ray::"  # Ray names processes after their actors
ACTORS = ("ServeReplica:outrider:Ingress", "ServeReplica:outrider:Coordinator", "VerifierActor", "DrafterActor")


def private_mib() -> dict[str, float]:
    """Private memory by actor and process."""
    found = {}
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            command = (folder / "cmdline").read_text()
            fields = dict(line.split(":", 1) for line in (folder / "status").read_text().splitlines())
        except OSError:
            continue
        actor = next((name for name in ACTORS if command.startswith(_PREFIX + name)), None)
        if actor is not None and "RssAnon" in fields:
            found[f"{actor.rpartition(':')[2]} {folder.name}"] = int(fields["RssAnon"].split()[0]) / 1024
    return found


@dataclass(slots=True)
class Memory:
    """Memory of each process in MiB: before, maximum, after."""

    before: Mapping[str, float] = field(default_factory=private_mib)
    most: dict[str, float] = field(default_factory=dict)
    after: Mapping[str, float] = field(default_factory=dict)

    def grown(self) -> dict[str, float]:
        """Maximum growth of each process that existed before."""
        return {name: self.most.get(name, mib) - mib for name, mib in self.before.items()}


@contextmanager
def sampled() -> Iterator[Memory]:
    """Sample while the block is open."""
    memory = Memory()

    def sample() -> None:
        for name, mib in private_mib().items():
            memory.most[name] = max(mib, memory.most.get(name, 0.0))

    try:
        with repeated(_EVERY_S, sample):
            yield memory
    finally:
        memory.after = private_mib()

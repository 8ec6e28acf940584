"""What a run has left behind, by the word of those who would hold it, asked now."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from actors.fleet.timeouts import FleetTimeouts
from tests.chaos.links import Loopback, connections_to
from tests.chaos.processes import Census, all_pids, becomes, census
from tests.chaos.schedules import FaultKind, Schedule, Victim
from tests.cluster.served import PACE, Service

_OURS = frozenset(  # folders
    {
        *("actors", "coordinator", "drafter", "fleet", "gateway", "verifier"),
        *("serve_app", "ingress", "coordination", "batching", "drafting", "generations", "api", "http", "openai"),
    }
)
_STREAMS = frozenset(  # tasks of those that a coordinator opens when it needs them, one to each drafter and gateway
    {
        *("drafter/CallListener._serve", "gateway/CoordinatorRelay.serve"),
        *(
            f"coordinator/{of}.{task}"
            for of in ("GatewayLink", "SocketDrafterTransport")
            for task in ("_run", "_watch")
        ),
    }
)
_PREPARING = "gateway/Gateway._prepare"  # of one that was started anew, for as long as an export takes
_MORE_FILES = 48  # of one process: connections to processes that were started anew come beside those that are closing
_TASKS_WITHIN_S = 5.0
_TOLD_NOBODY = frozenset(
    {
        *(Victim.COORDINATOR, Victim.FLEET, Victim.DRAFTER, Victim.DEVICE, Victim.GATEWAY),
        *(Victim.APPLICATION, Victim.GCS),
    }
)


@dataclass(frozen=True, slots=True)
class Calm:
    """What there is while nothing is asked of a service: processes by kind, and the tasks of each kind."""

    processes: Mapping[Victim, int]
    tasks: Mapping[Victim, Mapping[str, int]]
    censuses: Mapping[int, Census]


def calm(service: Service, folder: Path) -> Calm:
    """As it is now."""
    found = census(service, folder)
    tasks: dict[Victim, Counter[str]] = {}
    for each in found.values():
        tasks[each.victim] = tasks.get(each.victim, Counter()) | Counter(_our_tasks(each))
    return Calm(Counter(all_pids(service).values()), tasks, found)


def left_behind(service: Service, folder: Path, before: Calm, schedule: Schedule) -> list[str]:
    """What is still held for streams that have ended; the service is whole again.

    Who was struck cannot tell: the fleet finds out when a coordinator is silent, and by two sweeps what a drafter holds
    for nobody. Otherwise everything has been told, and last messages take a moment.
    """
    wrong = []
    kinds = {fault.kind for fault in schedule.faults}
    found_out = bool({fault.victim for fault in schedule.faults} & _TOLD_NOBODY) or FaultKind.PARTITION in kinds
    pace: FleetTimeouts = PACE
    try:
        service.check_released(pace.owner_ttl_s + 4 * pace.sweep_s if found_out else pace.sweep_s)
    except AssertionError as error:
        wrong.append(f"left: {error}")
    if not becomes(lambda: not service.held_by_devices(), pace.owner_ttl_s + 4 * pace.sweep_s):
        wrong.append(f"left: sessions on {service.held_by_devices()}")
    if not becomes(lambda: not _more(service, folder, before), _TASKS_WITHIN_S):
        wrong += _more(service, folder, before)
    return wrong


def _more(service: Service, folder: Path, before: Calm) -> list[str]:
    """Tasks, files, connections and processes beyond those that were there in calm."""
    wrong = []
    for pid, now in census(service, folder).items():
        usual = before.tasks.get(now.victim)
        config = service.config
        peers = max(config.verifiers.count, config.drafter_count, config.gateway.actors)
        streams = dict.fromkeys(_STREAMS, peers)
        usual = None if usual is None else {**usual, **streams}
        tasks = {name: n for name, n in _our_tasks(now).items() if usual is not None and n > usual.get(name, 0)}
        if tasks:
            wrong.append(f"left: tasks of {now.victim} {pid}: {tasks}")
        then = before.censuses.get(pid)
        if then is not None and now.files > then.files + _MORE_FILES:
            wrong.append(f"left: {now.victim} {pid} had {then.files} files open, and has {now.files}")
    processes = Counter(all_pids(service).values())
    if processes != before.processes:
        wrong.append(f"left: processes {dict(processes)}, needs {dict(before.processes)}")
    port = service.config.http.port
    if Loopback.available() and (connected := connections_to(port)):
        wrong.append(f"left: {connected} connections to the service")
    return wrong


def _our_tasks(found: Census) -> dict[str, int]:
    return {name: n for name, n in found.tasks.items() if name.partition("/")[0] in _OURS and name != _PREPARING}

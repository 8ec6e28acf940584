"""How long the fleet waits for what, and how much it does at once."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FleetTimeouts:
    """How long the fleet waits for what."""

    probe_deadline_s: float = 5.0
    proof_deadline_s: float = 30.0  # of a draft of one token
    start_deadline_s: float = 600.0  # of a process that a node has begun: it may fetch and load its model
    start_poll_s: float = 15.0  # how often the head is asked for those that do not answer
    restart_poll_s: float = 1.0
    retry_s: float = 15.0  # until a refused drafter is started anew
    most_pause_s: float = 60.0  # of one that was taken out again and again
    beat_s: float = 1.0  # between two heartbeats of a coordinator,
    beats_per_s: int = 300  # longer where there would be more of all of them,
    most_beat_s: float = 3.0  # within the times in which others expect to hear of it
    owner_ttl_s: float = 10.0
    sweep_s: float = 5.0
    asked_per_s: int = 200  # drafters that are asked what they hold, at most
    noted_s: float = 1.0  # how often its gauges are set
    spares_from: int = 50  # coordinators: from so many on they keep places at hand, rather than ask for each

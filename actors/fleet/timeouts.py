"""Defines the fleet's deadlines, intervals and rates."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FleetTimeouts:
    probe_deadline_s: float = 5.0
    proof_deadline_s: float = 30.0  # for a draft of one token
    start_deadline_s: float = 600.0  # for a process that a node has started: it may fetch and load its model
    start_poll_s: float = 15.0  # how often the head is asked for the phase of a drafter that does not answer
    restart_poll_s: float = 1.0
    retry_s: float = 15.0  # first pause before a refused drafter is started again
    most_pause_s: float = 60.0  # for a drafter with many strikes
    beat_s: float = 1.0  # interval between a coordinator's heartbeats;
    beats_per_s: int = 300  # longer where all coordinators together would send more than these,
    most_beat_s: float = 3.0  # but no longer than this, or peers would count a coordinator as silent
    owner_ttl_s: float = 10.0  # silence after which a coordinator's leases end
    sweep_s: float = 5.0
    asked_per_s: int = 200  # most drafters that are asked what they hold
    noted_s: float = 1.0  # interval at which the gauges are set
    spares_from: int = 50  # number of coordinators from which they hold spare slots and do not ask for each lease

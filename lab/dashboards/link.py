"""Board: the links to devices, their state and traffic."""

from lab.dashboards.board import Board, Panel, Query, Shape, Variable, row
from lab.dashboards.promql import CLUSTER, GROUP, UP, percentiles, rate, ratio, series
from serve_app import metrics as m

_STATE = row(
    "State, the worst of each group",
    Panel("Round trip", "s", warn=0.1, alarm=0.5).showing(
        "The longest median of a link's small exchanges. A round with a draft costs one.",
        Query(f"max by (group) ({series(m.LINK_RTT_S, GROUP)})", "{{group}}"),
    ),
    Panel("Rates", "bps", warn=5e6, alarm=1e6).showing(
        "The slowest link's, net of lost packets: loss shows as a slower link. Unmeasured it is 20 Mbit/s.",
        Query(f"min by (group, direction) ({series(m.LINK_RATE_BPS, GROUP)})", "{{group}} {{direction}}"),
    ),
    Panel("Link phase of rounds", "s", to="speculation").showing(
        "What is left of an exchange without the device's own time: round trip, transfer, and waiting on the way.",
        *percentiles(m.PHASE_S, CLUSTER, 'phase="link"'),
    ),
)

_TRAFFIC = row(
    "Traffic",
    Panel("Payload up", "bps", Shape.STACK, width=6).showing(
        "Drafts, by protocol.",
        Query(rate(m.PAYLOAD_BITS, CLUSTER, UP, by="protocol"), "{{protocol}}"),
    ),
    Panel("Payload down", "bps", Shape.STACK, width=6).showing(
        "Orders and verdicts, by protocol.",
        Query(rate(m.PAYLOAD_BITS, CLUSTER, 'direction="down"', by="protocol"), "{{protocol}}"),
    ),
    Panel("Bits of a round", "decbits", width=6, to="speculation").showing(
        "Payload of a round, by protocol.",
        Query(
            f"{rate(m.PAYLOAD_BITS, CLUSTER, by='protocol, direction')}"
            f" / on (protocol) group_left {rate(m.ROUNDS, CLUSTER, by='protocol')}",
            "{{protocol}} {{direction}}",
        ),
    ),
    Panel("Load of the slowest uplink", "percentunit", warn=0.5, alarm=0.9, width=6).showing(
        "If all payload went over it: an upper bound, exact with one device.",
        ratio(
            rate(m.PAYLOAD_BITS, CLUSTER, UP),
            f"min({series(m.LINK_RATE_BPS, GROUP, UP)})",
        ),
    ),
)

_WIRE = row(
    "On the wire",
    Panel("Wire and payload", "bps", width=6, to="speculation").showing(
        "All IP packets between coordinators and drafters, and the messages among them; the rest is calls.",
        Query(rate(m.WIRE_BITS, GROUP, by="direction"), "wire {{direction}}"),
        Query(rate(m.PAYLOAD_BITS, CLUSTER, by="direction"), "payload {{direction}}"),
    ),
    Panel("Wire by group", "bps", Shape.STACK, width=6).showing(
        "All IP packets, headers and retransmissions included.",
        Query(rate(m.WIRE_BITS, GROUP, by="group, direction"), "{{group}} {{direction}}"),
    ),
    Panel("Retransmitted", "percentunit", warn=0.01, alarm=0.05, width=6).showing(
        "Of TCP segments with data: lost on the way. Up is reported by the devices. No value: nothing sent yet.",
        Query(
            ratio(
                rate(m.RESENT_SEGMENTS, GROUP, by="group"),
                rate(m.SENT_SEGMENTS, GROUP, by="group"),
            ),
            "{{group}} down",
        ),
        Query(
            ratio(
                rate(m.UP_RESENT_SEGMENTS, GROUP, by="group"),
                rate(m.UP_SENT_SEGMENTS, GROUP, by="group"),
            ),
            "{{group}} up, reported by devices",
        ),
    ),
    Panel("Messages by outcome", "short", Shape.STACK, width=6, to="fleet").showing(
        "Per second. silent: no answer in time; gone: the drafter is; broken: an invalid answer.",
        Query(rate(m.EXCHANGES, GROUP, by="outcome"), "{{outcome}}"),
    ),
)

BOARD = Board(
    "link",
    "Outrider: link",
    "The links to devices: state and traffic.",
    (Variable.CLUSTER, Variable.GROUP),
    (_STATE, _TRAFFIC, _WIRE),
)

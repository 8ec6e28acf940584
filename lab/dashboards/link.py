"""Board: the links to devices, their state and traffic."""

from lab.dashboards.board import Board, Panel, Query, Row, Shape, Variable
from lab.dashboards.percentiles import percentiles
from lab.dashboards.promql import CLUSTER, GROUP, UP, rate, ratio, series
from serve_app import metrics as m

_STATE = Row(
    "State, the worst of each group",
    (
        Panel(
            "Round trip",
            (Query(f"max by (group) ({series(m.LINK_RTT_S, GROUP)})", "{{group}}"),),
            "s",
            "The longest median of a link's small exchanges. A round with a draft costs one.",
            warn=0.1,
            alarm=0.5,
        ),
        Panel(
            "Rates",
            (
                Query(
                    f"min by (group, direction) ({series(m.LINK_RATE_BPS, GROUP)})",
                    "{{group}} {{direction}}",
                ),
            ),
            "bps",
            "The slowest link's, net of lost packets: loss shows as a slower link. Unmeasured it is 20 Mbit/s.",
            warn=5e6,
            alarm=1e6,
        ),
        Panel(
            "Link phase of rounds",
            percentiles(m.PHASE_S, CLUSTER, 'phase="link"'),
            "s",
            "What is left of an exchange without the device's own time: round trip, transfer, and waiting on the way.",
            to="speculation",
        ),
    ),
)

_TRAFFIC = Row(
    "Traffic",
    (
        Panel(
            "Payload up",
            (Query(rate(m.PAYLOAD_BITS, CLUSTER, UP, by="protocol"), "{{protocol}}"),),
            "bps",
            "Drafts, by protocol.",
            Shape.STACK,
            width=6,
        ),
        Panel(
            "Payload down",
            (Query(rate(m.PAYLOAD_BITS, CLUSTER, 'direction="down"', by="protocol"), "{{protocol}}"),),
            "bps",
            "Orders and verdicts, by protocol.",
            Shape.STACK,
            width=6,
        ),
        Panel(
            "Bits of a round",
            (
                Query(
                    f"{rate(m.PAYLOAD_BITS, CLUSTER, by='protocol, direction')}"
                    f" / on (protocol) group_left {rate(m.ROUNDS, CLUSTER, by='protocol')}",
                    "{{protocol}} {{direction}}",
                ),
            ),
            "short",
            "Payload of a round, by protocol.",
            width=6,
            to="speculation",
        ),
        Panel(
            "Load of the slowest uplink",
            (
                Query(
                    ratio(
                        rate(m.PAYLOAD_BITS, CLUSTER, UP),
                        f"min({series(m.LINK_RATE_BPS, GROUP, UP)})",
                    )
                ),
            ),
            "percentunit",
            "If all payload went over it: an upper bound, exact with one device.",
            warn=0.5,
            alarm=0.9,
            width=6,
        ),
    ),
)

_WIRE = Row(
    "On the wire",
    (
        Panel(
            "Wire and payload",
            (
                Query(rate(m.WIRE_BITS, GROUP, by="direction"), "wire {{direction}}"),
                Query(rate(m.PAYLOAD_BITS, CLUSTER, by="direction"), "payload {{direction}}"),
            ),
            "bps",
            "All IP packets between coordinators and drafters, and the messages among them; the rest is calls.",
            width=6,
            to="speculation",
        ),
        Panel(
            "Wire by group",
            (Query(rate(m.WIRE_BITS, GROUP, by="group, direction"), "{{group}} {{direction}}"),),
            "bps",
            "All IP packets, headers and retransmissions included.",
            Shape.STACK,
            width=6,
        ),
        Panel(
            "Retransmitted",
            (
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
            "percentunit",
            "Of TCP segments with data: lost on the way. Up is reported by the devices. No value: nothing sent yet.",
            warn=0.01,
            alarm=0.05,
            width=6,
        ),
        Panel(
            "Messages by outcome",
            (Query(rate(m.EXCHANGES, GROUP, by="outcome"), "{{outcome}}"),),
            "short",
            "Per second. silent: no answer in time; gone: the drafter is; broken: an invalid answer.",
            Shape.STACK,
            width=6,
            to="fleet",
        ),
    ),
)

BOARD = Board(
    "link",
    "Outrider: link",
    "The links to devices: state and traffic.",
    (Variable.CLUSTER, Variable.GROUP),
    (_STATE, _TRAFFIC, _WIRE),
)

"""Board: devices, their leases, failures and recoveries."""

from lab.dashboards.board import Board, Panel, Query, Row, Shape, Variable
from lab.dashboards.promql import CLUSTER, GROUP, READY, rate, ratio, total, worst
from serve_app import metrics as m

_DEVICES = Row(
    "Devices",
    (
        Panel(
            "Ready",
            (
                Query(
                    ratio(
                        f"sum({worst(m.DRAFTERS, GROUP, READY, by='group')})",
                        f"sum({worst(m.DRAFTERS, GROUP, by='group, state')})",
                    )
                ),
            ),
            "percentunit",
            "Of all drafters of the configuration, those that may be leased.",
            Shape.NUMBER,
            warn=0.9,
            alarm=0.5,
            width=6,
        ),
        Panel(
            "By state",
            (Query(worst(m.DRAFTERS, GROUP, by="group, state"), "{{group}} {{state}}"),),
            "short",
            "starting: waits for a node or loads its model; suspect: failed a coordinator; refused: does not fit.",
            Shape.STACK,
            width=9,
        ),
        Panel(
            "Leases",
            (Query(worst(m.LEASES, GROUP, by="group"), "{{group}}"),),
            "short",
            "Responses that a drafter of the group drafts for.",
            Shape.STACK,
            width=9,
        ),
    ),
)

_FAULTS = Row(
    "Faults and recoveries",
    (
        Panel(
            "Drafters lost",
            (Query(total(m.DRAFTER_LOSSES, CLUSTER)),),
            "short",
            "Responses whose drafter failed, since the coordinators' start. They continue without it.",
            width=6,
        ),
        Panel(
            "Verifiers lost",
            (Query(total(m.VERIFIER_LOSSES, CLUSTER)),),
            "short",
            "Rounds lost with a verifier, since the coordinators' start.",
            width=6,
            to="verifier",
        ),
        Panel(
            "Responses resumed, connections cut",
            (
                Query(total(m.RESUMED, CLUSTER), "resumed"),
                Query(total(m.CONNECTIONS_CUT, CLUSTER, by="reason"), "connections cut: {{reason}}"),
            ),
            "short",
            "At another coordinator, after theirs was lost; by the ingress's own listener. Since the ingresses' start.",
            width=6,
            to="overview",
        ),
        Panel(
            "Settings refused",
            (Query(total(m.SETTINGS_REFUSED, CLUSTER, by="deployment"), "{{deployment}}"),),
            "short",
            "Replicas that refused the last reloadable settings, and keep the ones before.",
            warn=0.5,
            alarm=1.0,
            width=6,
        ),
        Panel(
            "Keys refused",
            (Query(total(m.KEYS_REFUSED, CLUSTER)),),
            "short",
            "Ingresses that cannot load the API key file: keys removed from it are still valid.",
            warn=0.5,
            alarm=1.0,
            width=12,
        ),
        Panel(
            "Age of the keys",
            (Query(worst(m.KEYS_AGE_S, CLUSTER)),),
            "s",
            "Since an ingress last found the keys in use in its file, the longest.",
            warn=330.0,
            alarm=600.0,
            width=12,
        ),
    ),
)

_USE = Row(
    "Use",
    (
        Panel(
            "Rounds with a device",
            (Query(rate(m.ROUNDS, CLUSTER, 'protocol!~"none|lookup"', by="protocol"), "{{protocol}}"),),
            "short",
            "Per second.",
            Shape.STACK,
            to="speculation",
        ),
        Panel(
            "Wasted drafting",
            (Query(rate(m.WASTED_DRAFT_S, CLUSTER)),),
            "short",
            "Devices' seconds per second spent on tokens that were rejected.",
            to="speculation",
        ),
        Panel(
            "Responses per ready drafter",
            (
                Query(
                    f"{worst(m.LEASES, GROUP, by='group')} / {worst(m.DRAFTERS, GROUP, READY, by='group')}",
                    "{{group}}",
                ),
            ),
            "short",
            "At the group's max_generations none can be leased.",
        ),
    ),
)

BOARD = Board(
    "fleet",
    "Outrider: fleet",
    "Devices: states, leases, failures.",
    (Variable.CLUSTER, Variable.GROUP),
    (_DEVICES, _FAULTS, _USE),
)

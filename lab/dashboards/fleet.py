"""Board: devices, their leases, failures and recoveries."""

from lab.dashboards.board import Board, Panel, Query, Shape, Variable, row
from lab.dashboards.promql import BY_CLUSTER, CLUSTER, GROUP, READY, rate, ratio, total, worst, worst_in_range
from serve_app import metrics as m

_GRAM = f"ray_node_gram_used{{{CLUSTER}}} + ray_node_gram_available{{{CLUSTER}}}"
_DEVICES = row(
    "Devices",
    Panel("Ready", "percentunit", Shape.NUMBER, warn=0.9, alarm=0.5, width=6).showing(
        "Of all drafters of the configuration, those that may be leased.",
        ratio(
            f"sum({worst(m.DRAFTERS, GROUP, READY, by=f'{BY_CLUSTER}, group')})",
            f"sum({worst(m.DRAFTERS, GROUP, by=f'{BY_CLUSTER}, group, state')})",
        ),
    ),
    Panel("By state", "short", Shape.STACK, width=9).showing(
        "starting: waits for a node or loads its model; suspect: failed a coordinator; refused: does not fit.",
        Query(worst(m.DRAFTERS, GROUP, by="group, state"), "{{group}} {{state}}"),
    ),
    Panel("Leases", "short", Shape.STACK, width=9).showing(
        "Responses that a drafter of the group drafts for.",
        Query(worst(m.LEASES, GROUP, by="group"), "{{group}}"),
    ),
)

_OF_GROUP = f'{CLUSTER}, drafter=~"drafter-$group-[0-9]+"'
_WORST = row(
    "The worst devices",
    Panel("Worst devices", "short", Shape.TABLE, width=16, rows_by="drafter").showing(
        "Of the time shown: a coordinator's four worst by each figure in a minute, and those with most strikes.",
        Query(worst_in_range(m.DEVICE_RTT_S, _OF_GROUP, by="drafter"), "round trip", "s"),
        Query(worst_in_range(m.DEVICE_UNANSWERED, _OF_GROUP, by="drafter"), "unanswered", "percentunit"),
        Query(worst_in_range(m.DEVICE_SPEED, _OF_GROUP, by="drafter", lowest=True), "draft tokens/s", "count:tok/s"),
        Query(worst_in_range(m.DEVICE_STRIKES, _OF_GROUP, by="drafter"), "strikes", "short"),
    ),
    Panel("Gateways", "short", Shape.LINES).showing(
        "That devices dial in to. Fewer than wanted: one cannot start, or is silent.",
        Query(worst(m.GATEWAYS, CLUSTER, by="state"), "{{state}}"),
    ),
)

_FAULTS = row(
    "Faults and recoveries",
    Panel("Drafters lost", "short", width=6).showing(
        "Responses whose drafter failed, since the coordinators' start. They continue without it.",
        total(m.DRAFTER_LOSSES, CLUSTER),
    ),
    Panel("Verifiers lost", "short", width=6, to="verifier").showing(
        "Rounds lost with a verifier, since the coordinators' start.",
        total(m.VERIFIER_LOSSES, CLUSTER),
    ),
    Panel("Responses resumed, connections cut", "short", width=6, to="overview").showing(
        "At another coordinator, after theirs was lost; by the ingress's own listener. Since the ingresses' start.",
        Query(total(m.RESUMED, CLUSTER), "resumed"),
        Query(total(m.CONNECTIONS_CUT, CLUSTER, by="reason"), "connections cut: {{reason}}"),
    ),
    Panel("Settings refused", "short", warn=0.5, alarm=1.0, width=6).showing(
        "Replicas that refused the last reloadable settings, and keep the ones before.",
        Query(total(m.SETTINGS_REFUSED, CLUSTER, by="deployment"), "{{deployment}}"),
    ),
    Panel("Refused dials", "short", width=6).showing(
        "Devices that gateways do not let in, per second, by reason.",
        Query(rate(m.REFUSED_DIALS, CLUSTER, by="reason"), "{{reason}}"),
    ),
    Panel("Keys refused", "short", warn=0.5, alarm=1.0, width=6).showing(
        "Ingresses that cannot load the API key file: keys removed from it are still valid.",
        total(m.KEYS_REFUSED, CLUSTER),
    ),
    Panel("Age of the keys", "s", warn=330.0, alarm=600.0, width=12).showing(
        "Since an ingress last found the keys in use in its file, the longest.",
        worst(m.KEYS_AGE_S, CLUSTER),
    ),
)

_USE = row(
    "Use",
    Panel("Rounds with a device", "short", Shape.STACK, to="speculation").showing(
        "Per second.",
        Query(rate(m.ROUNDS, CLUSTER, 'protocol!~"none|lookup"', by="protocol"), "{{protocol}}"),
    ),
    Panel("Wasted drafting", "short", to="speculation").showing(
        "Devices' seconds per second spent on tokens that were rejected.",
        rate(m.WASTED_DRAFT_S, CLUSTER),
    ),
    Panel("Responses per ready drafter", "short").showing(
        "At the group's max_generations none can be leased.",
        Query(f"{worst(m.LEASES, GROUP, by='group')} / {worst(m.DRAFTERS, GROUP, READY, by='group')}", "{{group}}"),
    ),
)

_MACHINES = row(
    "Machines, as Ray measures them",
    Panel("Processors", "percentunit", width=6).showing(
        "Busy share of a node's processors.",
        Query(f"ray_node_cpu_utilization{{{CLUSTER}}} / 100", "{{ip}}"),
    ),
    Panel("Memory", "percentunit", warn=0.8, alarm=0.95, width=6).showing(
        "Used share of a node's memory; near 1 Ray ends processes.",
        Query(f"ray_node_mem_used{{{CLUSTER}}} / ray_node_mem_total{{{CLUSTER}}}", "{{ip}}"),
    ),
    Panel("GPUs", "percentunit", width=6).showing(
        "Busy share of a GPU. A Jetson's has no reading.",
        Query(f"ray_node_gpus_utilization{{{CLUSTER}}} / 100", "{{ip}} {{GpuIndex}}"),
    ),
    Panel("Memory of GPUs", "percentunit", warn=0.95, alarm=0.99, width=6).showing(
        "Used share.",
        Query(f"ray_node_gram_used{{{CLUSTER}}} / ({_GRAM})", "{{ip}} {{GpuIndex}}"),
    ),
)

BOARD = Board(
    "fleet",
    "Outrider: fleet",
    "Devices: states, leases, failures.",
    (Variable.CLUSTER, Variable.GROUP),
    (_DEVICES, _WORST, _FAULTS, _USE, _MACHINES),
)

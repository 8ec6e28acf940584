"""Board: the verifier's batches, predicted against measured time, memory and admission."""

from lab.dashboards.board import Board, Panel, Query, Row, Shape, Variable
from lab.dashboards.percentiles import percentiles
from lab.dashboards.promql import CLUSTER, COORDINATOR, RATE, buckets, rate, ratio, series, total
from serve_app import metrics as m

_NOW = Row(
    "Now",
    (
        Panel(
            "Verifiers up",
            (Query(total(m.VERIFIER_READY, COORDINATOR)),),
            "short",
            "Those that answer. While one restarts, its responses wait.",
            Shape.NUMBER,
            width=6,
        ),
        Panel(
            "Busy",
            (Query(f"1 - avg(rate({series(m.VERIFIER_IDLE_S, COORDINATOR)}[{RATE}]))"),),
            "percentunit",
            "Share of time, mean over verifiers; idle: nothing to verify.",
            Shape.NUMBER,
            warn=0.9,
            alarm=0.98,
            width=6,
        ),
        Panel(
            "KV in use",
            (Query(ratio(total(m.KV_BLOCKS, COORDINATOR, 'state="used"'), total(m.KV_BLOCKS, COORDINATOR))),),
            "percentunit",
            "By running responses; cached KV can be freed at once.",
            Shape.NUMBER,
            warn=0.8,
            alarm=0.95,
            width=6,
        ),
        Panel(
            "Promised of allowed load",
            (
                Query(
                    ratio(
                        total(m.PROMISED_LOAD, COORDINATOR, 'state="needed"'),
                        total(m.PROMISED_LOAD, COORDINATOR, 'state="allowed"'),
                    )
                ),
            ),
            "percentunit",
            "Verifier time that promises need, of what admission allows. At 1 further promises wait or are refused.",
            Shape.NUMBER,
            warn=0.8,
            alarm=1.0,
            width=6,
            to="overview",
        ),
    ),
)

_BATCHES = Row(
    "Batches",
    (
        Panel(
            "Blocks in a batch",
            (Query(buckets(m.BATCH_BLOCKS, COORDINATOR), "{{le}}"),),
            "short",
            "Steps per second by how many blocks they verified together.",
            Shape.HEAT,
        ),
        Panel(
            "Limits of batches",
            (Query(rate(m.BATCHES, COORDINATOR, by="reason"), "{{reason}}"),),
            "short",
            "Steps per second. queue_empty: no more blocks; deadline, length: more would have made a response late.",
            Shape.STACK,
        ),
        Panel(
            "Queue",
            (
                Query(total(m.QUEUED_BLOCKS, COORDINATOR), "blocks that wait for a step"),
                Query(total(m.GENERATIONS, COORDINATOR, 'state="queued"'), "responses that wait for a place"),
            ),
            "short",
            "Grows without end: the load exceeds the verifier's capacity.",
        ),
        Panel(
            "Queue and verify phases",
            tuple(
                query
                for phase in ("queue", "verify")
                for query in percentiles(m.PHASE_S, COORDINATOR, f'phase="{phase}"', of=(0.5, 0.99), called=f"{phase} ")
            ),
            "s",
            "Of rounds that were asked for.",
            to="speculation",
        ),
        Panel(
            "Idle",
            (Query(rate(m.VERIFIER_IDLE_S, COORDINATOR)),),
            "short",
            "Seconds per second, of all verifiers together.",
        ),
        Panel(
            "Failed passes",
            (Query(total(m.PASS_FAULTS, COORDINATOR, by="kind"), "{{kind}}"),),
            "short",
            "Since the coordinators' start. pass: one block fails alone; memory: retried with fewer blocks.",
            to="fleet",
        ),
        Panel(
            "Rounds lost with the verifier",
            (
                Query(total(m.VERIFIER_LOSSES, COORDINATOR), "rounds lost"),
                Query(total(m.SUSPENDED, COORDINATOR), "best effort paused"),
                Query(total(m.STALLED, COORDINATOR), "not read"),
            ),
            "short",
            "Since the coordinators' start. A lost round is verified again by the restarted verifier.",
            to="fleet",
        ),
    ),
)

_COST_MODEL = Row(
    "Predicted against measured",
    (
        Panel(
            "Time of steps",
            (
                Query(rate(m.PREDICTED_S, COORDINATOR), "predicted"),
                Query(rate(m.MEASURED_S, COORDINATOR), "measured"),
            ),
            "short",
            "Seconds per second. Schedules, windows and admission go by the prediction.",
        ),
        Panel(
            "Measured to predicted",
            (Query(ratio(rate(m.MEASURED_S, COORDINATOR), rate(m.PREDICTED_S, COORDINATOR))),),
            "short",
            "1: right on average. Above: more is promised than can be kept; below: less than could be.",
            warn=1.2,
            alarm=1.5,
        ),
        Panel(
            "Error of a step",
            percentiles(m.COST_ERROR, COORDINATOR, of=(0.5, 0.9)),
            "percentunit",
            "|predicted - measured| / measured.",
            warn=0.3,
            alarm=1.0,
        ),
    ),
)

_MEMORY = Row(
    "KV memory",
    (
        Panel(
            "Blocks",
            (Query(total(m.KV_BLOCKS, COORDINATOR, by="state"), "{{state}}"),),
            "short",
            "used: of running responses; cached: of ended ones, for prompts with the same prefix.",
            Shape.STACK,
        ),
        Panel(
            "Prompt tokens in cache",
            (
                Query(
                    ratio(
                        rate(m.CACHED_TOKENS, CLUSTER),
                        rate(m.PROMPT_TOKENS, CLUSTER),
                    )
                ),
            ),
            "percentunit",
            "Share of prompt tokens with resident KV.",
            to="overview",
        ),
        Panel(
            "Evictions",
            (
                Query(rate(m.KV_EVICTIONS, COORDINATOR, by="owed"), "evictions, with a deadline: {{owed}}"),
                Query(rate(m.KV_EVICTED_BLOCKS, COORDINATOR), "blocks"),
            ),
            "short",
            "Per second. With a deadline: the response has a promised speed.",
        ),
        Panel(
            "Computed again",
            (Query(rate(m.KV_RECOMPUTED_TOKENS, COORDINATOR)),),
            "short",
            "Positions per second recomputed after eviction.",
        ),
        Panel(
            "Swapped",
            (Query(rate(m.KV_SWAPPED_BLOCKS, COORDINATOR, by="direction"), "{{direction}}"),),
            "short",
            "Blocks per second to host memory and back.",
        ),
        Panel(
            "Host memory for KV",
            (Query(total(m.KV_HOST_BLOCKS, COORDINATOR, by="state"), "{{state}}"),),
            "short",
            "Blocks; none without verifiers.swap_mib.",
            Shape.STACK,
        ),
    ),
)

BOARD = Board(
    "verifier",
    "Outrider: verifier",
    "Batches, predicted against measured time, memory and promised load.",
    (Variable.CLUSTER, Variable.COORDINATOR),
    (_NOW, _BATCHES, _COST_MODEL, _MEMORY),
)

"""Board: the verifier's batches, predicted against measured time, memory and admission."""

from lab.dashboards.board import Board, Panel, Query, Shape, Variable, row
from lab.dashboards.promql import COORDINATOR, COORDINATOR_LABEL, RATE, buckets, percentiles, rate, ratio, series, total
from serve_app import metrics as m

_NOW = row(
    "Now",
    Panel("Verifiers up", "short", Shape.NUMBER, width=6).showing(
        "Those that answer. While one restarts, its responses wait.",
        total(m.VERIFIER_READY, COORDINATOR),
    ),
    Panel("Busy", "percentunit", Shape.NUMBER, warn=0.9, alarm=0.98, width=6).showing(
        "Share of time, mean over verifiers; idle: nothing to verify.",
        f"1 - avg(rate({series(m.VERIFIER_IDLE_S, COORDINATOR)}[{RATE}]))",
    ),
    Panel("KV in use", "percentunit", Shape.NUMBER, warn=0.8, alarm=0.95, width=6).showing(
        "By running responses; cached KV can be freed at once.",
        ratio(total(m.KV_BLOCKS, COORDINATOR, 'state="used"'), total(m.KV_BLOCKS, COORDINATOR)),
    ),
    Panel("Promised of allowed load", "percentunit", Shape.NUMBER, warn=0.8, alarm=1.0, width=6, to="overview").showing(
        "Verifier time that promises need, of what admission allows. At 1 further promises wait or are refused.",
        ratio(
            total(m.PROMISED_LOAD, COORDINATOR, 'state="needed"'),
            total(m.PROMISED_LOAD, COORDINATOR, 'state="allowed"'),
        ),
    ),
)

_BATCHES = row(
    "Batches",
    Panel("Blocks in a batch", "short", Shape.HEAT).showing(
        "Steps per second by how many blocks they verified together.",
        Query(buckets(m.BATCH_BLOCKS, COORDINATOR), "{{le}}"),
    ),
    Panel("Limits of batches", "short", Shape.STACK).showing(
        "Steps per second. queue_empty: no more blocks; deadline, length: more would have made a response late.",
        Query(rate(m.BATCHES, COORDINATOR, by="reason"), "{{reason}}"),
    ),
    Panel("Queue", "short").showing(
        "Grows without end: the load exceeds the verifier's capacity.",
        Query(total(m.QUEUED_BLOCKS, COORDINATOR), "blocks that wait for a step"),
        Query(total(m.GENERATIONS, COORDINATOR, 'state="queued"'), "responses that wait for a place"),
    ),
    Panel("Queue and verify phases", "s", to="speculation").showing(
        "Of rounds that were asked for.",
        *(
            query
            for phase in ("queue", "verify")
            for query in percentiles(m.PHASE_S, COORDINATOR, f'phase="{phase}"', of=(0.5, 0.99), called=f"{phase} ")
        ),
    ),
    Panel("Idle", "short").showing(
        "Seconds per second, of all verifiers together.",
        rate(m.VERIFIER_IDLE_S, COORDINATOR),
    ),
    Panel("Failed passes", "short", to="fleet").showing(
        "Since the coordinators' start. pass: one block fails alone; memory: retried with fewer blocks.",
        Query(total(m.PASS_FAULTS, COORDINATOR, by="kind"), "{{kind}}"),
    ),
    Panel("Rounds lost with the verifier", "short", to="fleet").showing(
        "Since the coordinators' start. A lost round is verified again by the restarted verifier.",
        Query(total(m.VERIFIER_LOSSES, COORDINATOR), "rounds lost"),
        Query(total(m.SUSPENDED, COORDINATOR), "best effort paused"),
        Query(total(m.STALLED, COORDINATOR), "not read"),
    ),
)

_COST_MODEL = row(
    "Predicted against measured",
    Panel("Time of steps", "short").showing(
        "Seconds per second. Schedules, windows and admission go by the prediction.",
        Query(rate(m.PREDICTED_S, COORDINATOR), "predicted"),
        Query(rate(m.MEASURED_S, COORDINATOR), "measured"),
    ),
    Panel("Measured to predicted", "short", warn=1.2, alarm=1.5).showing(
        "1: right on average. Above: more is promised than can be kept; below: less than could be.",
        ratio(rate(m.MEASURED_S, COORDINATOR), rate(m.PREDICTED_S, COORDINATOR)),
    ),
    Panel("Error of a step", "percentunit", warn=0.3, alarm=1.0).showing(
        "|predicted - measured| / measured.",
        *percentiles(m.COST_ERROR, COORDINATOR, of=(0.5, 0.9)),
    ),
)

_MEMORY = row(
    "KV memory",
    Panel("Blocks", "short", Shape.STACK).showing(
        "used: of running responses; cached: of ended ones, for prompts with the same prefix.",
        Query(total(m.KV_BLOCKS, COORDINATOR, by="state"), "{{state}}"),
    ),
    Panel("Prompt tokens in cache", "percentunit", to="overview").showing(
        "Share of prompt tokens with resident KV, by coordinator. One far below the others: routing, or little memory.",
        Query(
            "1 - "
            + ratio(  # a coordinator that has never hit has no series of hits
                rate(m.PREFIX_TOKENS, COORDINATOR, 'outcome="miss"', by=COORDINATOR_LABEL),
                rate(m.PREFIX_TOKENS, COORDINATOR, by=COORDINATOR_LABEL),
            ),
            f"{{{{{COORDINATOR_LABEL}}}}}",
        ),
    ),
    Panel("Evictions", "short").showing(
        "Per second. With a deadline: the response has a promised speed.",
        Query(rate(m.KV_EVICTIONS, COORDINATOR, by="owed"), "evictions, with a deadline: {{owed}}"),
        Query(rate(m.KV_EVICTED_BLOCKS, COORDINATOR), "blocks"),
    ),
    Panel("Computed again", "count:tok/s").showing(
        "Positions per second recomputed after eviction.",
        rate(m.KV_RECOMPUTED_TOKENS, COORDINATOR),
    ),
    Panel("Swapped", "short").showing(
        "Blocks per second to host memory and back.",
        Query(rate(m.KV_SWAPPED_BLOCKS, COORDINATOR, by="direction"), "{{direction}}"),
    ),
    Panel("Host memory for KV", "short", Shape.STACK).showing(
        "Blocks; none without verifiers.swap_mib.",
        Query(total(m.KV_HOST_BLOCKS, COORDINATOR, by="state"), "{{state}}"),
    ),
)

BOARD = Board(
    "verifier",
    "Outrider: verifier",
    "Batches, predicted against measured time, memory and promised load.",
    (Variable.CLUSTER, Variable.COORDINATOR),
    (_NOW, _BATCHES, _COST_MODEL, _MEMORY),
)

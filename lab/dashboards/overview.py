"""Board: what clients notice of requests, first tokens, speeds and promises."""

from lab.dashboards.board import Board, Panel, Query, Row, Shape, Variable
from lab.dashboards.percentiles import percentiles
from lab.dashboards.promql import CLASS, CLUSTER, READY, events, quantile, rate, ratio, total, worst
from serve_app import metrics as m

_NUMBERS = Row(
    "Now",
    (
        Panel(
            "Responses running",
            (Query(total(m.RUNNING, CLUSTER)),),
            "short",
            "At all ingresses, including those that wait for a place.",
            Shape.NUMBER,
            width=4,
            to="verifier",
        ),
        Panel(
            "Tokens per second",
            (Query(rate(m.GENERATION_TOKENS, CLUSTER)),),
            "short",
            "Of all responses together, as sent to clients.",
            Shape.NUMBER,
            width=4,
            to="speculation",
        ),
        Panel(
            "First token, 99 of 100",
            (Query(quantile(0.99, m.TTFT_S, CLUSTER)),),
            "s",
            "From request to first chunk, waiting for admission included. High: see where blocks and responses queue.",
            Shape.NUMBER,
            warn=2.0,
            alarm=5.0,
            width=4,
            to="verifier",
        ),
        Panel(
            "Promises kept",
            (Query(ratio(rate(m.SLO_RESPONSES, CLASS, 'kept="yes"'), rate(m.SLO_RESPONSES, CLASS))),),
            "percentunit",
            "Of complete responses with a promised speed. No value: there were none.",
            Shape.NUMBER,
            warn=0.99,
            alarm=0.95,
            width=4,
        ),
        Panel(
            "Of output from drafts",
            (Query(ratio(rate(m.ACCEPTED_TOKENS, CLUSTER), rate(m.GENERATION_TOKENS, CLUSTER))),),
            "percentunit",
            "Accepted draft tokens, of all tokens sent to clients.",
            Shape.NUMBER,
            width=4,
            to="speculation",
        ),
        Panel(
            "Drafters ready",
            (Query(f"sum({worst(m.DRAFTERS, CLUSTER, READY, by='group')})"),),
            "short",
            "Devices that may be leased, of all groups.",
            Shape.NUMBER,
            width=4,
            to="fleet",
        ),
    ),
)

_REQUESTS = Row(
    "Requests",
    (
        Panel(
            "Responses by how they ended",
            (Query(rate(m.RESPONSES, CLUSTER, by="end"), "{{end}}"),),
            "reqps",
            "stop and length are complete; cancelled: the client left; refused: with a 4xx; failed: with a 5xx.",
            Shape.STACK,
        ),
        Panel(
            "Tokens",
            (
                Query(rate(m.PROMPT_TOKENS, CLUSTER), "prompts"),
                Query(rate(m.CACHED_TOKENS, CLUSTER), "of these in cache"),
                Query(rate(m.GENERATION_TOKENS, CLUSTER), "responses"),
            ),
            "short",
            "Per second. Prompt tokens in cache need no prefill.",
        ),
        Panel(
            "Responses running and waiting",
            (
                Query(total(m.GENERATIONS, CLUSTER, by="state"), "{{state}}"),
                Query(total(m.QUEUED_RESPONSES, CLUSTER, by="slo_class"), "waiting as {{slo_class}}"),
            ),
            "short",
            "At coordinators. Growing queues: verifier time, memory or places are short.",
            to="verifier",
        ),
    ),
)

_TIMES = Row(
    "Times",
    (
        Panel(
            "First token",
            percentiles(m.TTFT_S, CLUSTER),
            "s",
            "From request to first chunk.",
            width=6,
        ),
        Panel(
            "Between tokens",
            percentiles(m.INTER_TOKEN_S, CLUSTER),
            "s",
            "The time between two chunks, shared by the tokens of the later one.",
            width=6,
        ),
        Panel(
            "Whole responses",
            percentiles(m.E2E_S, CLUSTER),
            "s",
            "From request to last chunk.",
            width=6,
        ),
        Panel(
            "Waiting for admission, 95 of 100",
            (Query(quantile(0.95, m.ADMISSION_WAIT_S, CLASS, by="slo_class"), "{{slo_class}}"),),
            "s",
            "Of admitted responses.",
            width=6,
            to="verifier",
        ),
    ),
)

_PROMISES = Row(
    "Promises",
    (
        Panel(
            "Promises kept by class",
            (
                Query(
                    ratio(
                        rate(m.SLO_RESPONSES, CLASS, 'kept="yes"', by="slo_class"),
                        rate(m.SLO_RESPONSES, CLASS, by="slo_class"),
                    ),
                    "{{slo_class}}",
                ),
            ),
            "percentunit",
            "Share kept of the complete responses with a promised speed.",
            warn=0.99,
            alarm=0.95,
        ),
        Panel(
            "Goodput by class",
            (Query(rate(m.SLO_RESPONSES, CLASS, 'kept="yes"', by="slo_class"), "{{slo_class}}"),),
            "reqps",
            "Responses per second with their promise kept.",
            Shape.STACK,
        ),
        Panel(
            "Speed of responses, the slowest tenth",
            (Query(quantile(0.1, m.RESPONSE_SPEED, CLASS, by="slo_class"), "{{slo_class}}"),),
            "short",
            "Tokens per second from the first token to the last: nine in ten responses of the class were faster.",
        ),
        Panel(
            "Broken promises by cause",
            (Query(rate(m.SLO_BROKEN, CLASS, by="slo_class, cause"), "{{slo_class}}: {{cause}}"),),
            "reqps",
            "Of most of a response's late rounds: they waited (queue), or passes took longer than usual (compute).",
            Shape.STACK,
            to="verifier",
        ),
        Panel(
            "Late rounds by cause",
            (
                Query(
                    ratio(
                        rate(m.SLO_LATE_ROUNDS, CLASS, by="slo_class, cause"),
                        f"on (slo_class) group_left {rate(m.SLO_ROUNDS, CLASS, by='slo_class')}",
                    ),
                    "{{slo_class}}: {{cause}}",
                ),
                Query(
                    ratio(rate(m.SLO_BEHIND, CLASS, by="slo_class"), rate(m.SLO_ROUNDS, CLASS, by="slo_class")),
                    "{{slo_class}}: response behind",
                ),
            ),
            "percentunit",
            "Of rounds of promised responses: slower than promised, each taken alone. They need not break a promise.",
        ),
        Panel(
            "Admitted, lowered, refused",
            (
                Query(rate(m.ADMITTED, CLASS, by="slo_class"), "admitted as {{slo_class}}"),
                Query(rate(m.LOWERED, CLASS, by="slo_class"), "would have preferred {{slo_class}}"),
                Query(rate(m.NOT_ADMITTED, CLASS, by="slo_class, reason"), "{{slo_class}} refused: {{reason}}"),
            ),
            "reqps",
            "What admission decided; load is verifier time, memory is KV. The promised load shows the capacity left.",
            to="verifier",
        ),
        Panel(
            "Promises as counted by coordinators",
            (Query(rate(m.ENDED_KEPT, CLASS, by="slo_class, kept"), "{{slo_class}}: {{kept}}"),),
            "reqps",
            "Responses that completed, by whether the promise was kept.",
            Shape.STACK,
        ),
        Panel(
            "Responses per second",
            (Query(events(m.E2E_S, CLUSTER)),),
            "reqps",
            "Complete ones.",
        ),
    ),
)

BOARD = Board(
    "overview",
    "Outrider: overview",
    "What clients notice, and promises.",
    (Variable.CLUSTER, Variable.CLASS),
    (_NUMBERS, _REQUESTS, _TIMES, _PROMISES),
)

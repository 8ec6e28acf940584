"""Board: what clients notice of requests, first tokens, speeds and promises."""

from lab.dashboards.board import Board, Panel, Query, Shape, Variable, row
from lab.dashboards.promql import (
    BY_CLUSTER,
    CLASS,
    CLUSTER,
    READY,
    events,
    healthy,
    percentiles,
    quantile,
    rate,
    ratio,
    series,
    total,
    wanted,
    worst,
)
from serve_app import metrics as m


def _best(modes: str) -> str:
    """Speed of a response under the faster of these speculation modes."""
    matcher = f'arm=~"{modes}"'
    return f"max(avg by (arm) ({series(m.TUNER_REWARD, CLUSTER, matcher)}))"


_NUMBERS = row(
    "Now",
    Panel("Responses running", "short", Shape.NUMBER, width=3, to="verifier").showing(
        "At all ingresses, including those that wait for a place.",
        total(m.RUNNING, CLUSTER),
    ),
    Panel("Tokens per second", "count:tok/s", Shape.NUMBER, width=3, to="speculation").showing(
        "Of all responses together, as sent to clients.",
        rate(m.GENERATION_TOKENS, CLUSTER),
    ),
    Panel("First token, 99 of 100", "s", Shape.NUMBER, warn=2.0, alarm=5.0, width=3, to="verifier").showing(
        "From request to first chunk, waiting for admission included. High: see where blocks and responses queue.",
        quantile(0.99, m.TTFT_S, CLUSTER),
    ),
    Panel("Promises kept", "percentunit", Shape.NUMBER, warn=0.99, alarm=0.95, width=3).showing(
        "Of complete responses with a promised speed. No value: there were none.",
        ratio(rate(m.SLO_RESPONSES, CLASS, 'kept="yes"'), rate(m.SLO_RESPONSES, CLASS)),
    ),
    Panel("Of output from drafts", "percentunit", Shape.NUMBER, width=3, to="speculation").showing(
        "Accepted draft tokens, of all tokens sent to clients.",
        ratio(rate(m.ACCEPTED_TOKENS, CLUSTER), rate(m.GENERATION_TOKENS, CLUSTER)),
    ),
    Panel("Drafters ready", "short", Shape.NUMBER, width=3, to="fleet").showing(
        "Devices that may be leased, of all groups.",
        f"sum({worst(m.DRAFTERS, CLUSTER, READY, by=f'{BY_CLUSTER}, group')})",
    ),
    Panel("Gain from devices", "percentunit", Shape.NUMBER, warn=0.0, alarm=-0.03, width=3, to="speculation").showing(
        "Speed of a response with devices' drafts against without, as measured now. No value: windows are fixed.",
        f"{_best('draft|lookup_draft')} / {_best('none|lookup')} - 1",
    ),
    Panel("Replicas missing", "short", Shape.NUMBER, warn=1.0, alarm=1.0, width=3, to="fleet").showing(
        "Coordinators (one for each verifier) and ingresses that Serve wants and does not have.",
        f"sum({wanted(CLUSTER)}) - (sum({healthy(CLUSTER)}) or 0 * sum({wanted(CLUSTER)}))",
    ),
)

_REQUESTS = row(
    "Requests",
    Panel("Responses by how they ended", "reqps", Shape.STACK).showing(
        "stop and length are complete; cancelled: the client left; refused: with a 4xx; failed: with a 5xx.",
        Query(rate(m.RESPONSES, CLUSTER, by="end"), "{{end}}"),
    ),
    Panel("Tokens", "count:tok/s").showing(
        "Per second. Prompt tokens in cache need no prefill.",
        Query(rate(m.PROMPT_TOKENS, CLUSTER), "prompts"),
        Query(rate(m.CACHED_TOKENS, CLUSTER), "of these in cache"),
        Query(rate(m.GENERATION_TOKENS, CLUSTER), "responses"),
    ),
    Panel("Responses running and waiting", "short", to="verifier").showing(
        "At coordinators. Growing queues: verifier time, memory or places are short.",
        Query(total(m.GENERATIONS, CLUSTER, by="state"), "{{state}}"),
        Query(total(m.QUEUED_RESPONSES, CLUSTER, by="slo_class"), "waiting as {{slo_class}}"),
    ),
    Panel("Length of prompts", "count:tok", width=12).showing(
        "Long ones take long to prefill: their first tokens come late.",
        *percentiles(m.PROMPT_LENGTH, CLUSTER),
    ),
    Panel("Length of responses", "count:tok", width=12).showing(
        "Of complete ones.",
        *percentiles(m.RESPONSE_LENGTH, CLUSTER),
    ),
)

_TIMES = row(
    "Times",
    Panel("First token", "s", width=8).showing(
        "From request to first chunk.",
        *percentiles(m.TTFT_S, CLUSTER),
    ),
    Panel("First token by phase, 95 of 100", "s", width=8, to="verifier").showing(
        "read: parsing and tokenising; route: to a coordinator; admission; queue: for the verifier; prefill.",
        Query(quantile(0.95, m.FIRST_TOKEN_PHASE_S, CLUSTER, by="phase"), "{{phase}}"),
    ),
    Panel("Waiting for admission, 95 of 100", "s", width=8, to="verifier").showing(
        "Of admitted responses.",
        Query(quantile(0.95, m.ADMISSION_WAIT_S, CLASS, by="slo_class"), "{{slo_class}}"),
    ),
    Panel("Between tokens", "s", width=12).showing(
        "The time between two chunks, shared by the tokens of the later one.",
        *percentiles(m.INTER_TOKEN_S, CLUSTER),
    ),
    Panel("Whole responses", "s", width=12).showing(
        "From request to last chunk.",
        *percentiles(m.E2E_S, CLUSTER),
    ),
)

_PROMISES = row(
    "Promises",
    Panel("Promises kept by class", "percentunit", warn=0.99, alarm=0.95).showing(
        "Share kept of the complete responses with a promised speed.",
        Query(
            ratio(
                rate(m.SLO_RESPONSES, CLASS, 'kept="yes"', by="slo_class"),
                rate(m.SLO_RESPONSES, CLASS, by="slo_class"),
            ),
            "{{slo_class}}",
        ),
    ),
    Panel("Goodput by class", "reqps", Shape.STACK).showing(
        "Responses per second with their promise kept.",
        Query(rate(m.SLO_RESPONSES, CLASS, 'kept="yes"', by="slo_class"), "{{slo_class}}"),
    ),
    Panel("Speed of responses, the slowest tenth", "count:tok/s").showing(
        "Tokens per second from the first token to the last: nine in ten responses of the class were faster.",
        Query(quantile(0.1, m.RESPONSE_SPEED, CLASS, by="slo_class"), "{{slo_class}}"),
    ),
    Panel("Broken promises by cause", "reqps", Shape.STACK, to="verifier").showing(
        "Of most of a response's late rounds: they waited (queue), or passes took longer than usual (compute).",
        Query(rate(m.SLO_BROKEN, CLASS, by="slo_class, cause"), "{{slo_class}}: {{cause}}"),
    ),
    Panel("Late rounds by cause", "percentunit").showing(
        "Of rounds of promised responses: slower than promised, each taken alone. They need not break a promise.",
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
    Panel("Admitted, lowered, refused", "reqps", to="verifier").showing(
        "What admission decided; load is verifier time, memory is KV. The promised load shows the capacity left.",
        Query(rate(m.ADMITTED, CLASS, by="slo_class"), "admitted as {{slo_class}}"),
        Query(rate(m.LOWERED, CLASS, by="slo_class"), "would have preferred {{slo_class}}"),
        Query(rate(m.NOT_ADMITTED, CLASS, by="slo_class, reason"), "{{slo_class}} refused: {{reason}}"),
    ),
    Panel("Promises as counted by coordinators", "reqps", Shape.STACK).showing(
        "Responses that completed, by whether the promise was kept.",
        Query(rate(m.ENDED_KEPT, CLASS, by="slo_class, kept"), "{{slo_class}}: {{kept}}"),
    ),
    Panel("Responses per second", "reqps").showing(
        "Complete ones.",
        events(m.E2E_S, CLUSTER),
    ),
)

BOARD = Board(
    "overview",
    "Outrider: overview",
    "What clients notice, and promises.",
    (Variable.CLUSTER, Variable.CLASS),
    (_NUMBERS, _REQUESTS, _TIMES, _PROMISES),
)

"""Table I as WISV prints it (Wireless-Informed Semantic Verification for Distributed Speculative Decoding).

Llama-3.2-1B-Instruct drafts for Llama-3.1-8B-Instruct on GSM8K, RTT 50 ms, threshold 12 of 16. ``wisv`` is its
full-hidden upload; the selective one makes the same decisions, and its latencies are only drawn (Figure 4).
"""

from dataclasses import dataclass

from lab.bench.papers.wisv.rounds import Method

RTT_S = 0.050
RATES_BPS = (500e6, 20e6)
WINDOWS = (10, 16, 24, 32, 64)
METHODS = (Method.SD_GREEDY, Method.SD_REJECT, Method.WISV_FULL)  # those of the table


@dataclass(frozen=True, slots=True)
class WisvRow:
    """One method at one window and rate; means over responses. AAL * rounds = throughput * latency in every row."""

    rate_bps: float
    window: int
    method: Method
    latency_s: float
    aal_tokens: float
    rounds: float
    tokens_per_s: float


_GREEDY, _REJECT, _WISV = METHODS
TABLE_1 = (
    WisvRow(500e6, 10, _GREEDY, 7.616, 6.607, 31.912, 27.683),
    WisvRow(500e6, 10, _REJECT, 8.962, 6.595, 32.036, 23.577),
    WisvRow(500e6, 10, _WISV, 6.634, 7.478, 27.736, 31.267),
    WisvRow(500e6, 16, _GREEDY, 8.842, 8.336, 25.128, 23.689),
    WisvRow(500e6, 16, _REJECT, 10.543, 8.305, 25.244, 19.886),
    WisvRow(500e6, 16, _WISV, 7.317, 9.991, 20.732, 28.309),
    WisvRow(500e6, 24, _GREEDY, 11.074, 9.513, 22.020, 18.916),
    WisvRow(500e6, 24, _REJECT, 13.313, 9.486, 22.132, 15.770),
    WisvRow(500e6, 24, _WISV, 8.604, 12.142, 17.044, 24.052),
    WisvRow(500e6, 32, _GREEDY, 13.525, 10.128, 20.680, 15.484),
    WisvRow(500e6, 32, _REJECT, 16.376, 10.060, 20.848, 12.806),
    WisvRow(500e6, 32, _WISV, 10.021, 13.522, 15.260, 20.592),
    WisvRow(500e6, 64, _GREEDY, 24.272, 10.789, 19.272, 8.566),
    WisvRow(500e6, 64, _REJECT, 29.570, 10.708, 19.424, 7.033),
    WisvRow(500e6, 64, _WISV, 16.653, 15.489, 13.152, 12.233),
    WisvRow(20e6, 10, _GREEDY, 7.617, 6.607, 31.912, 27.681),
    WisvRow(20e6, 10, _REJECT, 40.542, 6.586, 32.040, 5.205),
    WisvRow(20e6, 10, _WISV, 6.816, 7.805, 27.144, 31.083),
    WisvRow(20e6, 16, _GREEDY, 8.843, 8.336, 25.128, 23.687),
    WisvRow(20e6, 16, _REJECT, 50.096, 8.335, 25.112, 4.179),
    WisvRow(20e6, 16, _WISV, 7.553, 10.630, 19.936, 28.057),
    WisvRow(20e6, 24, _GREEDY, 11.075, 9.513, 22.020, 18.915),
    WisvRow(20e6, 24, _REJECT, 65.493, 9.505, 22.072, 3.203),
    WisvRow(20e6, 24, _WISV, 8.832, 13.230, 15.976, 23.930),
    WisvRow(20e6, 32, _GREEDY, 13.527, 10.128, 20.680, 15.483),
    WisvRow(20e6, 32, _REJECT, 81.731, 10.104, 20.744, 2.564),
    WisvRow(20e6, 32, _WISV, 10.140, 14.979, 13.892, 20.522),
    WisvRow(20e6, 64, _GREEDY, 24.274, 10.789, 19.272, 8.566),
    WisvRow(20e6, 64, _REJECT, 151.663, 10.763, 19.368, 1.374),
    WisvRow(20e6, 64, _WISV, 17.394, 17.343, 12.092, 12.057),
)


def printed(method: Method, rate_bps: float) -> tuple[WisvRow, ...]:
    """A method's rows at a rate, by growing window."""
    return tuple(row for row in TABLE_1 if (row.method, row.rate_bps) == (method, rate_bps))

"""DSSD's tables 2 and 3: seconds of communication and speed-up of a response under their conditions.

Acceptance, rounds and step times are measured here, link times follow eq. 5, 9 and 13. The papers' protocols are
charged as they charge them (distributions only), ours in full.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from bench.papers.coupling import Scheme
from bench.papers.measured import Measured, Series, measure
from bench.papers.pair import Amount, Pair, StepTimes, measure_steps, pair_rows
from bench.papers.published import DSSD_LLM_S, DSSD_ROWS, DSSD_STEP_RATIO, DSSD_TOKENS, DSSD_TOP_K, DssdRow
from bench.papers.rounds import (
    RoundShape,
    candidate_plan,
    dsd_comm_s,
    dssd_comm_s,
    formula_shape,
    row_bits,
    speed_up,
)
from cluster.reports.tables import show_table
from outrider.contracts.requests import SamplingParams
from outrider.wire.bits import id_bits

PROB_BITS = 32  # a probability of a row: what the paper's DSD column implies, and the only lossless width here
SCALAR_BITS = 24
_WINDOWS = (4, 6, 8)


@dataclass(frozen=True, slots=True)
class Result:
    """One protocol under one condition.

    Attributes:
        comm_s: of a response of 128 tokens.
        speed_up: with step times measured here; ``speed_up_paper`` with those that reproduce the paper's Table 2.
    """

    row: DssdRow
    protocol: str
    rounds: float
    comm_s: float
    speed_up: float
    speed_up_paper: float


@dataclass(frozen=True, slots=True)
class Sampling:
    """One way to sample, measured. ``support``: tokens with any probability in a target row."""

    measured: Measured
    vocab: int
    support: int

    @property
    def ratio(self) -> Series:
        """The ratio rule, whole draft rows."""
        return self.measured.series[Scheme.SINGLE, self.vocab]

    @property
    def shared_noise(self) -> Series:
        """Token ids only."""
        return self.measured.series[Scheme.SHARED_NOISE, self.vocab]


def reproduce_dssd(pair: Pair, amount: Amount) -> dict[str, object]:
    """Measure, print, and return what was found."""
    vocab, widths = pair.target.vocab_size, (1, *(window + 1 for window in _WINDOWS))
    steps = measure_steps(pair, target_widths=widths, drafter_widths=(1,), repeats=amount.repeats)
    print(steps)
    found: dict[str, object] = {"steps": steps}
    for name, params in (("top-k 10", SamplingParams(top_k=DSSD_TOP_K)), ("whole vocabulary", SamplingParams())):
        kept = {Scheme.SINGLE: (vocab,), Scheme.SHARED_NOISE: (vocab,)}
        sampling = Sampling(measure(pair_rows(pair, params, amount), kept), vocab, params.top_k or vocab)
        under = [result for row in DSSD_ROWS for result in results(sampling, row, steps)]
        _show_rounds(name, sampling)
        _show_results(name, under)
        found[name] = {"acceptance": sampling.ratio.token_acceptance, "results": under}
    return found


def results(sampling: Sampling, row: DssdRow, steps: StepTimes) -> list[Result]:
    """Every protocol under one condition."""
    window = row.window
    here = (steps.target_s[1], window * steps.drafter_s[1], steps.target_s[window + 1])
    paper = (DSSD_LLM_S, window * DSSD_STEP_RATIO * DSSD_LLM_S, DSSD_LLM_S)
    found = []
    for protocol, shape, comm_s in _rounds(sampling, row):
        speeds = [speed_up(shape.tokens, plain_s, draft_s, comm_s, llm_s) for plain_s, draft_s, llm_s in (here, paper)]
        rounds = DSSD_TOKENS / shape.tokens
        found.append(Result(row, protocol, rounds, rounds * comm_s, *speeds))
    return found


def _rounds(sampling: Sampling, row: DssdRow) -> list[tuple[str, RoundShape, float]]:
    """Protocol, average round and its communication seconds: DSD and DSSD as the paper charges them, then ours."""
    window, rate_bps, ntt_s = row.window, row.rate_bps, row.ntt_s
    shape, noise_shape = sampling.ratio.shape(window), sampling.shared_noise.shape(window)
    ids, whole = id_bits(sampling.vocab), row_bits(sampling.vocab, sampling.vocab, PROB_BITS)
    sparse = row_bits(sampling.vocab, sampling.support, PROB_BITS)
    feedback = ids + id_bits(window + 1)  # the next token, and how many were accepted
    small_s = (window * (ids + SCALAR_BITS) + feedback) / rate_bps
    found = [
        ("dsd", shape, dsd_comm_s(window, whole, rate_bps, ntt_s)),
        ("dssd", shape, dssd_comm_s(shape.rejection, whole, rate_bps, ntt_s)),
        ("dssd, row not charged", shape, ntt_s),
    ]
    if sparse < whole:  # truncation by the request itself leaves a row smaller than any number of draws
        sparse_s = small_s + dssd_comm_s(shape.rejection, sparse, rate_bps, ntt_s)
        found.append(("ours: dssd, sparse row", shape, sparse_s))
    else:
        plan = candidate_plan(sampling.ratio.all_acceptances, ids + PROB_BITS, whole, rate_bps * ntt_s)
        again_s = shape.rejection * plan.fallback * ntt_s
        drawn_s = small_s + dssd_comm_s(shape.rejection, plan.down_bits, rate_bps, ntt_s) + again_s
        found.append(("ours: dssd_candidates", shape, drawn_s))
    found.append(("ours: token_ids", noise_shape, (window * ids + feedback) / rate_bps + ntt_s))
    return found


def _show_rounds(name: str, sampling: Sampling) -> None:
    ratio, noise = sampling.ratio.token_acceptance, sampling.shared_noise.token_acceptance
    print(
        f"\nTemperature 1, {name}, {sampling.measured.positions} positions: acceptance {ratio} (paper, top-k 10: 0.61),"
        f" shared noise {noise}"
    )
    rows = []
    for window in _WINDOWS:
        recorded, formula = sampling.ratio.shape(window), formula_shape(ratio.mean, window)
        rows.append(
            (
                window,
                f"{recorded.tokens:.3f} / {formula.tokens:.3f}",
                f"{recorded.rejection:.3f} / {formula.rejection:.3f}",
                f"{sampling.shared_noise.shape(window).tokens:.3f}",
            )
        )
    header = ("gamma", "tokens per round", "share with a rejection", "shared noise: tokens per round")
    show_table("Rounds: along the recorded responses / by eq. 8 and 9 with the mean acceptance", header, rows)


def _show_results(name: str, found: Sequence[Result]) -> None:
    protocols = list(dict.fromkeys(result.protocol for result in found))
    by_key = {(result.row, result.protocol): result for result in found}
    published = {"comm_s": "comm_s", "speed_up": "speed_up", "speed_up_paper": "speed_up"}
    for title, field in (
        (f"T_comm in s of {DSSD_TOKENS} tokens", "comm_s"),
        ("Speed-up with step times measured here", "speed_up"),
        (
            f"Speed-up with c = {DSSD_STEP_RATIO} and T_LLM {DSSD_LLM_S * 1e3:.0f} ms, which fit Table 2",
            "speed_up_paper",
        ),
    ):
        rows = [
            (
                *(row, *(f"{getattr(by_key[row, protocol], field):.2f}" for protocol in protocols)),
                *(_pair(getattr(row, published[field])), "" if field == "comm_s" else _pair(row.speed_up_table_3)),
            )
            for row in DSSD_ROWS
        ]
        header = ("NTT, rate, gamma", *protocols, "Table 2: dsd / dssd", "" if field == "comm_s" else "Table 3")
        show_table(f"{title}; {name}", header, rows)


def _pair(printed: tuple[float, float] | None) -> str:
    return "-" if printed is None else f"{printed[0]:.2f} / {printed[1]:.2f}"

"""DSSD's tables 2 and 3: seconds of communication and speed-up of a response under their conditions.

Acceptance and rounds are measured here, link times follow eq. 5, 9 and 13, step times are fitted to Table 2. The
papers' protocols are charged as they charge them (distributions only), ours in full.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from cluster.reports.tables import show_table
from lab.bench.papers.coupling import Scheme
from lab.bench.papers.measured import Amount, Pair, Series, measure, pair_rows
from lab.bench.papers.published import DSSD_LLM_S, DSSD_ROWS, DSSD_STEP_RATIO, DSSD_TOKENS, DSSD_TOP_K, DssdRow
from lab.bench.papers.rounds import PROB_BITS, SCALAR_BITS, RoundShape, candidate_plan, row_bits, rows_s, speed_up
from outrider.contracts.requests import SamplingParams
from outrider.wire.bits import id_bits


@dataclass(frozen=True, slots=True)
class Result:
    """One protocol under one condition: rounds and seconds of communication of a response of 128 tokens."""

    row: DssdRow
    protocol: str
    rounds: float
    comm_s: float
    speed_up: float


@dataclass(frozen=True, slots=True)
class Sampling:
    ratio: Series  # the ratio rule, whole draft rows
    shared_noise: Series  # token ids only
    vocab: int
    support: int  # tokens of nonzero probability in a target row


def reproduce_dssd(pair: Pair, amount: Amount) -> dict[str, object]:
    vocab = pair.target.vocab_size
    found: dict[str, object] = {}
    for name, params in (("top-k 10", SamplingParams(top_k=DSSD_TOP_K)), ("whole vocabulary", SamplingParams())):
        kept = {Scheme.SINGLE: (vocab,), Scheme.SHARED_NOISE: (vocab,)}
        measured = measure(pair_rows(pair, params, amount), kept)
        ratio, shared_noise = measured.series.values()
        sampling = Sampling(ratio, shared_noise, vocab, params.top_k or vocab)
        accepted = {"ratio": sampling.ratio.token_acceptance, "shared_noise": sampling.shared_noise.token_acceptance}
        under = [result for row in DSSD_ROWS for result in results(sampling, row)]
        _show_results(
            f"Seconds of communication of {DSSD_TOKENS} tokens, and speed-up at T_LLM {DSSD_LLM_S * 1e3:.0f} ms,"
            f" c = {DSSD_STEP_RATIO}; temperature 1, {name}: {measured.positions} positions,"
            f"\nacceptance {accepted['ratio']} (paper, top-k 10: 0.61), shared noise {accepted['shared_noise']}",
            under,
        )
        found[name] = {"acceptance": accepted, "results": under}
    return found


def results(sampling: Sampling, row: DssdRow) -> list[Result]:
    draft_s = row.window * DSSD_STEP_RATIO * DSSD_LLM_S
    found = []
    for protocol, shape, comm_s in _rounds(sampling, row):
        faster = speed_up(shape.tokens, DSSD_LLM_S, draft_s, comm_s, DSSD_LLM_S)
        rounds = DSSD_TOKENS / shape.tokens
        found.append(Result(row, protocol, rounds, rounds * comm_s, faster))
    return found


def _rounds(sampling: Sampling, row: DssdRow) -> list[tuple[str, RoundShape, float]]:
    """Protocol, average round and its communication seconds: DSD and DSSD as the paper charges them, then ours."""
    window, rate_bps, ntt_s = row.window, row.rate_bps, row.ntt_s
    shape, noise_shape = sampling.ratio.shape(window), sampling.shared_noise.shape(window)
    ids, whole = id_bits(sampling.vocab), row_bits(sampling.vocab, sampling.vocab, PROB_BITS)
    sparse = row_bits(sampling.vocab, sampling.support, PROB_BITS)
    feedback = ids + id_bits(window + 1)  # the next token, and the number accepted
    small_s = (window * (ids + SCALAR_BITS) + feedback) / rate_bps
    found = [
        ("dsd", shape, rows_s(window, whole, rate_bps, ntt_s)),
        ("dssd", shape, rows_s(shape.rejection, whole, rate_bps, ntt_s)),
        ("dssd, row not charged", shape, ntt_s),
    ]
    if sparse < whole:  # the request's own truncation leaves a row smaller than any number of draws
        sparse_s = small_s + rows_s(shape.rejection, sparse, rate_bps, ntt_s)
        found.append(("ours: dssd, sparse row", shape, sparse_s))
    else:
        plan = candidate_plan(sampling.ratio.all_acceptances, ids + PROB_BITS, whole, rate_bps * ntt_s)
        again_s = shape.rejection * plan.fallback * ntt_s
        drawn_s = small_s + rows_s(shape.rejection, plan.down_bits, rate_bps, ntt_s) + again_s
        found.append(("ours: dssd_candidates", shape, drawn_s))
    found.append(("ours: token_ids", noise_shape, (window * ids + feedback) / rate_bps + ntt_s))
    return found


def _show_results(title: str, found: Sequence[Result]) -> None:
    protocols = list(dict.fromkeys(result.protocol for result in found))
    by_key = {(result.row, result.protocol): result for result in found}
    rows = []
    for row in DSSD_ROWS:
        ours = [by_key[row, protocol] for protocol in protocols]
        rows.append(
            (
                *(row, *(f"{one.comm_s:.2f}, {one.speed_up:.2f}" for one in ours)),
                *(_pair(printed) for printed in (row.comm_s, row.speed_up, row.speed_up_table_3)),
            )
        )
    printed = ("T_comm in Table 2", "speed-up", "in Table 3: dsd / dssd")
    show_table(title, ("NTT, rate, gamma", *protocols, *printed), rows)


def _pair(printed: tuple[float, float] | None) -> str:
    return "-" if printed is None else f"{printed[0]:.2f} / {printed[1]:.2f}"

"""What DSSD's tables say of the run behind them: Table 1 recomputed, Table 2's accounting taken apart.

Pure arithmetic on published figures; nothing here is measured.
"""

import statistics
from dataclasses import dataclass

from bench.paper_published import (
    DSSD_ALPHA,
    DSSD_ALPHAS,
    DSSD_COMM_MS,
    DSSD_DOWN_S,
    DSSD_HOMOGENEOUS,
    DSSD_NTT_S,
    DSSD_STEP_RATIO,
    DSSD_TOKENS,
    DSSD_VOCAB,
    Homogeneous,
)
from bench.rounds import dsd_comm_s, dssd_comm_s, formula_shape, row_bits, speed_up

_RATIO = DSSD_STEP_RATIO["6.7B"]
_VALUE_BITS = 32  # with OPT's vocabulary, the width that yields Table 2's DSD column


def table_1_ms() -> dict[int, tuple[float, ...]]:
    """DSSD Table 1 by eq. 9, by window and then acceptance."""
    return {
        window: tuple(
            1e3 * dssd_comm_s(formula_shape(alpha, window).rejection, DSSD_DOWN_S, 1.0, DSSD_NTT_S)
            for alpha in DSSD_ALPHAS
        )
        for window in DSSD_COMM_MS
    }


def table_1_max_difference_ms() -> float:
    """Largest difference between Table 1 as printed and eq. 9."""
    ours = table_1_ms()
    return max(
        abs(mine - theirs)
        for window, printed in DSSD_COMM_MS.items()
        for mine, theirs in zip(ours[window], printed, strict=True)
    )


@dataclass(frozen=True, slots=True)
class Reconstruction:
    """A row of Table 2 (OPT-6.7B) from as few assumptions as reproduce it.

    Attributes:
        rounds: of the whole response: DSSD's T_com divided by NTT, as no row is charged in it.
        dsd_comm_s: eq. 5 over those rounds.
        dssd_comm_s: eq. 9 over those rounds, the row charged (at the published acceptance).
        dsd_speed_up: eq. 6 at ``implied_llm_s``.
        dssd_speed_up: eq. 13 likewise, the row charged.
        dssd_speed_up_uncharged: likewise with T_com as printed.
    """

    row: Homogeneous
    rounds: float
    dsd_comm_s: float
    dssd_comm_s: float
    dsd_speed_up: float
    dssd_speed_up: float
    dssd_speed_up_uncharged: float

    @property
    def most_tokens(self) -> float:
        """That so many rounds can commit."""
        return _most_tokens(self.row, self.rounds)

    @property
    def possible(self) -> bool:
        """Whether that is a whole response; the row's speed-ups mean something else if not."""
        return self.most_tokens >= DSSD_TOKENS


def reconstruct_table_2() -> list[Reconstruction]:
    """Every row."""
    bits = row_bits(DSSD_VOCAB, DSSD_VOCAB, _VALUE_BITS)
    step_s = implied_llm_s()
    found = []
    for row, rounds in _rows_and_rounds():
        shape = formula_shape(DSSD_ALPHA["6.7B"], row.window)
        dsd_s = dsd_comm_s(row.window, bits, row.rate_bps, row.ntt_s)
        dssd_s = dssd_comm_s(shape.rejection, bits, row.rate_bps, row.ntt_s)
        tokens, draft_s = DSSD_TOKENS / rounds, row.window * _RATIO * step_s
        found.append(
            Reconstruction(
                row=row,
                rounds=rounds,
                dsd_comm_s=rounds * dsd_s,
                dssd_comm_s=rounds * dssd_s,
                dsd_speed_up=speed_up(tokens, step_s, draft_s, dsd_s, step_s),
                dssd_speed_up=speed_up(tokens, step_s, draft_s, dssd_s, step_s),
                dssd_speed_up_uncharged=speed_up(tokens, step_s, draft_s, row.dssd_comm_s / rounds, step_s),
            )
        )
    return found


def implied_llm_s() -> float:
    """T_LLM that Table 2's DSD column implies at the printed c: the median of its possible rows.

    Solves speed-up = 128 T / (rounds (window c + 1) T + T_com) for T.
    """
    found = []
    for row, rounds in _rows_and_rounds():
        if _most_tokens(row, rounds) >= DSSD_TOKENS:
            compute = rounds * (row.window * _RATIO + 1.0)
            found.append(row.dsd_speed_up * row.dsd_comm_s / (DSSD_TOKENS - row.dsd_speed_up * compute))
    return statistics.median(found)


def _rows_and_rounds() -> list[tuple[Homogeneous, float]]:
    """A row without NTT takes the rounds of the next one, which differs in NTT alone."""
    rounds = [row.dssd_comm_s / row.ntt_s if row.ntt_s else None for row in DSSD_HOMOGENEOUS]
    known = next(count for count in rounds if count is not None)
    return [(row, known if count is None else count) for row, count in zip(DSSD_HOMOGENEOUS, rounds, strict=True)]


def _most_tokens(row: Homogeneous, rounds: float) -> float:
    return rounds * (row.window + 1)

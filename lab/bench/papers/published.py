"""Figures as printed in the papers, to compare with ours. Figures that a paper only plots are not here.

TSLT: Fast Collaborative Inference via Distributed Speculative Decoding. DSSD: Efficient Edge-Device LLM Deployment via
Distributed Split Speculative Decoding (arXiv 2507.12000).
"""

from dataclasses import dataclass

# TSLT section 5: 68M-Llama drafts, 7B-Llama verifies, two A800; figures 3 to 6 are plots.
TSLT_EXPANSION = (2, 2, 2)
TSLT_KEPT_SHARES = (1.0, 0.1, 0.01, 0.001)  # 32,000, 3,200, 320 and 32 logits; the mass of 320 is 0.85 (section 5.1)
# It prints no step times. Reading a model's fp16 weights once on an A800 (2.04 TB/s) bounds them from below.
TSLT_LLM_S = 6.74e9 * 2 / 2.04e12
TSLT_STEP_RATIO = 68e6 / 6.74e9  # T_SLM / T_LLM on the same card, by the same bound

# DSSD section 4: OPT-125M drafts for OPT-6.7B; 128 tokens at temperature 1, top-k 10, acceptance 0.61.
DSSD_TOKENS = 128
DSSD_TOP_K = 10
DSSD_STEP_RATIO = 0.1  # c = T_SLM / T_LLM (section 4.2)
DSSD_LLM_S = 0.152  # not printed; Table 2's DSD speed-ups imply it at that ratio (docs/archive/protocols-and-papers.md)


@dataclass(frozen=True, slots=True)
class DssdRow:
    """A row of DSSD Table 2, and of Table 3 where it has the same condition; times are of a whole response."""

    ntt_s: float
    rate_bps: float
    window: int
    comm_s: tuple[float, float] | None  # DSD, DSSD
    speed_up: tuple[float, float] | None
    speed_up_table_3: tuple[float, float] | None  # heterogeneous devices

    def __str__(self) -> str:
        """``20 ms, 100 Mb/s, 8``."""
        return f"{self.ntt_s * 1e3:.0f} ms, {self.rate_bps / 1e6:.0f} Mb/s, {self.window}"


DSSD_ROWS = (
    DssdRow(0.000, 100e6, 8, (3.91, 0.01), (1.51, 2.28), (0.88, 0.98)),
    DssdRow(0.020, 100e6, 8, (4.60, 0.62), (1.41, 2.31), (0.85, 0.92)),  # Table 3 prints it again: 0.93, 1.04
    DssdRow(0.050, 10e6, 8, (41.44, 1.55), (0.43, 2.19), None),
    DssdRow(0.020, 50e6, 8, (8.59, 0.62), (1.24, 2.22), (0.72, 0.92)),
    DssdRow(0.050, 50e6, 8, (9.52, 1.55), (1.08, 1.97), None),
    DssdRow(0.050, 10e6, 6, (8.12, 0.40), (1.16, 1.57), None),  # 8 rounds: too few for 128 tokens
    DssdRow(0.020, 100e6, 4, None, None, (1.10, 1.11)),
    DssdRow(0.020, 100e6, 6, None, None, (1.12, 1.14)),
)

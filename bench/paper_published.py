"""Figures as the papers print them, to stand beside ours. What a paper only draws is not here.

TSLT: Fast Collaborative Inference via Distributed Speculative Decoding. DSSD: Efficient Edge-Device LLM Deployment via
Distributed Split Speculative Decoding (arXiv 2507.12000).
"""

from dataclasses import dataclass

# TSLT section 5: 68M-Llama drafts, 7B-Llama verifies, two A800; figures 3 to 6 are drawn, section 5.1 names two values.
TSLT_VOCAB = 32_000
TSLT_EXPANSION = (2, 2, 2)
TSLT_KEPT_SHARES = (1.0, 0.1, 0.01, 0.001)  # 32,000, 3,200, 320 and 32 logits
TSLT_TOP_MASS = ((0.1, 1.0), (0.01, 0.85))  # kept share of the vocabulary, probability mass ("almost unchanged", 0.85)
# It prints neither step time. Reading a model's fp16 weights once on an A800 (2.04 TB/s) bounds them from below.
TSLT_LLM_S = 6.74e9 * 2 / 2.04e12
TSLT_STEP_RATIO = 68e6 / 6.74e9  # T_SLM / T_LLM on the same card, by the same bound

# DSSD Table 1: T_comm in ms at T_down 8 ms, T_NTT 20 ms.
DSSD_ALPHAS = (0.5, 0.6, 0.7, 0.8, 0.9, 0.99)
DSSD_DOWN_S, DSSD_NTT_S = 0.008, 0.020
DSSD_COMM_MS = {
    2: (26.00, 25.12, 24.08, 22.88, 21.52, 20.16),
    4: (27.50, 26.96, 26.08, 24.72, 22.75, 20.32),
    6: (27.88, 27.63, 27.06, 25.90, 23.75, 20.47),
    8: (27.97, 27.87, 27.54, 26.66, 24.56, 20.62),
}

# DSSD section 4: OPT-125M drafts for OPT-6.7B and 13B; 128 tokens at temperature 1, top-k 10.
DSSD_VOCAB = 50_272  # OPT's
DSSD_TOKENS = 128
DSSD_TOP_K = 10
DSSD_ALPHA = {"6.7B": 0.61, "13B": 0.53}
DSSD_STEP_RATIO = {"6.7B": 0.1, "13B": 0.05}  # c = T_SLM / T_LLM (section 4.2)
DSSD_UPLINK_BYTES = 61_269  # "approximately ... per round" for DSD (section 4.1)


@dataclass(frozen=True, slots=True)
class Homogeneous:
    """A row of DSSD Table 2; times are of a whole response."""

    ntt_s: float
    rate_bps: float
    window: int
    dsd_comm_s: float
    dsd_speed_up: float
    dssd_comm_s: float
    dssd_speed_up: float
    dssd_13b_comm_s: float
    dssd_13b_speed_up: float


DSSD_HOMOGENEOUS = (
    Homogeneous(0.000, 100e6, 8, 3.91, 1.51, 0.01, 2.28, 1.40, 1.67),
    Homogeneous(0.020, 100e6, 8, 4.60, 1.41, 0.62, 2.31, 9.21, 1.72),  # 9.21: a misprint of 0.92, as two rows below
    Homogeneous(0.050, 10e6, 8, 41.44, 0.43, 1.55, 2.19, 2.30, 1.62),
    Homogeneous(0.020, 50e6, 8, 8.59, 1.24, 0.62, 2.22, 0.92, 1.77),
    Homogeneous(0.050, 50e6, 8, 9.52, 1.08, 1.55, 1.97, 2.30, 1.70),
    Homogeneous(0.050, 10e6, 6, 8.12, 1.16, 0.40, 1.57, 2.01, 1.97),
)


@dataclass(frozen=True, slots=True)
class Heterogeneous:
    """A row of DSSD Table 3: speed-ups."""

    ntt_s: float
    rate_bps: float
    window: int
    dsd: float
    dssd: float
    dssd_13b: float


DSSD_HETEROGENEOUS = (
    Heterogeneous(0.000, 100e6, 8, 0.88, 0.98, 1.17),
    Heterogeneous(0.020, 100e6, 8, 0.85, 0.92, 1.13),
    Heterogeneous(0.020, 50e6, 8, 0.72, 0.92, 1.12),
    Heterogeneous(0.020, 100e6, 4, 1.10, 1.11, 1.44),
    Heterogeneous(0.020, 100e6, 6, 1.12, 1.14, 1.58),
    Heterogeneous(0.020, 100e6, 8, 0.93, 1.04, 1.30),  # printed twice with different figures
)

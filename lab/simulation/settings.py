"""Settings of capacity experiments, and the scenarios built from them: one system, promised speeds, N devices.

All systems run with the same settings, so a difference between results is due to the system. Files of settings are
frozen: those of WISP's Table 2 were fitted on two of its columns and used unchanged for the rest
(docs/archive/scheduling.md).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from importlib.resources import files
from math import inf
from types import MappingProxyType

import yaml

from lab.simulation.acceptance_models import SimPredictor, expected_tokens
from lab.simulation.lengths import Lengths
from lab.simulation.planning import best_draft, chains
from lab.simulation.scenario import DeviceGroup, Scenario, System, VerifierModel, host_memory
from outrider.admission.rules import AdmissionRules
from outrider.contracts.cost import CostModel
from outrider.contracts.slo import SloClass
from outrider.link.profiles import LinkProfile
from outrider.scheduling.ledger import FIRST_TOKEN_S, DeadlineRule
from outrider.scheduling.policy import BatchLimits
from outrider.scheduling.registry import Scheduling
from outrider.scheduling.slo_aware import SloAware
from outrider.scheduling.wisp import Doomed, Wisp

WITHOUT_LIMIT = 100_000_000  # ``kv_tokens`` that are never too few
_KV_BLOCK_TOKENS = 16
_PRESETS = files("lab.simulation").joinpath("presets")


@dataclass(frozen=True, slots=True)
class Settings:
    draft_tokens_per_s: float  # of a device
    window: int  # tokens drafted in a round by systems that do not choose it
    token_acceptance: float  # of a draft token, given that those before it were accepted
    prompt_tokens: int  # mean; lengths are uniform within ``length_spread`` of it. Likewise ``output_tokens``
    output_tokens: int
    rtt_s: float  # of every device's link, ``rate_bps`` its rate each way, ``jitter_s`` the spread of a one-way delay
    rate_bps: float
    epsilon: float  # share of violations up to which a promise counts as kept (WISP eq. 20)
    kv_tokens: int  # positions whose KV the server holds
    sibling_factor: float = 0.5  # how acceptance falls from a tree node's sibling to the next
    length_spread: float = 0.5
    jitter_s: float = 0.0
    step_spread: float = 0.0  # standard deviation of the logarithm of drafting times from device to device
    max_blocks: int = 512  # of a batch; ``max_new_tokens`` positions it computes, ``prefill_chunk_tokens`` of prompts
    max_new_tokens: int = 8192
    prefill_chunk_tokens: int = 1024
    host_kv_tokens: int = 0  # positions whose KV the server's host memory holds, ``kv_bytes_per_token`` each
    kv_bytes_per_token: int = 262_144  # of Qwen3-32B in bfloat16
    host_bytes_per_s: float = 25e9  # copied each way: a PCIe 4 link of 16 lanes
    overhead_s: float = 0.002  # from a decision on a batch to its begin on an idle verifier
    first_token_s: float = 5.0  # a promise is also broken if the p99 of times to first token exceeds this

    @property
    def accepted_fraction(self) -> float:
        """Accepted over drafted tokens of whole windows (WISP Table 5, predictor off)."""
        return (expected_tokens((self.token_acceptance,) * self.window) - 1.0) / self.window


class Variant(StrEnum):
    """The systems that are compared. The first five are an ablation: each adds one thing to the one before."""

    SLED = "sled"
    KV = "+ kv"
    SCHEDULER = "+ scheduler"
    ADMISSION = "+ admission"
    CHAINS = "+ window"
    WISP = "wisp"  # Algorithm 1, a doomed block binds nobody; the flagged token is sent
    WISP_ALONE = "wisp, alone"  # a doomed block goes alone
    WISP_LAST = "wisp, doomed last"  # a doomed block is best effort
    WISP_MARGINAL = "wisp, marginal"  # a block's utility is per second that it adds
    WISP_WITHHELD = "wisp, withheld"  # the flagged token is withheld (eq. 25)
    WISP_FAIR = "wisp, fair"  # the last three together
    PREDICTOR = "fcfs, predictor"
    CENTRALIZED = "centralized"


ABLATION = (Variant.SLED, Variant.KV, Variant.SCHEDULER, Variant.ADMISSION, Variant.CHAINS)
PRODUCT = Variant.CHAINS  # what the service does: admission, and the draft length that serves most devices
_ADMITTING = frozenset({Variant.ADMISSION, Variant.CHAINS})
_ALGORITHM_1: Mapping[Variant, Wisp] = MappingProxyType(
    {
        Variant.WISP: Wisp(),
        Variant.WISP_ALONE: Wisp(doomed=Doomed.ALONE),
        Variant.WISP_LAST: Wisp(doomed=Doomed.LAST),
        Variant.WISP_MARGINAL: Wisp(marginal=True),
        Variant.WISP_WITHHELD: Wisp(),
        Variant.WISP_FAIR: Wisp(doomed=Doomed.LAST, marginal=True),
    }
)
WISP_CHANGES = tuple(_ALGORITHM_1)  # the printed system, and what one change makes of it, or all do
_WITHHOLDING = frozenset({Variant.WISP_WITHHELD, Variant.WISP_FAIR})


@dataclass(frozen=True, slots=True)
class Tuning:
    """Settings that a system's paper leaves open, or that a service can set, in place of the variant's own."""

    policy: Wisp | SloAware
    window: int
    predictor: SimPredictor | None = None
    draft_share: float = inf  # a window is shorter where drafting takes more of the time in which its tokens are due
    first_token_s: float = FIRST_TOKEN_S  # time in which a first token is due

    def applied(self, scenario: Scenario) -> Scenario:
        rule = DeadlineRule.ROUND if isinstance(self.policy, Wisp) else DeadlineRule.LEDGER
        return replace(
            scenario,
            groups=tuple(
                replace(group, window=self.window_of(group), predictor=self.predictor) for group in scenario.groups
            ),
            scheduling=Scheduling(self.policy, rule),
            first_token_s=self.first_token_s,
        )

    def window_of(self, group: DeviceGroup) -> int:
        def due_s(window: int) -> float:
            chain = [group.acceptance[min(depth, len(group.acceptance) - 1)] for depth in range(window)]
            return expected_tokens(chain) / group.slo.tokens_per_s if group.slo.tokens_per_s else inf

        windows = range(self.window, 1, -1)
        return next((one for one in windows if one * group.step_s <= self.draft_share * due_s(one)), 1)


_SYSTEMS: Mapping[Variant, System] = MappingProxyType(
    {
        Variant.SLED: System.SLED,
        Variant.KV: System.SLED_KV,
        Variant.SCHEDULER: System.OUTRIDER,
        Variant.ADMISSION: System.OUTRIDER,
        Variant.CHAINS: System.OUTRIDER,
        Variant.PREDICTOR: System.SLED_KV,
        Variant.CENTRALIZED: System.CENTRALIZED,
        **dict.fromkeys(_ALGORITHM_1, System.WISP),
    }
)


def verifier_of(settings: Settings, costs: CostModel) -> VerifierModel:
    blocks = max(1, settings.kv_tokens // _KV_BLOCK_TOKENS)
    limits = BatchLimits(settings.max_blocks, settings.max_new_tokens, settings.prefill_chunk_tokens, blocks)
    host_bytes = settings.kv_bytes_per_token, settings.host_bytes_per_s
    host = host_memory(costs, settings.host_kv_tokens, _KV_BLOCK_TOKENS, *host_bytes)
    return VerifierModel(
        cost_model=costs,
        limits=limits,
        kv_block_tokens=_KV_BLOCK_TOKENS,
        dispatch_s=settings.overhead_s,
        host=host if host.blocks else None,
    )


def group_of(settings: Settings, slo: SloClass, count: int) -> DeviceGroup:
    """Return the devices of one class; they draft whole windows, as SLED's do."""
    return DeviceGroup(
        name=slo.name,
        count=count,
        slo=slo,
        step_s=1.0 / settings.draft_tokens_per_s,
        acceptance=(settings.token_acceptance,),
        prompt=_around(settings.prompt_tokens, settings.length_spread),
        output=_around(settings.output_tokens, settings.length_spread),
        window=settings.window,
        sibling_factor=settings.sibling_factor,
        link=LinkProfile(settings.rate_bps, settings.rate_bps, settings.rtt_s, jitter_s=settings.jitter_s),
        step_spread=settings.step_spread,
        stagger_s=settings.output_tokens / slo.tokens_per_s,
    )


def drafted_by(variant: Variant, group: DeviceGroup, verifier: VerifierModel) -> DeviceGroup:
    """Return the group with the drafts of a system: by WISP's predictor, or of the length that serves most devices."""
    if variant is Variant.PREDICTOR or variant in _ALGORITHM_1:
        return replace(group, predictor=SimPredictor(sends_flagged=variant not in _WITHHOLDING))
    if variant is not Variant.CHAINS:
        return group
    best = best_draft(group, verifier, group.slo.tokens_per_s, chains()).draft
    return replace(group, window=best.window, expansion=best.expansion)


def scenario_of(
    settings: Settings,
    costs: CostModel,
    variant: Variant,
    speeds_tokens_per_s: Sequence[float],
    devices: int,
    seed: int = 0,
    responses: float = 2.0,
) -> Scenario:
    """Return one run. Devices are spread evenly over the promised speeds; a remainder goes to the first speeds.

    The run ends when a device at the slowest promised speed ends ``responses`` of mean length after the warm-up.
    """
    verifier = verifier_of(settings, costs)
    each, left = divmod(devices, len(speeds_tokens_per_s))
    groups = [
        group_of(settings, SloClass(f"speed_{speed:g}", speed), each + (index < left))
        for index, speed in enumerate(speeds_tokens_per_s)
        if each + (index < left)
    ]
    response_s = settings.output_tokens / min(speeds_tokens_per_s)
    warmup_s = 0.75 * response_s
    return Scenario(
        name=f"{variant} {'/'.join(f'{speed:g}' for speed in speeds_tokens_per_s)} x{devices}",
        system=_SYSTEMS[variant],
        groups=tuple(drafted_by(variant, group, verifier) for group in groups),
        verifier=verifier,
        duration_s=warmup_s + responses * response_s,
        seed=seed,
        warmup_s=warmup_s,
        plans_late=True,
        admission=admission_of(verifier) if variant in _ADMITTING else None,
        scheduling=Scheduling(_ALGORITHM_1[variant], DeadlineRule.ROUND) if variant in _ALGORITHM_1 else None,
    )


def admission_of(verifier: VerifierModel) -> AdmissionRules:
    """Return the service's own admission rules, with as many places as a batch has blocks."""
    return AdmissionRules(max_active=verifier.limits.max_blocks)


def preset(name: str) -> Settings:
    return Settings(**yaml.safe_load(_PRESETS.joinpath(f"{name}.yaml").read_text(encoding="utf-8")))


def _around(mean: int, spread: float) -> Lengths:
    return Lengths(least=max(1, round(mean * (1.0 - spread))), most=max(1, round(mean * (1.0 + spread))))

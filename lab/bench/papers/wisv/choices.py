"""The product's own choice of drafts at the paper's operating point.

``choose``: policy ``cheapest`` knows the fitted acceptance and pays for the messages that the protocols really write.
On an idle verifier ``cost_aware`` is the same. ``learned``: it starts every response with what past verdicts taught it,
in the simulator, against the best fixed window there. No trees, as the paper gives no figures of siblings. Every full
block has its bonus token.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from lab.bench.papers.wisv.acceptance import fitted
from lab.bench.papers.wisv.published import RTT_S
from lab.bench.papers.wisv.rounds import TABLE_1_POINT, Method, OperatingPoint, link
from lab.bench.papers.wisv.windows import LONGEST
from lab.simulation.lengths import Lengths
from lab.simulation.run import simulate
from lab.simulation.scenario import DeviceGroup, Scenario, System, VerifierModel
from outrider.contracts.cost import LinearCostModel
from outrider.contracts.drafting import DraftPlan
from outrider.contracts.exchanged import WireFormat
from outrider.contracts.requests import ProtocolName, SamplingParams
from outrider.contracts.verifying import AcceptanceRule
from outrider.link.profiles import LinkProfile
from outrider.protocols.registry import PROTOCOLS
from outrider.scheduling.policy import BatchLimits
from outrider.selection.acceptance_view import DEPTHS, SIBLINGS, AcceptanceView, rule_row
from outrider.selection.cheapest import Cheapest, seconds_per_token
from outrider.selection.estimates import Estimates, Floats, estimate
from outrider.selection.plans import PlanSet
from outrider.selection.ranking import DEFAULT_HABITS, choose_by
from outrider.selection.situation import DrafterView, RoundSituation, SelectionPolicy, VerifierView, round_terms

# Methods of Table I with each protocol's acceptance; protocols that are not registered are left out.
METHODS: Mapping[ProtocolName, Method] = {
    "token_ids": Method.SD_GREEDY,
    "dsd": Method.SD_REJECT,
    "dssd": Method.SD_REJECT,  # the same rule and acceptance without its upload
    "wisv_full": Method.WISV_FULL,
    "wisv_selective": Method.WISV_SELECTIVE,
}
PROMPT_TOKENS, OUTPUT_TOKENS = 300, 210  # about GSM8K's, and Table I's AAL * rounds


@dataclass(frozen=True, slots=True)
class Choice:
    """The policy's choice, and the best possible one.

    Attributes:
        drafts_only: plans without a draft were excluded.
        window: 0 is a round of the verifier alone.
        tokens_per_s: by the fitted acceptance at every depth; policies distinguish 16 depths.
    """

    protocol: ProtocolName
    rate_bps: float
    pass_s: float  # of the target
    drafts_only: bool
    window: int
    tokens_per_s: float
    best_window: int
    best_tokens_per_s: float


@dataclass(frozen=True, slots=True)
class Learned:
    """Simulated tokens per second after first tokens: of the policy, and of a fixed window."""

    protocol: ProtocolName
    rate_bps: float
    pass_s: float
    tokens_per_s: float
    fixed_window: int
    fixed_tokens_per_s: float


def registered(protocols: Sequence[ProtocolName]) -> tuple[ProtocolName, ...]:
    """Those that are registered."""
    return tuple(name for name in protocols if name in PROTOCOLS)


def simulated(protocol: ProtocolName, rate_bps: float) -> bool:
    """Whether the simulator charges a round's whole cost: it ignores what follows a rejection, and second requests."""
    known = situation(protocol, rate_bps, pass_s=0.0)
    if PROTOCOLS[protocol].judged:
        return False
    return PROTOCOLS[protocol].rejection_s(round_terms(protocol, known)) == 0.0


def choose(
    protocol: ProtocolName, rate_bps: float, *, pass_s: float, drafts_only: bool, point: OperatingPoint = TABLE_1_POINT
) -> Choice:
    """Choose among a protocol's windows and, unless ``drafts_only``, no draft."""
    known = situation(protocol, rate_bps, pass_s, point)
    cost = _drafts if drafts_only else seconds_per_token
    chosen = choose_by(cost, known, None, DEFAULT_HABITS).chosen.plan
    plans = PlanSet((None, *(DraftPlan(protocol, window) for window in range(1, LONGEST + 1))))
    acceptance = fitted(METHODS[protocol], rate_bps)
    tokens = np.array([acceptance.tokens(window, bonus=True) for window in range(LONGEST + 1)])
    speeds = tokens / estimate(known, plans).round_s
    if drafts_only:
        speeds[0] = 0.0
    window, best = 0 if chosen is None else chosen.window, int(speeds.argmax())
    return Choice(protocol, rate_bps, pass_s, drafts_only, window, float(speeds[window]), best, float(speeds[best]))


def learned(
    protocol: ProtocolName,
    rate_bps: float,
    *,
    pass_s: float,
    fixed_window: int,
    responses: int,
    point: OperatingPoint = TABLE_1_POINT,
) -> Learned:
    """Simulate ``responses`` one after the other on a verifier of their own; both arms get the same draws."""
    chosen, fixed = (
        _simulated(protocol, rate_bps, pass_s, window, selection, responses, point)
        for window, selection in ((LONGEST, Cheapest()), (fixed_window, None))
    )
    return Learned(protocol, rate_bps, pass_s, chosen, fixed_window, fixed)


def situation(
    protocol: ProtocolName, rate_bps: float, pass_s: float, point: OperatingPoint = TABLE_1_POINT
) -> RoundSituation:
    """One generation on an idle verifier whose pass takes ``pass_s`` whatever is in it."""
    method = METHODS[protocol]
    params = SamplingParams() if method is Method.SD_REJECT else SamplingParams(temperature=0.0)
    wire = WireFormat(point.vocab_size, hidden_width=point.hidden_size)
    return RoundSituation(
        params=params,
        wire=wire,
        position=PROMPT_TOKENS,
        remaining_tokens=OUTPUT_TOKENS,
        k_max=LONGEST,
        drafter=DrafterView(link(rate_bps, RTT_S), point.step_s, 0.0),
        verifier=VerifierView(_passes(pass_s), queue_s=0.0, batch_blocks=1.0, fixed_s=0.0),
        acceptance=_known(PROTOCOLS[protocol].rule(params, wire), method, rate_bps),
        protocols=(protocol,),
        window=None,
    )


def _known(rule: AcceptanceRule, method: Method, rate_bps: float) -> AcceptanceView:
    shape = (len(AcceptanceRule), DEPTHS)
    means, factors = np.zeros(shape), np.zeros((len(AcceptanceRule), SIBLINGS))
    means[rule_row(AcceptanceRule.GREEDY)] = fitted(Method.SD_GREEDY, rate_bps).at_depths(DEPTHS)  # for mismatches
    means[rule_row(rule)] = fitted(method, rate_bps).at_depths(DEPTHS)
    factors[:, 0] = 1.0
    return AcceptanceView(means, np.zeros(shape), factors, np.zeros_like(factors), np.zeros(shape[0], dtype=np.int64))


def _passes(pass_s: float) -> LinearCostModel:
    return LinearCostModel(0.0, 0.0, 0.0, pass_s)


def _drafts(known: RoundSituation, estimates: Estimates) -> Floats:
    return np.where(estimates.windows == 0, np.inf, seconds_per_token(known, estimates))


def _simulated(
    protocol: ProtocolName,
    rate_bps: float,
    pass_s: float,
    window: int,
    selection: SelectionPolicy | None,
    responses: int,
    point: OperatingPoint,
) -> float:
    group = DeviceGroup(
        name="device",
        count=1,
        acceptance=fitted(METHODS[protocol], rate_bps).at_depths(LONGEST),
        prompt=Lengths(tokens=PROMPT_TOKENS),
        output=Lengths(tokens=OUTPUT_TOKENS),
        window=window,
        protocol=protocol,
        step_s=point.step_s,
        link=LinkProfile(rate_bps, rate_bps, RTT_S),
        selection=selection,
    )
    limits = BatchLimits(max_blocks=1, max_new_tokens=PROMPT_TOKENS, prefill_chunk_tokens=PROMPT_TOKENS)
    server = VerifierModel(_passes(pass_s), limits, dispatch_s=0.0)
    scenario = Scenario("wisv", System.OUTRIDER, (group,), server, duration_s=1e9, responses_per_device=responses)
    speed = simulate(scenario).devices[0].achieved_tokens_per_s
    assert speed is not None
    return speed

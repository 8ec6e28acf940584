"""Description of what is simulated: devices, links, a verifier and a system, with the rules of each system.

A response is made as in the product. The verifier computes the prompt in chunks and commits the first token. In each
round an order goes down the link, the device drafts, and its block goes up and waits for a batch; the verdict commits
tokens and is the next order. Not modelled: the way of tokens to users, and the drafter's prefill, which runs at the
same time as the verifier's.
"""

from dataclasses import dataclass, replace
from enum import StrEnum
from math import inf
from typing import Annotated

import pydantic.dataclasses
from pydantic import ConfigDict, Field

from lab.simulation.acceptance_models import Probability, SimPredictor
from lab.simulation.lengths import Lengths, Spread
from lab.simulation.stopping import SimStopSetting
from outrider.admission.rules import AdmissionRules
from outrider.config.values import Name, PositiveNumber, Window
from outrider.contracts.cost import BatchWork, CostModel
from outrider.contracts.errors import ParameterError
from outrider.contracts.exchanged import WireFormat
from outrider.contracts.requests import ProtocolName
from outrider.contracts.slo import BEST_EFFORT, SloClass
from outrider.documents.names import NameIn
from outrider.link.trace import LinkSource
from outrider.protocols.registry import NO_TOKENS, PROTOCOLS
from outrider.scheduling.ledger import FIRST_TOKEN_S
from outrider.scheduling.policy import BatchLimits
from outrider.scheduling.registry import SCHEDULING, Scheduling
from outrider.scheduling.residency import SwapPrices
from outrider.scheduling.steps import StepRules

WIRE = WireFormat(151_936)  # Qwen3's vocabulary

Siblings = Annotated[int, Field(strict=True, ge=1, le=16)]
SecondsOrNone = Annotated[float, Field(ge=0, le=1_000_000)]


class System(StrEnum):
    """Where drafts are made and how the verifier is scheduled (details in ``lab.simulation.scenario``)."""

    SLED = "sled"  # devices draft; first come first served; no KV is kept between verifications
    SLED_KV = "sled_kv"  # the same with resident KV
    CENTRALIZED = "centralized"  # no drafts: continuous batching on the server
    WISP = "wisp"  # Algorithm 1, a deadline for each round
    WISP_ALONE = "wisp_alone"  # the same where a block that would be late even alone is dispatched alone
    WISP_FAIR = "wisp_fair"  # the same where it is best effort, and utilities are marginal
    OUTRIDER = "outrider"  # slo_aware, deadlines from the ledger


@pydantic.dataclasses.dataclass(frozen=True, slots=True, kw_only=True, config=ConfigDict(extra="forbid"))
class Drafting:
    """Devices of one kind, as drafters: the fields that all files and simulations have in common.

    Attributes:
        acceptance: probability that the draft token at each depth is accepted, given that those before it were; the
            last holds for all greater depths.
    """

    name: Name  # in results
    count: PositiveNumber  # of devices
    acceptance: Annotated[tuple[Probability, ...], Field(min_length=1)]
    window: Window = 4  # drafted tokens of a round, at most; 0 drafts nothing
    protocol: Annotated[ProtocolName, NameIn(PROTOCOLS)] = NO_TOKENS.protocol  # determines the bits that cross the link
    exchange_s: SecondsOrNone = 0.0  # seconds of every exchange beyond link and drafting steps


@pydantic.dataclasses.dataclass(frozen=True, slots=True, kw_only=True, config=ConfigDict(extra="forbid"))
class Devices(Drafting):
    prompt: Lengths  # tokens, drawn for each response
    output: Lengths  # tokens of each response, the first included
    expansion: tuple[Siblings, ...] = ()  # children by depth of a draft tree, in place of ``window``; () is a chain
    sibling_factor: Probability = 0.5  # how acceptance falls from a tree node's sibling to the next
    predictor: SimPredictor | None = None  # stops a chain early; None drafts the whole window
    step_spread: Spread = 0.0  # standard deviation of the logarithm of a drafting step's time from device to device
    pause_s: SecondsOrNone = 0.0  # mean pause between responses, exponentially distributed


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceGroup(Devices):
    """Devices of one kind, as they are simulated.

    Raises:
        ParameterError: a ``stopping`` beside a tree or a predictor.
    """

    step_s: float  # seconds to draft one token
    slo: SloClass = BEST_EFFORT  # the speed they are promised
    link: LinkSource | None = None  # to the server; None delivers at once
    stagger_s: float = 0.0  # the first response is requested within so many seconds, uniformly
    from_s: float = 0.0  # no response is requested before this time, nor from ``until_s`` on
    until_s: float = inf
    stopping: SimStopSetting | None = None  # ends chains early, in place of a ``predictor``

    def __post_init__(self) -> None:
        if self.stopping is not None and (self.expansion or self.predictor is not None):
            raise ParameterError("stopping", "neither expansion nor predictor", self.name)


@dataclass(frozen=True, slots=True)
class HostMemory:
    blocks: int  # number of KV blocks that it holds
    prices: SwapPrices


def host_memory(
    cost_model: CostModel, tokens: int, block_tokens: int, bytes_per_token: int, bytes_per_s: float
) -> HostMemory:
    """Return host memory for ``tokens`` positions; its prices weigh copying at ``bytes_per_s`` against recomputing."""
    copied_s = block_tokens * bytes_per_token / bytes_per_s
    alone_s = cost_model.predict_work_s(BatchWork())
    computed_s = cost_model.predict_work_s(BatchWork(block_tokens, block_tokens**2)) - alone_s
    return HostMemory(tokens // block_tokens, SwapPrices(copied_s, copied_s, computed_s))


@dataclass(frozen=True, slots=True)
class VerifierModel:
    cost_model: CostModel  # the time its forward passes take, and what policies and batcher predict
    limits: BatchLimits  # of a batch; ``max_memory_blocks`` is all the KV memory there is
    kv_block_tokens: int = 16  # positions of one KV block
    noise: float = 0.0  # standard deviation of the logarithm of a pass's time; the median is the cost model's
    dispatch_s: float = 0.002  # from a plan of its steps until the verifier has it
    reply_s: float = 0.0  # from a step's end until its tokens are committed
    host: HostMemory | None = None  # for evicted KV; None: evicted KV is recomputed


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinatorRules:
    """How a coordinator admits responses and plans steps.

    Attributes:
        admission: the service's rules of admission; None begins every response as soon as it is requested.
        plans_late: plan once for each step, as late as the plan still counts, and not at every arrival as the service
            does. Batches are the same and the simulation is many times as fast. But drafts are cut with all blocks of a
            step known, not only those that arrived before.
        plans_once: with ``plans_late``: a block that arrives between a plan and its step waits for the next step.
    """

    admission: AdmissionRules | None = None
    plans_late: bool = False
    plans_once: bool = False
    first_token_s: float = FIRST_TOKEN_S  # time in which a first token is due, where a speed is promised


@dataclass(frozen=True, slots=True)
class Scenario(CoordinatorRules):
    """One run.

    Raises:
        ParameterError: a seed below 0.
    """

    name: str  # in results
    system: System  # its scheduling and KV rule, unless ``scheduling`` replaces the first
    groups: tuple[DeviceGroup, ...]  # of devices
    verifier: VerifierModel  # the server they share
    duration_s: float  # the run ends then, or when every device is done
    seed: int = 0  # of all chance
    warmup_s: float = 0.0  # commits before this time are left out of the results
    responses_per_device: int | None = None  # a device is done after so many; None: never
    scheduling: Scheduling | None = None  # in place of the system's
    steps: StepRules | None = None  # in place of the system's: whether drafts are trimmed and steps delayed
    keep_batch_log: bool = False  # whether results hold every batch

    def __post_init__(self) -> None:
        if self.seed < 0:
            raise ParameterError("seed", "a number of at least 0", self.seed)


_AS_PUBLISHED = StepRules(trims=False, holds=False)


@dataclass(frozen=True, slots=True)
class SystemRules:
    """Properties of one system.

    Attributes:
        keeps_kv: whether KV stays resident between verifications; if not, each recomputes the whole prefix in one pass.
    """

    scheduling: Scheduling  # of batches
    keeps_kv: bool = True
    speculative: bool = True  # whether devices draft
    in_engine: bool = False  # whether batches are planned in the engine
    steps: StepRules = _AS_PUBLISHED


_TABLE = {
    System.SLED: SystemRules(SCHEDULING["fcfs"], keeps_kv=False),
    System.SLED_KV: SystemRules(SCHEDULING["fcfs"]),
    System.CENTRALIZED: SystemRules(SCHEDULING["fcfs"], speculative=False, in_engine=True),
    System.WISP: SystemRules(SCHEDULING["wisp"]),
    System.WISP_ALONE: SystemRules(SCHEDULING["wisp_alone"]),
    System.WISP_FAIR: SystemRules(SCHEDULING["wisp_fair"]),
    System.OUTRIDER: SystemRules(SCHEDULING["slo_aware"], steps=StepRules()),
}


def rules_of(scenario: Scenario) -> SystemRules:
    """Return the system's rules, with the scenario's own scheduling and step rules if it has them."""
    rules = _TABLE[scenario.system]
    return replace(rules, scheduling=scenario.scheduling or rules.scheduling, steps=scenario.steps or rules.steps)


def fleet_rules(scheduling: Scheduling) -> SystemRules:
    """Return the product's rules with another scheduling."""
    return replace(_TABLE[System.OUTRIDER], scheduling=scheduling)

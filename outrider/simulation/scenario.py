"""What is simulated: devices, links, a verifier, a system; plain data.

Responses are made as the product makes them. The verifier computes the prompt, in chunks, and commits the first token.
Then round after round an order goes down the link, the device drafts, its block goes up and waits for a batch; the
verdict commits tokens and is the next order. Tokens travel on to users
beside this loop and are not modelled; nor is the drafter's prefill, which runs beside the verifier's.
"""

from dataclasses import dataclass
from enum import StrEnum

from outrider.contracts.cost import CostModel
from outrider.contracts.errors import ParameterError
from outrider.contracts.exchanged import WireFormat
from outrider.contracts.requests import ProtocolName
from outrider.contracts.slo import BEST_EFFORT, SloClass
from outrider.link.trace import LinkSource
from outrider.protocols.registry import NO_TOKENS
from outrider.scheduling.policy import BatchLimits
from outrider.scheduling.registry import Scheduling
from outrider.selection.situation import SelectionPolicy
from outrider.simulation.acceptance_models import AcceptanceModel, Predictor
from outrider.simulation.lengths import Lengths

_QWEN3_WIRE = WireFormat(151_936)  # its vocabulary


class System(StrEnum):
    """Who drafts where, and how the verifier is run; ``outrider.simulation.systems`` has the details."""

    SLED = "sled"  # devices draft; first come first served; no KV is kept between verifications
    SLED_KV = "sled_kv"  # the same with resident KV
    CENTRALIZED = "centralized"  # no drafts: continuous batching on the server
    COLOCATED = "colocated"  # draft and target model both on the server
    WISP = "wisp"  # Algorithm 1, a deadline for each round
    OUTRIDER = "outrider"  # slo_aware, deadlines from the ledger


@dataclass(frozen=True, slots=True)
class DeviceGroup:
    """Devices that are alike.

    Attributes:
        name: in results.
        count: of devices; each asks for one response after another.
        slo: the speed they are promised.
        step_s: seconds to draft one token.
        acceptance: what is accepted of their drafts.
        prompt_tokens: of each response, its own length.
        output_tokens: committed by a response, its first token included.
        window: drafted tokens of a round, at most; 0 drafts nothing.
        expansion: children by depth of a drafted tree, in place of ``window``; () is a chain.
        sibling_factor: how acceptance falls from a tree node's sibling to the next.
        node_share: what a further node of a tree's layer adds to the step that computes it, in steps.
        predictor: stops a chain early; None drafts the whole window.
        selection: chooses each round's window (or none, or tree) in place of the three above, at most ``window`` deep.
        link: to the server; None delivers at once. Not used by systems that draft on the server.
        protocol: decides the bits that cross the link.
        wire: how they are written.
        exchange_s: seconds of every exchange beyond link and steps.
        step_spread: standard deviation of the logarithm of ``step_s`` from device to device.
        pause_s: mean pause between responses, exponentially distributed.
        stagger_s: the first response begins within so many seconds, each instant as likely.

    Raises:
        ParameterError: a field is out of range, or fields exclude each other.
    """

    name: str
    count: int
    step_s: float
    acceptance: AcceptanceModel
    prompt_tokens: Lengths
    output_tokens: Lengths
    slo: SloClass = BEST_EFFORT
    window: int = 4
    expansion: tuple[int, ...] = ()
    sibling_factor: float = 0.5
    node_share: float = 0.1
    predictor: Predictor | None = None
    selection: SelectionPolicy | None = None
    link: LinkSource | None = None
    protocol: ProtocolName = NO_TOKENS.protocol
    wire: WireFormat = _QWEN3_WIRE
    exchange_s: float = 0.0
    step_spread: float = 0.0
    pause_s: float = 0.0
    stagger_s: float = 0.0

    def __post_init__(self) -> None:
        """Refuse what no group can be."""
        _at_least("count", self.count, 1)
        _at_least("window", self.window, 0)
        for field in ("step_s", "exchange_s", "step_spread", "pause_s", "stagger_s", "sibling_factor", "node_share"):
            _at_least(field, getattr(self, field), 0.0)
        if any(children < 1 for children in self.expansion):
            raise ParameterError("expansion", "numbers of at least 1", self.expansion)
        if self.expansion and self.predictor is not None:
            raise ParameterError("predictor", "a chain (no expansion): it flags single tokens", self.expansion)
        if self.selection is not None and (self.expansion or self.predictor is not None):
            raise ParameterError("selection", "neither expansion nor predictor: it chooses drafts itself", self.name)


@dataclass(frozen=True, slots=True)
class VerifierModel:
    """The server.

    Attributes:
        cost_model: what its forward passes take.
        limits: of a batch; ``max_memory_blocks`` is all the KV memory there is.
        kv_block_tokens: positions of one KV block.
        planner_cost_model: what policies and batcher predict by; None predicts what it takes.
        draft_cost_model: of a forward pass of the draft model on the server (``colocated``).
        noise: standard deviation of the logarithm of a pass's time; the median is the cost model's.
        dispatch_s: from the decision on a batch to its begin on an idle verifier.
        reply_s: from a batch's end until its tokens are committed.
        stage_lead_s: a batch is sent so long before the running one should end.

    Raises:
        ParameterError: a field is out of range.
    """

    cost_model: CostModel
    limits: BatchLimits
    kv_block_tokens: int = 16
    planner_cost_model: CostModel | None = None
    draft_cost_model: CostModel | None = None
    noise: float = 0.0
    dispatch_s: float = 0.002
    reply_s: float = 0.0
    stage_lead_s: float = 0.005

    def __post_init__(self) -> None:
        """Refuse what no verifier can be."""
        _at_least("kv_block_tokens", self.kv_block_tokens, 1)
        for field in ("noise", "dispatch_s", "reply_s", "stage_lead_s"):
            _at_least(field, getattr(self, field), 0.0)

    @property
    def planner(self) -> CostModel:
        """What plans are made with."""
        return self.planner_cost_model or self.cost_model


@dataclass(frozen=True, slots=True)
class Scenario:
    """One run.

    Attributes:
        name: in results.
        system: its scheduling and KV rule, unless the two fields of these names replace them.
        groups: of devices.
        verifier: the server they share.
        duration_s: when it ends, unless every device is done before.
        seed: of all chance.
        warmup_s: what was committed before is left out of the results.
        responses_per_device: after so many a device is done; None goes on.
        scheduling: in place of the system's.
        keeps_kv: in place of the system's.
        first_token_grace_s: a device that waits longer for a first token is late from then on.
        max_active_responses: made at once; who asks beyond that waits for its turn, first come first served, as the
            service queues requests. None is no limit.
        keep_batch_log: whether results hold every batch.
        keep_responses: whether results hold every response's speed.

    Raises:
        ParameterError: a field is out of range.
    """

    name: str
    system: System
    groups: tuple[DeviceGroup, ...]
    verifier: VerifierModel
    duration_s: float
    seed: int = 0
    warmup_s: float = 0.0
    responses_per_device: int | None = None
    scheduling: Scheduling | None = None
    keeps_kv: bool | None = None
    first_token_grace_s: float = 5.0
    max_active_responses: int | None = None
    keep_batch_log: bool = False
    keep_responses: bool = True

    def __post_init__(self) -> None:
        """Refuse what cannot be run."""
        if not self.groups:
            raise ParameterError("groups", "at least one group of devices", self.groups)
        if not 0.0 <= self.warmup_s < self.duration_s:
            raise ParameterError(
                "warmup_s", f"a number of at least 0, below duration_s = {self.duration_s}", self.warmup_s
            )
        if self.duration_s == float("inf") and self.responses_per_device is None:
            raise ParameterError("duration_s", "a finite number, or responses_per_device", self.duration_s)
        if self.responses_per_device is not None:
            _at_least("responses_per_device", self.responses_per_device, 1)
        if self.max_active_responses is not None:
            _at_least("max_active_responses", self.max_active_responses, 1)
        _at_least("seed", self.seed, 0)
        _at_least("first_token_grace_s", self.first_token_grace_s, 0.0)
        if self.system is System.COLOCATED and self.verifier.draft_cost_model is None:
            raise ParameterError("verifier.draft_cost_model", "the draft model's cost on the server", None)

    @property
    def device_count(self) -> int:
        """Devices of all groups."""
        return sum(group.count for group in self.groups)


def _at_least(field: str, found: float, least: float) -> None:
    if not found >= least:
        raise ParameterError(field, f"a number of at least {least}", found)

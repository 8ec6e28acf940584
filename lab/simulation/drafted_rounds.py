"""Model a device's work: lengths of its responses, the draft of each round, and how much of it is accepted."""

from collections.abc import Sequence
from itertools import accumulate
from math import exp, log
from operator import mul
from statistics import NormalDist
from typing import NamedTuple, Protocol

from lab.simulation.acceptance_models import draft_shape, expected_tokens
from lab.simulation.chance import uniforms
from lab.simulation.scenario import WIRE, DeviceGroup
from outrider.contracts.drafting import DraftPlan
from outrider.contracts.requests import SamplingParams
from outrider.contracts.verifying import RATIO_RULES
from outrider.link.latency import exchange_s
from outrider.link.state import profile_csi
from outrider.link.trace import profile_at
from outrider.protocols.payload import order_bits
from outrider.protocols.registry import PROTOCOLS, answer_bits
from outrider.rounds.rules import RunGrant
from outrider.selection.situation import SpeedPromise

LENGTHS, TOKENS = 0, 1  # purposes of chance
_NORMAL = NormalDist()


class SimResponse(NamedTuple):
    pause_s: float
    prompt_tokens: int
    output_tokens: int


class SimDraft(NamedTuple):
    nodes: int  # drafted tokens that are verified; 0: a round of the target alone
    depth: int  # on their longest path
    accepted: int  # accepted tokens of that path
    draft_s: float  # time the device computes
    expected_tokens: float  # tokens the round is expected to commit, correction or bonus token included
    bits: tuple[int, int] | None  # message sizes down and up; None if nothing is exchanged with the device
    survivals: tuple[float, ...] = ()  # expected survival by position, of a chain that may be cut; () of others
    away_s: float = 0.0  # expected time of drafting and exchange
    cut_as_ordered: bool = False  # whether its cut is fixed when it is ordered (ratio rules, docs/design/0018)

    def cut(self, tokens: int) -> "SimDraft":
        """Return the chain cut to ``tokens``; the expected number of accepted ones is the sum of their survivals."""
        survivals = self.survivals[:tokens]
        accepted, expected_tokens = min(self.accepted, tokens), 1.0 + sum(survivals)
        return self._replace(
            nodes=tokens, depth=tokens, accepted=accepted, expected_tokens=expected_tokens, survivals=survivals
        )


NO_DRAFT = SimDraft(0, 0, 0, 0.0, 1.0, None)


class Workload(Protocol):
    """One device's work. ``begin`` comes first, then ``draft`` once for each round after the first token."""

    @property
    def autonomous_rounds(self) -> int:
        """Rounds that are granted to the verifier after a round without a draft."""
        ...

    def begin(self) -> SimResponse | None:
        """Begin the next response; return None if the device is done."""
        ...

    def draft(self, committed_tokens: int, remaining_tokens: int, promise: SpeedPromise | None) -> SimDraft:
        """Draft for the next round, after the commit of the one before.

        Args:
            committed_tokens: of the response so far, >= 1.
            remaining_tokens: that the response may still take, >= 1.
            promise: the speed that the round has to keep, if any.
        """
        ...

    def stays_autonomous(self, committed_tokens: int, remaining_tokens: int, promise: SpeedPromise | None) -> bool:
        """Return whether nothing would be drafted now, so that an autonomous run's grant may be renewed."""
        ...


class GroupDrafts:
    """Tables that all drafts of a group share, by depth."""

    def __init__(self, group: DeviceGroup) -> None:
        self.group = group
        self.shape = draft_shape(group.acceptance, group.window, group.expansion, group.sibling_factor)
        depths = range(1, len(self.shape.passes) + 1)
        self.bits = [message_sizes(DraftPlan(group.protocol, 0))]
        self.bits += [message_sizes(DraftPlan(group.protocol, n, group.expansion[:n])) for n in depths]
        self.expected = [expected_tokens(self.shape.passes[:depth]) for depth in (0, *depths)]
        self.survivals = () if group.expansion else tuple(accumulate(self.shape.passes, mul))
        self.cut_as_ordered = PROTOCOLS[group.protocol].rule(SamplingParams(), WIRE) in RATIO_RULES
        self.link_s = [self.exchange_s(bits) for bits in self.bits]

    def draft(self, depth: int, accepted: int, step_s: float) -> SimDraft:
        """Return a whole draft down to a depth of at least 1, drafted in ``step_s`` a step."""
        draft_s = self.shape.steps[depth - 1] * step_s
        return SimDraft(
            self.shape.nodes[depth - 1],
            depth,
            accepted,
            draft_s,
            self.expected[depth],
            self.bits[depth],
            self.survivals[:depth],
            draft_s + self.link_s[depth],
            self.cut_as_ordered,
        )

    def exchange_s(self, bits: tuple[int, int]) -> float:
        """Return the expected time of an exchange without drafting; of a link trace, by its state at the start."""
        if self.group.link is None:
            return self.group.exchange_s
        return self.group.exchange_s + exchange_s(profile_csi(profile_at(self.group.link, 0.0)), *bits)


class ModelledDevice:
    """A device of a group with a fixed window. All its chance is a function of seed, device and response number."""

    def __init__(
        self, drafts: GroupDrafts, device: int, seed: int, responses: int | None, *, speculative: bool = True
    ) -> None:
        """Create a device that is done after ``responses``; None: never.

        Unless ``speculative`` it drafts nothing.
        """
        group = drafts.group
        self._group, self._device, self._seed, self._responses = group, device, seed, responses
        self._drafts, self._number = drafts, 0
        stagger, speed = uniforms(seed, device, 0, LENGTHS, 2)
        self._stagger_s = group.stagger_s * stagger
        spread = group.step_spread * _NORMAL.inv_cdf(max(speed, 1e-12)) if group.step_spread else 0.0
        self.step_s = group.step_s * exp(spread)
        self._longest = len(drafts.shape.passes) if speculative else 0
        self.acceptance_draws: list[float] = []

    @property
    def autonomous_rounds(self) -> int:
        """Return 0 if it drafts, as a drafter is ready by the first token."""
        return 0 if self._longest else RunGrant().without_drafter

    def begin(self) -> SimResponse | None:
        """Draw lengths, pause and the acceptance draw of every position."""
        if self._number == self._responses:
            return None
        self._number += 1
        group = self._group
        prompt, output, pause = uniforms(self._seed, self._device, self._number, LENGTHS, 3)
        pause_s = self._stagger_s if self._number == 1 else -group.pause_s * log(1.0 - pause)
        response = SimResponse(pause_s, group.prompt.at(prompt), group.output.at(output))
        self.acceptance_draws = uniforms(self._seed, self._device, self._number, TOKENS, response.output_tokens)
        return response

    def draft(self, committed_tokens: int, remaining_tokens: int, promise: SpeedPromise | None) -> SimDraft:  # noqa: ARG002 (a choice's)
        """Draft the group's window, cut so that draft and bonus token do not exceed the response."""
        drafts, depth = self._drafts, min(self._longest, remaining_tokens - 1)
        if depth == 0:
            return NO_DRAFT
        accepted = accepted_of(self.acceptance_draws, committed_tokens, drafts.shape.passes, depth)
        return drafts.draft(depth, accepted, self.step_s)

    def stays_autonomous(self, committed_tokens: int, remaining_tokens: int, promise: SpeedPromise | None) -> bool:  # noqa: ARG002 (a choice's)
        return not self._longest


def accepted_of(draws: Sequence[float], start: int, passes: Sequence[float], depth: int) -> int:
    """Return the accepted positions of a draft of this depth at position ``start`` of the response."""
    accepted = 0
    while accepted < depth and draws[start + accepted] < passes[accepted]:
        accepted += 1
    return accepted


def message_sizes(plan: DraftPlan) -> tuple[int, int]:
    """Return the payload bits of an order and of its answer."""
    return order_bits(WIRE), answer_bits(plan, WIRE, WIRE.vocab_size)

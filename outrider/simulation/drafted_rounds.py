"""What a device does: how long its responses are, what it drafts in each round and what is accepted of it."""

from collections.abc import Sequence
from itertools import accumulate
from math import exp, log
from operator import mul
from statistics import NormalDist
from typing import NamedTuple, Protocol

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
from outrider.selection.yields import expected_tokens
from outrider.simulation.acceptance_models import draft_shape
from outrider.simulation.chance import uniforms
from outrider.simulation.scenario import WIRE, DeviceGroup

LENGTHS, TOKENS = 0, 1  # purposes of chance
_NORMAL = NormalDist()


class SimResponse(NamedTuple):
    """One response to be made: after a pause, this long."""

    pause_s: float
    prompt_tokens: int
    output_tokens: int


class SimDraft(NamedTuple):
    nodes: int  # drafted tokens that are verified; 0 is a round of the verifier alone
    depth: int  # on their longest path
    accepted: int  # of these
    draft_s: float  # the device computes
    expected_tokens: float  # that the round should commit, correction or bonus token included, as known before it
    bits: tuple[int, int] | None  # down and up; None if nothing is exchanged with the device
    survivals: tuple[float, ...] = ()  # of a chain that may be cut, as known before it
    away_s: float = 0.0  # that drafting and exchange should take
    cut_as_ordered: bool = False  # its cut is fixed when it is ordered

    def cut(self, tokens: int) -> "SimDraft":
        """What is verified of it."""
        survivals = self.survivals[:tokens]
        accepted, expected_tokens = min(self.accepted, tokens), 1.0 + sum(survivals)
        return self._replace(
            nodes=tokens, depth=tokens, accepted=accepted, expected_tokens=expected_tokens, survivals=survivals
        )


NO_DRAFT = SimDraft(0, 0, 0, 0.0, 1.0, None)


class Workload(Protocol):
    """One device's work, in order."""

    @property
    def follows_tuner(self) -> bool:
        """Whether what is drafted is up to the verifier's speculation tuner."""
        ...

    @property
    def alone_rounds(self) -> int:
        """Where nothing is drafted, the verifier makes so many more by itself before it is asked anew."""
        ...

    def begin(self) -> SimResponse | None:
        """Its next response; None if it is done."""
        ...

    def draft(self, committed_tokens: int, remaining_tokens: int, promise: SpeedPromise | None) -> SimDraft:
        """Its next round; the one before it is committed.

        Args:
            committed_tokens: of the response so far, >= 1.
            remaining_tokens: that it may still take, >= 1.
            promise: what the round has to keep, if anything.
        """
        ...

    def stays_alone(self, committed_tokens: int, remaining_tokens: int, promise: SpeedPromise | None) -> bool:
        """Whether nothing would be drafted in a round, of one that the verifier makes by itself."""
        ...

    def cut(self, tokens: int) -> None:
        """Of the draft under way so many tokens are verified."""
        ...


class GroupDrafts:
    """What is the same for all drafts of a group, by depth: made once."""

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

    def exchange_s(self, bits: tuple[int, int]) -> float:
        """An exchange of such messages should take, drafting aside; a trace counts as it begins."""
        if self.group.link is None:
            return self.group.exchange_s
        return self.group.exchange_s + exchange_s(profile_csi(profile_at(self.group.link, 0.0)), *bits)


class ModelledDevice:
    """A device of a group. Draws its chance response by response."""

    def __init__(
        self, drafts: GroupDrafts, device: int, seed: int, responses: int | None, *, speculates: bool, remote: bool
    ) -> None:
        """Begin at the beginning; after so many ``responses`` it is done, None goes on.

        One that does not speculate has rounds of the verifier alone. One that is ``remote`` drafts itself; for another
        drafting takes no time and nothing is exchanged.
        """
        group = drafts.group
        self._group, self._device, self._seed, self._responses = group, device, seed, responses
        self._drafts, self._number = drafts, 0
        stagger, speed = uniforms(seed, device, 0, LENGTHS, 2)
        self._stagger_s = group.stagger_s * stagger
        spread = group.step_spread * _NORMAL.inv_cdf(max(speed, 1e-12)) if group.step_spread else 0.0
        self.step_s = group.step_s * exp(spread) if remote else 0.0
        self._bits: list[tuple[int, int] | None] = [*drafts.bits] if remote else [None] * len(drafts.bits)
        self._longest = len(drafts.shape.passes) if speculates else 0
        self.acceptance_draws: list[float] = []

    @property
    def follows_tuner(self) -> bool:
        """It has a window of its own."""
        return False

    @property
    def alone_rounds(self) -> int:
        """None if it drafts: a drafter is ready by the first token."""
        return 0 if self._longest else RunGrant().without_drafter

    def begin(self) -> SimResponse | None:
        """Draw lengths, pause and every position's chance, from the device's seed and the response's number."""
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
        """The group's window, cut to what may still be committed."""
        drafts, depth = self._drafts, min(self._longest, remaining_tokens - 1)
        if depth == 0:
            return NO_DRAFT
        shape = drafts.shape
        accepted = accepted_of(self.acceptance_draws, committed_tokens, shape.passes, depth)
        draft_s = shape.steps[depth - 1] * self.step_s
        return SimDraft(
            nodes=shape.nodes[depth - 1],
            depth=depth,
            accepted=accepted,
            draft_s=draft_s,
            expected_tokens=drafts.expected[depth],
            bits=self._bits[depth],
            survivals=drafts.survivals[:depth],
            away_s=draft_s + drafts.link_s[depth],
            cut_as_ordered=drafts.cut_as_ordered,
        )

    def stays_alone(self, committed_tokens: int, remaining_tokens: int, promise: SpeedPromise | None) -> bool:  # noqa: ARG002 (a choice's)
        """One that drafts at all drafts whenever it can."""
        return not self._longest

    def cut(self, tokens: int) -> None:
        """Nothing is learned from drafts."""


def accepted_of(draws: Sequence[float], start: int, passes: Sequence[float], depth: int) -> int:
    """Leading positions of a draft of this depth, from ``start`` of the response on, that are accepted."""
    accepted = 0
    while accepted < depth and draws[start + accepted] < passes[accepted]:
        accepted += 1
    return accepted


def message_sizes(plan: DraftPlan) -> tuple[int, int]:
    """Payload bits of an order and of its answer."""
    return order_bits(WIRE), answer_bits(plan, WIRE, WIRE.vocab_size)

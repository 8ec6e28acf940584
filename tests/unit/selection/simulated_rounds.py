"""Rounds of a drafter and a target whose costs and acceptance are known: no models, virtual time.

Written apart from ``outrider.selection.estimates``, one plan at a time, so that the two can disagree.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from outrider.contracts.cost import LinearCostModel, VerifyCost
from outrider.contracts.drafting import DraftPlan
from outrider.contracts.exchanged import WireFormat
from outrider.contracts.link import Csi
from outrider.contracts.requests import SamplingParams
from outrider.contracts.verifying import AcceptanceRule
from outrider.link.latency import exchange_s
from outrider.protocols.corrections import expected_row_bits
from outrider.protocols.dssd_candidates import candidate_count, candidates_bits, failure_probability
from outrider.protocols.registry import PROTOCOLS, message_bits
from outrider.selection.acceptance import AcceptanceBook, GenerationAcceptance
from outrider.selection.situation import (
    DrafterView,
    RoundChoice,
    RoundSituation,
    SelectionPolicy,
    VerifierView,
    round_terms,
)

VOCAB = 49152
WIRE = WireFormat(VOCAB)
SERVER = LinearCostModel(
    seconds_per_token=1e-3, seconds_per_interaction=0.0, seconds_per_cached_token=1e-6, seconds_per_batch=30e-3
)


def link(mbps: float, rtt_ms: float) -> Csi:
    """A loss-free link, as fast up as down."""
    return Csi(up_bps=mbps * 1e6, down_bps=mbps * 1e6, per_up=0.0, per_down=0.0, rtt_s=rtt_ms * 1e-3)


@dataclass(frozen=True)
class World:
    """What is true, whatever the policy believes.

    ``ratio``: acceptance of the first draft token by the ratio rule; shared noise accepts 0.93 of that, and each
    further position 0.98 of the one before it. A sibling accepts 0.4 of the one before it.
    """

    csi: Csi
    ratio: float
    step_s: float = 4e-3
    exchange_fixed_s: float = 2e-3
    round_fixed_s: float = 2e-3
    model: LinearCostModel = SERVER
    batch_blocks: float = 1.0
    position: int = 300
    params: SamplingParams = field(default_factory=SamplingParams)

    def acceptance(self, rule: AcceptanceRule, depth: int) -> float:
        """Of a single candidate."""
        return self.ratio * (0.93 if rule is AcceptanceRule.SHARED_NOISE else 1.0) * 0.98**depth

    def layer(self, rule: AcceptanceRule, depth: int, siblings: int) -> float:
        """That one of some siblings is accepted."""
        refused = 1.0
        for sibling in range(siblings):
            refused *= 1.0 - self.acceptance(rule, depth) * 0.4**sibling
        return 1.0 - refused

    def tokens(self, plan: DraftPlan | None) -> tuple[float, float]:
        """Expected tokens of a round, and the probability of a rejection in it."""
        if plan is None:
            return 1.0, 0.0
        rule = PROTOCOLS[plan.protocol].rule(self.params, WIRE)
        reached, total = 1.0, 1.0
        for depth, siblings in enumerate(shape(plan)):
            reached *= self.layer(rule, depth, siblings)
            total += reached
        return total, 1.0 - reached

    def round_s(self, plan: DraftPlan | None, candidates: int) -> float:
        """Expected duration of a round."""
        nodes = 0 if plan is None else plan.nodes
        block = VerifyCost(nodes + 1, self.position - 1)
        base_s = self.model.predict_s([])
        verify_s = base_s + self.batch_blocks * (self.model.predict_s([block]) - base_s) + self.round_fixed_s
        if plan is None:
            return verify_s
        steps, parents = 0.0, 1
        for siblings in shape(plan):
            steps += 1.0 + 0.1 * (parents - 1)
            parents *= siblings
        rejected = self.tokens(plan)[1]
        down_bits, up_bits, again_s = 64.0, float(message_bits(WIRE, plan)), 0.0
        row = expected_row_bits(WIRE)
        if plan.protocol == "dssd" or (plan.protocol == "dssd_candidates" and not candidates):
            down_bits, up_bits = down_bits + rejected * row, up_bits + rejected * 16.0
        elif plan.protocol == "dssd_candidates":
            down_bits += rejected * candidates_bits(candidates, WIRE, VOCAB)
            up_bits += rejected * 16.0
            again_s = exchange_s(self.csi, 64.0 + row, 32.0) * rejected
            again_s *= failure_probability(candidates, 1.0 - self.ratio)
        draft_s = steps * self.step_s + self.exchange_fixed_s
        return draft_s + exchange_s(self.csi, down_bits, up_bits) + again_s + verify_s

    def verdict(self, plan: DraftPlan, rng: random.Random) -> tuple[list[int], list[int]]:
        """Siblings offered along the accepted path, and which were accepted."""
        rule = PROTOCOLS[plan.protocol].rule(self.params, WIRE)
        offered: list[int] = []
        accepted: list[int] = []
        for depth, siblings in enumerate(shape(plan)):
            offered.append(siblings)
            chances = [self.acceptance(rule, depth) * 0.4**sibling for sibling in range(siblings)]
            winner = next((sibling for sibling, chance in enumerate(chances) if rng.random() < chance), None)
            if winner is None:
                break
            accepted.append(winner)
        return offered, accepted

    def situation(self, generation: GenerationAcceptance, **changes: object) -> RoundSituation:
        """What a policy is told of this world."""
        told = RoundSituation(
            params=self.params,
            wire=WIRE,
            position=self.position,
            remaining_tokens=10_000,
            k_max=16,
            drafter=DrafterView(self.csi, self.step_s, self.exchange_fixed_s),
            verifier=VerifierView(self.model, 0.0, self.batch_blocks, self.round_fixed_s),
            acceptance=generation.view(),
            protocols=tuple(PROTOCOLS),
            window=None,
        )
        return replace(told, **changes)  # type: ignore[arg-type]  # fields by name


def shape(plan: DraftPlan) -> Sequence[int]:
    """Siblings by depth."""
    return plan.expansion or (1,) * plan.window


def play(world: World, policy: SelectionPolicy, book: AcceptanceBook, rounds: int, seed: int) -> list[RoundChoice]:
    """One generation: choose, see the verdict, learn."""
    rng, generation = random.Random(seed), book.generation()
    choices: list[RoundChoice] = []
    for _ in range(rounds):
        choices.append(policy.choose(world.situation(generation), choices[-1] if choices else None))
        plan = choices[-1].chosen.plan
        if plan is None:
            generation.observe(AcceptanceRule.RATIO, 0, 0)
            continue
        offered, accepted = world.verdict(plan, rng)
        rule = PROTOCOLS[plan.protocol].rule(world.params, WIRE)
        if plan.expansion:
            generation.observe_tree(rule, offered, accepted)
        else:
            generation.observe(rule, len(accepted), plan.window)
    return choices


def true_candidates(world: World) -> int:
    """The number of candidates in this world."""
    settled = AcceptanceBook().generation()
    told = world.situation(settled)
    means = told.acceptance.means.copy()
    means[:] = world.ratio
    terms = round_terms("dssd_candidates", replace(told, acceptance=replace(told.acceptance, means=means)))
    return candidate_count(terms)


def true_seconds_per_token(world: World, choices: Sequence[RoundChoice]) -> float:
    """What these rounds take for each token they are expected to commit."""
    candidates = true_candidates(world)
    seconds = sum(world.round_s(choice.chosen.plan, candidates) for choice in choices)
    return seconds / sum(world.tokens(choice.chosen.plan)[0] for choice in choices)

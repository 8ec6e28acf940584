"""Estimate capacities and speeds of a group of devices by closed forms, and choose the draft that serves most.

A device alone makes a round in ``draft + link + T(1)``. With many devices, batches follow one another without a pause:
a block that arrives waits for half of the running batch on average, and for the whole of its own. A response keeps
``s`` tokens per second if that fits into the time in which its round's tokens are due:

    draft + link + WAITED_BATCHES * T  <=  E / s             E: expected tokens of a round
    T = c + B (v + E / output * prompt)                      v: what one block adds to a batch (WISP eq. 19)
    N = B / T * E / s                                        devices whose rounds arrive as fast as batches take them

``prompt`` is the time to compute a prompt, spread over ``output`` tokens. N is at most what KV memory holds. Longer
drafts raise E, and cost drafting time and a little v. Which draft serves most depends on promised speed, prefix and
coefficients, so every candidate is tried.

Closed forms ignore chance, mixed classes and policies. They rank drafts and give first guesses; capacities are
simulated (``lab.simulation.capacity``).
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache

from lab.simulation.acceptance_models import draft_shape
from lab.simulation.drafted_rounds import message_sizes
from lab.simulation.lengths import Lengths
from lab.simulation.scenario import DeviceGroup, VerifierModel
from outrider.contracts.cost import BatchWork, CostModel, VerifyCost, work_of_alike
from outrider.contracts.drafting import DraftPlan
from outrider.link.latency import exchange_s
from outrider.link.state import profile_csi
from outrider.link.trace import profile_at
from outrider.protocols.registry import tree_protocols
from outrider.selection.plans import TREE_SHAPES

WAITED_BATCHES = 1.5
LONGEST_WINDOW = 16
_NEARLY = 0.93
_QUANTILES = 200
_MOST_BLOCKS = 4096


@dataclass(frozen=True, slots=True)
class DraftSetting:
    """What a device drafts in a round: a chain of ``window`` tokens, or a tree (its depth is ``window``)."""

    window: int
    expansion: tuple[int, ...] = ()

    def __str__(self) -> str:
        return f"tree {'x'.join(map(str, self.expansion))}" if self.expansion else f"chain {self.window}"


@dataclass(frozen=True, slots=True)
class Outlook:
    draft: DraftSetting
    nodes: int  # drafted tokens of a round
    expected_tokens: float  # committed by a round, correction or bonus token included
    round_s: float  # of a device that has the verifier for itself
    marginal_s: float  # time that its block adds to a batch
    devices: float  # number that can keep the given speed, KV memory ignored

    @property
    def tokens_per_s_alone(self) -> float:
        """Speed of a device that has the verifier for itself, in tokens/s."""
        return self.expected_tokens / self.round_s


@dataclass(frozen=True, slots=True)
class TargetAlone:
    tokens_per_s_alone: float  # of a response that has the verifier for itself
    devices: float  # number of responses that can keep the given speed and whose KV fits


@cache
def mean_tokens(lengths: Lengths) -> float:
    """Return the mean of a distribution of lengths, as the mean of 200 quantiles."""
    return sum(lengths.at((index + 0.5) / _QUANTILES) for index in range(_QUANTILES)) / _QUANTILES


def context_tokens(group: DeviceGroup) -> float:
    """Return the mean positions of a response under way: its prompt and half of its output."""
    return mean_tokens(group.prompt) + mean_tokens(group.output) / 2.0


def resident_devices(group: DeviceGroup, verifier: VerifierModel) -> float:
    """Return the number of responses whose KV fits at once; infinity without a limit."""
    blocks = verifier.limits.max_memory_blocks
    return float("inf") if blocks is None else blocks * verifier.kv_block_tokens / context_tokens(group)


def link_s(group: DeviceGroup, draft: DraftSetting) -> float:
    """Return a round's time on the link (WISV eq. 6 with its messages' bits); of a trace, by its state at the start."""
    if group.link is None:
        return group.exchange_s
    down_bits, up_bits = message_sizes(DraftPlan(group.protocol, draft.window, draft.expansion))
    return group.exchange_s + exchange_s(profile_csi(profile_at(group.link, 0.0)), down_bits, up_bits)


def outlook(group: DeviceGroup, verifier: VerifierModel, draft: DraftSetting, tokens_per_s: float) -> Outlook:
    """Estimate what a draft serves where ``tokens_per_s`` (above 0) is promised."""
    shape = draft_shape(group.acceptance, draft.window, draft.expansion, group.sibling_factor)
    nodes = shape.nodes[-1] if shape.nodes else 0
    steps = shape.steps[-1] if shape.steps else 0.0
    block = VerifyCost(nodes + 1, round(context_tokens(group)))
    away_s = (steps * group.step_s + link_s(group, draft) if nodes else 0.0) + verifier.reply_s
    alone_s = _batch_s(verifier.cost_model, block, 1) + verifier.dispatch_s
    spare_s = (shape.expected_tokens / tokens_per_s - away_s) / WAITED_BATCHES
    prompt_s = _prompt_s(group, verifier) * shape.expected_tokens

    def batch_s(blocks: int) -> float:
        return _batch_s(verifier.cost_model, block, blocks) + blocks * prompt_s

    most = min(verifier.limits.max_blocks, max(1, verifier.limits.max_new_tokens // block.new_tokens), _MOST_BLOCKS)
    blocks = _largest(most, lambda count: batch_s(count) <= spare_s)
    return Outlook(
        draft=draft,
        nodes=nodes,
        expected_tokens=shape.expected_tokens,
        round_s=away_s + alone_s,
        marginal_s=_batch_s(verifier.cost_model, block, 2) - _batch_s(verifier.cost_model, block, 1),
        devices=blocks / batch_s(max(blocks, 1)) * shape.expected_tokens / tokens_per_s,
    )


def target_alone(group: DeviceGroup, verifier: VerifierModel, tokens_per_s: float) -> TargetAlone:
    """Estimate what the target serves without drafts.

    Each batch gives every running response one token, and takes time for that and for each response's share of prompts.
    """
    model, prompt_s = verifier.cost_model, _prompt_s(group, verifier)
    block = VerifyCost(1, round(context_tokens(group)))

    def kept(blocks: int) -> bool:
        return _batch_s(model, block, blocks) + blocks * prompt_s <= 1.0 / tokens_per_s

    return TargetAlone(
        tokens_per_s_alone=1.0 / _batch_s(model, block, 1),
        devices=float(
            min(_largest(min(verifier.limits.max_blocks, _MOST_BLOCKS), kept), resident_devices(group, verifier))
        ),
    )


def chains(longest: int = LONGEST_WINDOW) -> tuple[DraftSetting, ...]:
    return tuple(DraftSetting(window) for window in range(1, longest + 1))


def trees(longest: int = LONGEST_WINDOW) -> tuple[DraftSetting, ...]:
    """Return tree shapes to try: the product's own, and combs (a few siblings near the root, then a single path)."""
    shapes = dict.fromkeys((*TREE_SHAPES, *_combs(longest)))
    return tuple(DraftSetting(len(shape), shape) for shape in shapes if len(shape) <= longest)


def best_draft(
    group: DeviceGroup, verifier: VerifierModel, tokens_per_s: float, candidates: Iterable[DraftSetting]
) -> Outlook:
    """Return, among drafts that serve at least 93 % of the most devices, the one that is fastest for a device alone.

    The optimum is flat. Long drafts are late more often by chance, which closed forms ignore, and a response that ends
    sooner frees its memory sooner. There must be at least one candidate.
    """
    outlooks = [outlook(group, verifier, draft, tokens_per_s) for draft in candidates]
    most = max(found.devices for found in outlooks)
    near = [found for found in outlooks if found.devices >= _NEARLY * most]
    return max(near, key=lambda found: found.tokens_per_s_alone)


def fastest_draft(group: DeviceGroup, verifier: VerifierModel, candidates: Iterable[DraftSetting]) -> Outlook:
    return max(
        (outlook(group, verifier, draft, 1.0) for draft in candidates), key=lambda found: found.tokens_per_s_alone
    )


def offered_drafts(group: DeviceGroup) -> tuple[DraftSetting, ...]:
    """Return the drafts that a group's protocol allows: chains, and trees if its messages carry them."""
    return (*chains(), *trees()) if group.protocol in tree_protocols() else chains()


def _combs(longest: int) -> Iterator[tuple[int, ...]]:
    """Yield trees with two children at each of the first depths, or three (then two), and single ones after them."""
    for depth in range(2, longest + 1):
        for wide in range(1, min(depth, 4) + 1):
            yield (2,) * wide + (1,) * (depth - wide)
        yield (3,) + (1,) * (depth - 1)
        yield (3, 2) + (1,) * (depth - 2)


def _prompt_s(group: DeviceGroup, verifier: VerifierModel) -> float:
    """Return the time of computing a prompt, per token of its response."""
    model, prompt = verifier.cost_model, round(mean_tokens(group.prompt))
    took_s = model.predict_s([VerifyCost(prompt, 0)]) - model.predict_work_s(BatchWork())
    return max(0.0, took_s) / mean_tokens(group.output)


def _largest(most: int, kept: Callable[[int], bool]) -> int:
    """Return the largest number in 1..``most`` for which the monotone ``kept`` holds; 0 if none does."""
    held, broken = 0, most + 1
    while broken - held > 1:
        middle = (held + broken) // 2
        if kept(middle):
            held = middle
        else:
            broken = middle
    return held


def _batch_s(cost_model: CostModel, block: VerifyCost, blocks: int) -> float:
    return cost_model.predict_work_s(work_of_alike(block, blocks))

"""What to expect of a group of devices before anything is simulated: closed forms, and the draft that serves most.

A device with nobody beside it makes a round in ``draft + link + T(1)``. With many, batches follow one another without a
pause; a block that arrives waits for half of the running batch on average and for its own whole one. A response keeps
``s`` tokens per second if that fits into the time its round's tokens are worth:

    draft + link + WAITED_BATCHES * T  <=  E / s             E: expected tokens of a round
    T = c + B (v + E / output * prompt)                      v: what one block adds to a batch (WISP eq. 19)
    N = B / T * E / s                                        devices whose rounds arrive as fast as batches take them

``prompt`` is what computing a prompt takes, once for each ``output`` tokens; N is at most what KV memory holds.
Longer drafts raise E; they cost drafting time and, a little, v. Which draft serves most depends on the speed promised,
the prefix and the coefficients, so every candidate is tried.

A closed form knows no chance, no mixed classes and no policy: it ranks drafts and says what to expect; capacities are
simulated (``outrider.simulation.capacity``).
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache

from outrider.contracts.cost import BatchWork, CostModel, VerifyCost, work_of_alike
from outrider.contracts.drafting import DraftPlan
from outrider.link.latency import exchange_s
from outrider.link.state import profile_csi
from outrider.link.trace import profile_at
from outrider.protocols.registry import tree_protocols
from outrider.selection.plans import TREE_SHAPES
from outrider.simulation.acceptance_models import draft_shape
from outrider.simulation.drafted_rounds import message_sizes
from outrider.simulation.lengths import Lengths
from outrider.simulation.scenario import DeviceGroup, VerifierModel

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
        """As tables show it."""
        return f"tree {'x'.join(map(str, self.expansion))}" if self.expansion else f"chain {self.window}"


@dataclass(frozen=True, slots=True)
class Outlook:
    """What one draft promises for a group of devices."""

    draft: DraftSetting
    nodes: int  # drafted tokens of a round
    expected_tokens: float  # committed by a round, correction or bonus token included
    round_s: float  # of a device that has the verifier for itself
    marginal_s: float  # what its block adds to a batch
    devices: float  # that can keep the speed asked about; memory aside

    @property
    def tokens_per_s_alone(self) -> float:
        """Speed of a device that has the verifier for itself."""
        return self.expected_tokens / self.round_s


@dataclass(frozen=True, slots=True)
class TargetAlone:
    """The target served on the server, without drafts (continuous batching)."""

    tokens_per_s_alone: float  # of a response that has it for itself
    devices: float  # responses that can keep the speed asked about and whose KV fits


@cache
def mean_tokens(lengths: Lengths) -> float:
    """Mean of a distribution of lengths."""
    return sum(lengths.at((index + 0.5) / _QUANTILES) for index in range(_QUANTILES)) / _QUANTILES


def context_tokens(group: DeviceGroup) -> float:
    """Positions of a response at a random moment: its prompt and half of what it becomes."""
    return mean_tokens(group.prompt) + mean_tokens(group.output) / 2.0


def resident_devices(group: DeviceGroup, verifier: VerifierModel) -> float:
    """Responses whose KV fits at once; infinity without a limit."""
    blocks = verifier.limits.max_memory_blocks
    return float("inf") if blocks is None else blocks * verifier.kv_block_tokens / context_tokens(group)


def link_s(group: DeviceGroup, draft: DraftSetting) -> float:
    """Seconds a round spends on the link: WISV eq. 6 with the bits its messages have; a trace counts as it begins."""
    if group.link is None:
        return group.exchange_s
    down_bits, up_bits = message_sizes(DraftPlan(group.protocol, draft.window, draft.expansion))
    return group.exchange_s + exchange_s(profile_csi(profile_at(group.link, 0.0)), down_bits, up_bits)


def outlook(group: DeviceGroup, verifier: VerifierModel, draft: DraftSetting, tokens_per_s: float) -> Outlook:
    """What a draft promises where ``tokens_per_s``, above 0, is to be kept."""
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
    """What serving the target without drafts promises.

    Every running response gets one token of each batch; the time left by prompts, one for each response, is theirs.
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
    """Every chain up to a length."""
    return tuple(DraftSetting(window) for window in range(1, longest + 1))


def trees(longest: int = LONGEST_WINDOW) -> tuple[DraftSetting, ...]:
    """Tree shapes worth trying: the product's own, and a few siblings at the root's side with a long single path."""
    shapes = dict.fromkeys((*TREE_SHAPES, *_combs(longest)))
    return tuple(DraftSetting(len(shape), shape) for shape in shapes if len(shape) <= longest)


def best_draft(
    group: DeviceGroup, verifier: VerifierModel, tokens_per_s: float, candidates: Iterable[DraftSetting]
) -> Outlook:
    """Of the drafts with which nearly most devices keep a speed the one that is fastest alone.

    The optimum is flat, long drafts are late more often by bad luck, which no closed form knows, and a response that is
    over sooner frees its memory sooner. At least one candidate is needed.
    """
    outlooks = [outlook(group, verifier, draft, tokens_per_s) for draft in candidates]
    most = max(found.devices for found in outlooks)
    near = [found for found in outlooks if found.devices >= _NEARLY * most]
    return max(near, key=lambda found: found.tokens_per_s_alone)


def fastest_draft(group: DeviceGroup, verifier: VerifierModel, candidates: Iterable[DraftSetting]) -> Outlook:
    """The draft with which one device alone is fastest, of at least one candidate."""
    return max(
        (outlook(group, verifier, draft, 1.0) for draft in candidates), key=lambda found: found.tokens_per_s_alone
    )


def offered_drafts(group: DeviceGroup) -> tuple[DraftSetting, ...]:
    """What may be drafted under a group's protocol: chains, and trees where its messages carry them."""
    return (*chains(), *trees()) if group.protocol in tree_protocols() else chains()


def _combs(longest: int) -> Iterator[tuple[int, ...]]:
    """Two children at each of the first ``wide`` depths, or three and then two, then single ones."""
    for depth in range(2, longest + 1):
        for wide in range(1, min(depth, 4) + 1):
            yield (2,) * wide + (1,) * (depth - wide)
        yield (3,) + (1,) * (depth - 1)
        yield (3, 2) + (1,) * (depth - 2)


def _prompt_s(group: DeviceGroup, verifier: VerifierModel) -> float:
    """Seconds of computing prompts for each token of a response."""
    model, prompt = verifier.cost_model, round(mean_tokens(group.prompt))
    took_s = model.predict_s([VerifyCost(prompt, 0)]) - model.predict_work_s(BatchWork())
    return max(0.0, took_s) / mean_tokens(group.output)


def _largest(most: int, kept: Callable[[int], bool]) -> int:
    """The largest number up to ``most`` that still holds, of what holds up to some number; 0 if none does."""
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

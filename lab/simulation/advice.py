"""Answer an operator's question: how many devices can one server keep its promises to, and does drafting pay?

For each group, closed forms (``planning``) choose the draft that serves most devices at the promised speed; for a
best-effort group, the one that is fastest alone. Then two sides are simulated under one rule: with drafts, and the
target alone. Each side says what the operator's devices get, and for how many devices of the same mix promises are kept
(``mix``). ``first_look`` and then ``confirmation`` (one for each seed) are jobs for worker processes; ``answer``
combines the results of a side.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial

from lab.simulation.mix import (
    MOST_ROUNDS,
    BrokenPromise,
    Mix,
    MixCapacity,
    MixSearch,
    PromiseRule,
    breaks,
    confirm,
    search,
    served,
)
from lab.simulation.planning import (
    DraftSetting,
    Outlook,
    best_draft,
    fastest_draft,
    offered_drafts,
    outlook,
    resident_devices,
    target_alone,
)
from lab.simulation.results import ClassResults, Percentiles, SimulationResults, summary
from lab.simulation.scenario import DeviceGroup, VerifierModel

_LEAST_GAIN = 1.05  # multiples below this are noise
_NO_SPEED = 1.0  # tokens/s of best effort, where a closed form asks for one
_SAFE = 0.9  # of a speed that one device gets alone
_FULL = 0.9  # of what fits into memory


class Side(StrEnum):
    DRAFTING = "with drafts"
    ALONE = "target alone"


@dataclass(frozen=True, slots=True)
class SideAnswer:
    """Results of one side.

    Attributes:
        by_group: results of each group while all the operator's devices are active, in the mix's order.
    """

    side: Side
    by_group: tuple[ClassResults, ...]
    first_token_times: Percentiles  # of that run
    busy_share: float
    served: MixCapacity | None  # None if no group has a promise


@dataclass(frozen=True, slots=True)
class PlanQuestion:
    """One side of a plan with one seed: a job for a worker process."""

    mix: Mix  # as its devices should draft
    side: Side
    rule: PromiseRule
    seed: int
    most_rounds: int  # approximate limit of a run's rounds, and so of the search


@dataclass(frozen=True, slots=True)
class FirstLook:
    """One side with one seed: a run of the operator's devices, and a search; None if no group has a promise."""

    together: SimulationResults
    searched: MixSearch | None


@dataclass(frozen=True, slots=True)
class Advice:
    mix: Mix
    drafts: tuple[Outlook, ...]  # of each group, in the mix's order
    # Of one device of each group, with the server to itself and without drafts.
    autoregressive_tokens_per_s: tuple[float, ...]
    drafting: SideAnswer
    autoregressive: SideAnswer

    @property
    def multiple(self) -> float | None:
        """Devices served with drafts over those without; None if a search was not ended or the latter are 0."""
        ours, theirs = self.drafting.served, self.autoregressive.served
        if ours is None or theirs is None or not (ours.searched_all and theirs.searched_all and theirs.devices):
            return None
        return ours.devices / theirs.devices

    @property
    def better(self) -> SideAnswer:
        """The side to run; the target alone if the difference is within noise."""
        ours, theirs = self.drafting.served, self.autoregressive.served
        if ours is None or theirs is None or not (ours.searched_all or theirs.searched_all):
            pairs = zip(self.drafts, self.autoregressive_tokens_per_s, strict=True)
            faster = all(draft.tokens_per_s_alone > _LEAST_GAIN * speed for draft, speed in pairs)
            return self.drafting if faster else self.autoregressive
        more = theirs.searched_all and (not ours.searched_all or ours.devices > _LEAST_GAIN * theirs.devices)
        return self.drafting if more else self.autoregressive

    @property
    def servers(self) -> int | None:
        """Servers like this one that the operator's devices need; None if there is no promise or nobody is served."""
        found = self.better.served
        return -(-self.mix.devices // found.devices) if found is not None and found.devices else None


def drafting_mix(groups: Sequence[DeviceGroup], verifier: VerifierModel) -> Mix:
    """Return the mix in which each group drafts what serves most of its devices."""
    drafts = [_best(group, verifier).draft for group in groups]
    pairs = zip(groups, drafts, strict=True)
    return Mix(tuple(replace(g, window=d.window, expansion=d.expansion, predictor=None) for g, d in pairs), verifier)


def questions(
    mix: Mix, rule: PromiseRule, seed: int, most_rounds: int = MOST_ROUNDS
) -> tuple[PlanQuestion, PlanQuestion]:
    return (
        PlanQuestion(mix, Side.DRAFTING, rule, seed, most_rounds),
        PlanQuestion(mix.without_drafts(), Side.ALONE, rule, seed, most_rounds),
    )


def first_look(question: PlanQuestion) -> FirstLook:
    """Run and search one side with one seed; a pure function of the question."""
    mix = question.mix
    together = mix.run(mix.devices, question.seed)
    promised = [group for group in mix.groups if group.slo.tokens_per_s]
    if not promised:
        return FirstLook(together, None)
    tokens = min(_outlook(group, mix.verifier).expected_tokens for group in promised)
    most = max(mix.most_devices(tokens, question.most_rounds), 2 * mix.devices)
    return FirstLook(together, search(partial(_broken, question, quick=True), _guess(mix, question.side), most))


def confirmation(question: PlanQuestion, devices: int) -> MixSearch:
    """Confirm a number of devices in whole runs with the question's seed, or go down from it; a pure function."""
    return confirm(partial(_broken, question, quick=False), devices)


def answer(question: PlanQuestion, look: FirstLook, confirmed: Sequence[MixSearch]) -> SideAnswer:
    """Combine one side's results; ``confirmed`` is empty if nothing was searched."""
    together = look.together
    by_group = (summary([one for one in together.devices if one.group == group.name]) for group in question.mix.groups)
    found = None if look.searched is None else served(look.searched, confirmed)
    return SideAnswer(question.side, tuple(by_group), together.first_token_times, together.busy_share, found)


def advice_of(mix: Mix, drafting: SideAnswer, autoregressive: SideAnswer) -> Advice:
    drafts = tuple(_outlook(group, mix.verifier) for group in mix.groups)
    speeds = tuple(target_alone(group, mix.verifier, _NO_SPEED).tokens_per_s_alone for group in mix.groups)
    return Advice(mix, drafts, speeds, drafting, autoregressive)


def lines(advice: Advice, rule: PromiseRule) -> list[str]:
    """Say what an operator should do and why, one sentence a line."""
    said = [_verdict(advice)]
    found = advice.better.served
    if found is None:
        return said
    if found.devices == 0:
        return [*said, _wanting(advice, rule)]
    servers, devices = advice.servers, advice.mix.devices
    room = f"{devices / found.devices:.0%} of that" if found.searched_all else "well within that"
    one = f"One server like this is enough for your {devices}: they are {room}"
    said.append(one if servers == 1 else f"Your {devices} need {servers} servers like this one, filled alike")
    if (end := found.broken_by) is not None:
        slow = (
            f"of class {end.unkept_class} {end.unkept_share:.0%} are late or refused ({end.refused_share:.0%} refused)"
        )
        wait = f"first tokens are waited for {end.first_token_p99_s:.1f} s (p99; at most {rule.first_token_s:g} s)"
        said.append(
            f"What ends it, at {end.devices} devices: {slow if end.unkept_class else wait}{_cure(advice, found)}"
        )
    return said


def _verdict(advice: Advice) -> str:
    ours, theirs = advice.drafting.served, advice.autoregressive.served
    by_speeds: dict[str, list[str]] = {}
    for group, draft, speed in zip(advice.mix.groups, advice.drafts, advice.autoregressive_tokens_per_s, strict=True):
        gets = f"alone gets {draft.tokens_per_s_alone:.1f} tokens/s with drafts, {speed:.1f} without"
        by_speeds.setdefault(gets, []).append(group.name)
    speeds = "; ".join(f"one device of {', '.join(names)} {gets}" for gets, names in by_speeds.items())
    drafts = advice.better is advice.drafting
    if ours is None or theirs is None:
        return f"{'Draft' if drafts else 'Do not draft'}: {speeds}"
    if ours.devices == theirs.devices == 0:
        return f"Nobody's promise is kept, with drafts or without: {speeds}"
    counts = (
        f"one server keeps its promises to {_count(ours)} devices of this mix with drafts, to {_count(theirs)} without"
    )
    if not (ours.searched_all or theirs.searched_all):
        return f"{'Draft' if drafts else 'Do not draft'}: both serve more than you have, {counts}; {speeds}"
    return f"{'Draft' if drafts else 'Serve the target alone'}: {counts}; {speeds}"


def _count(found: MixCapacity) -> str:
    """Format a capacity with its range over seeds; a search that was not ended gives a lower bound."""
    if not found.searched_all:
        return f"more than {found.devices} (not searched further)"
    return f"{found.devices}" if found.most == found.devices else f"{found.devices} to {found.most}"


def _wanting(advice: Advice, rule: PromiseRule) -> str:
    pairs = zip(advice.mix.groups, advice.drafts, advice.autoregressive_tokens_per_s, strict=True)
    speeds = [(group, max(draft.tokens_per_s_alone, speed)) for group, draft, speed in pairs if group.slo.tokens_per_s]
    group, speed = min(speeds, key=lambda pair: pair[1] / pair[0].slo.tokens_per_s)
    if speed > group.slo.tokens_per_s:
        end = advice.better.served.broken_by if advice.better.served is not None else None
        waited = f", first tokens are waited for {end.first_token_p99_s:.1f} s" if end is not None else ""
        return (
            f"One device alone is served, but not reliably{waited}: promise less than {group.slo.tokens_per_s:g} "
            f"tokens/s, shorten prompts (first tokens within {rule.first_token_s:g} s), or use a faster server"
        )
    return (
        f"Promise {group.name} at most {_SAFE * speed:.1f} tokens/s instead of {group.slo.tokens_per_s:g}, "
        "or use a faster server"
    )


def _cure(advice: Advice, found: MixCapacity) -> str:
    resident = min(resident_devices(group, advice.mix.verifier) for group in advice.mix.groups)
    if found.devices >= _FULL * resident:
        return f". KV memory is full there ({resident:.0f} responses fit): more of it or shorter prompts serve more"
    return ". Promise less, or add a server, to serve more"


def _broken(question: PlanQuestion, devices: int, *, quick: bool) -> BrokenPromise | None:
    return breaks(question.mix.run(devices, question.seed, quick=quick), question.rule, devices)


def _best(group: DeviceGroup, verifier: VerifierModel) -> Outlook:
    drafts = offered_drafts(group)
    speed = group.slo.tokens_per_s
    return best_draft(group, verifier, speed, drafts) if speed else fastest_draft(group, verifier, drafts)


def _outlook(group: DeviceGroup, verifier: VerifierModel) -> Outlook:
    return outlook(group, verifier, DraftSetting(group.window, group.expansion), group.slo.tokens_per_s or _NO_SPEED)


def _guess(mix: Mix, side: Side) -> int:
    """Guess a mix's capacity: the weighted harmonic mean of what its promised groups have by closed forms."""
    weighted = 0.0
    for group in mix.groups:
        speed = group.slo.tokens_per_s
        if not speed:
            continue
        own = _outlook(group, mix.verifier).devices
        if side is Side.ALONE:
            own = target_alone(group, mix.verifier, speed).devices
        own = min(max(own, 1.0), resident_devices(group, mix.verifier))
        weighted += group.count / mix.devices / own
    return max(1, int(1.0 / weighted))

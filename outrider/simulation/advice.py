"""An operator's question: is drafting on these devices worth it, and how many can be promised what?

For each group: the draft that serves most at the promised speed (closed forms, ``planning``), then by simulation how
many such devices keep that speed, and what the devices there are get when all of them are active. Serving the target
alone on the same server is a closed form, exact to a few percent: its batches know no chance. A best-effort group is
promised nothing; it gets the draft that is fastest alone.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from outrider.simulation.capacity import Capacity, capacity
from outrider.simulation.planning import (
    Outlook,
    TargetAlone,
    best_draft,
    fastest_draft,
    mean_tokens,
    offered_drafts,
    resident_devices,
    target_alone,
)
from outrider.simulation.results import ClassResults, summary
from outrider.simulation.run import simulate
from outrider.simulation.scenario import DeviceGroup, Scenario, System, VerifierModel
from outrider.simulation.settings import admission_of

_MOST_DEVICES = 512
_RESPONSES = 1.0
_FIRST_TOKEN_S = 5.0  # one response in a hundred may wait longer
_WORTH = 1.05  # multiples below this are noise
_ASSUMED_TOKENS_PER_S = 8.0  # of best effort, to say how long a run is


@dataclass(frozen=True, slots=True)
class GroupAdvice:
    """What one group has to expect.

    Attributes:
        drafting: devices that keep the promised speed, one class alone on the server; None of best effort.
    """

    group: DeviceGroup  # as it should draft
    outlook: Outlook  # of that draft
    target: TargetAlone  # served alone, without drafts
    drafting: Capacity | None
    together: ClassResults  # what its devices get while all groups are active
    resident: float  # responses whose KV fits at once

    @property
    def multiple(self) -> float | None:
        """Devices drafting over responses served alone; None of best effort, or if the target alone serves none."""
        if self.drafting is None or self.serving_alone == 0:
            return None
        return self.drafting.devices / self.serving_alone

    @property
    def serving_alone(self) -> int:
        """Responses served at the promised speed without drafts."""
        return int(self.target.devices)

    @property
    def verdict(self) -> str:
        """Whether drafting is worth it, in one sentence."""
        ours, theirs = self.outlook.tokens_per_s_alone, self.target.tokens_per_s_alone
        speed = f"one device alone gets {ours:.1f} tokens/s against {theirs:.1f} of the target alone"
        if self.drafting is None:
            better = ours > _WORTH * theirs
            return f"drafting {'is' if better else 'is not'} faster: {speed}"
        served, alone = self.drafting.devices, self.serving_alone
        promise = f"{self.group.slo.tokens_per_s:g} tokens/s"
        least = "at least " if self.drafting.bounded else ""
        counts = f"{least}{served} devices keep {promise} where the target alone serves {alone}; {speed}"
        if served == alone == 0:
            return f"nobody keeps {promise}, with drafts or without: promise less, or use a faster server; {speed}"
        if served > _WORTH * alone:
            return f"drafting is worth it: {counts}"
        if served * _WORTH < alone:
            return f"serve the target alone: {counts}"
        return f"no difference in how many are served: {counts}"


def advise(groups: tuple[DeviceGroup, ...], verifier: VerifierModel, eps: float, seed: int) -> Iterator[GroupAdvice]:
    """One group after another; the first takes longest, as it waits for the run of all together."""
    drafts = [_best(group, verifier).draft for group in groups]
    drafting = tuple(
        replace(group, window=draft.window, expansion=draft.expansion, predictor=None)
        for group, draft in zip(groups, drafts, strict=True)
    )
    together = simulate(_scenario(drafting, verifier, seed)).devices
    for group in drafting:
        promised = group.slo.tokens_per_s > 0.0
        yield GroupAdvice(
            group=group,
            outlook=_best(group, verifier),
            target=target_alone(group, verifier, group.slo.tokens_per_s or _ASSUMED_TOKENS_PER_S),
            drafting=_served(group, verifier, eps, seed) if promised else None,
            together=summary([device for device in together if device.group == group.name]),
            resident=resident_devices(group, verifier),
        )


def _best(group: DeviceGroup, verifier: VerifierModel) -> Outlook:
    drafts = offered_drafts(group)
    speed = group.slo.tokens_per_s
    return best_draft(group, verifier, speed, drafts) if speed else fastest_draft(group, verifier, drafts)


def _served(group: DeviceGroup, verifier: VerifierModel, eps: float, seed: int) -> Capacity:
    def rate(devices: int) -> float:
        alike = (replace(group, count=devices),)
        found = simulate(_scenario(alike, verifier, seed))
        slow_start = found.first_token_times.p99_s > _FIRST_TOKEN_S
        return 1.0 if slow_start else found.promised.response_violation_rate

    guess = min(_best(group, verifier).devices, resident_devices(group, verifier))
    return capacity(rate, eps, _MOST_DEVICES, max(1, int(guess)), resolution=0.05)


def _scenario(groups: tuple[DeviceGroup, ...], verifier: VerifierModel, seed: int) -> Scenario:
    response_s = max(
        mean_tokens(group.output) / (group.slo.tokens_per_s or _ASSUMED_TOKENS_PER_S) + group.pause_s
        for group in groups
    )
    staggered = tuple(replace(group, stagger_s=group.stagger_s or response_s) for group in groups)
    warmup_s = 0.5 * response_s
    return Scenario(
        name="plan",
        system=System.OUTRIDER,
        groups=staggered,
        verifier=verifier,
        admission=admission_of(verifier),
        duration_s=warmup_s + _RESPONSES * response_s,
        warmup_s=warmup_s,
        seed=seed,
    )

"""What stands between our figures and the published ones, in sentences made from the figures."""

from collections.abc import Mapping, Sequence

from bench.simulate_cases import Case
from outrider.contracts.cost import BatchWork, VerifyCost
from outrider.contracts.slo import SloClass
from outrider.simulation.experiment import CellResult, LoadResult
from outrider.simulation.planning import Draft, context_tokens, outlook, resident_devices
from outrider.simulation.published import CAPACITY_32B, SPEEDS_TOKENS_PER_S
from outrider.simulation.scenario import DeviceGroup
from outrider.simulation.settings import Rung, Settings, group_of, verifier_of

_NEAR = 0.1
_OTHER_PREFIX = 500
Found = Mapping[tuple[str, Rung, float], CellResult]


def explain(cases: Sequence[Case], found: Found) -> list[str]:
    """One sentence or two for each gap."""
    case = cases[0]
    texts = [_fit(case, found), _memory(case), _prefix_alone(case), _wisp(case, found), _per_round(case, found)]
    same = [other for other in cases[1:] if other.costs == case.costs]
    texts += [_memory_free(case, other, found) for other in same]
    return [*texts, *(_other_costs(case, other, found) for other in cases[1:] if other not in same)]


def devices(found: Found, case: Case, rung: Rung, speed: float) -> int:
    """Capacity in a cell."""
    return found[case.name, rung, speed].devices


def multiple(found: Found, case: Case, rung: Rung, over: Rung, speed: float) -> float | None:
    """How many times as many; None if the other serves nobody."""
    base = devices(found, case, over, speed)
    return devices(found, case, rung, speed) / base if base else None


def _fit(case: Case, found: Found) -> str:
    misses = []
    for rung in (Rung.SLED, Rung.CENTRALIZED):
        for speed in case.speeds_tokens_per_s:
            published = CAPACITY_32B[rung.value][SPEEDS_TOKENS_PER_S.index(speed)]
            ours = devices(found, case, rung, speed)
            if abs(ours / published - 1.0) > _NEAR:
                misses.append(f"{rung} at {speed:g} tokens/s {ours} against {published}")
    if not misses:
        return "One setting fits both columns it was searched on within 10 %."
    return f"One setting fits both columns it was searched on within 10 %, except: {'; '.join(misses)}."


def _memory(case: Case) -> str:
    group, verifier = _plain(case, 8.0), verifier_of(case.settings, case.costs)
    context = context_tokens(group)
    cold_s = _added_s(case, round(context), 0)
    warm_s = outlook(group, verifier, Draft(case.settings.window), 8.0).marginal_s
    return (
        f"KV memory holds {case.settings.kv_tokens} tokens (16 GB beside 64 GB of weights, 256 KiB a token): that is"
        f" {resident_devices(group, verifier):.0f} responses of {context:.0f} tokens at a random moment. It ends the"
        " centralized column at 2 tokens/s and every system here that serves so many: beyond it a response's KV is"
        f" evicted while its device drafts and computed again, {1e3 * cold_s:.0f} ms in place of {1e3 * warm_s:.1f}."
        " WISP's 164 devices at 2 tokens/s do not fit at these lengths, which the paper does not print."
    )


def _prefix_alone(case: Case) -> str:
    group, constant_s = _plain(case, 8.0), case.costs.target.predict_work_s(BatchWork())
    added_s = _added_s(case, 1, _OTHER_PREFIX)
    counts = [f"{(1.0 / speed - constant_s) / added_s:.0f}" for speed in SPEEDS_TOKENS_PER_S]
    published = "/".join(map(str, CAPACITY_32B["centralized"]))
    return (
        "Without a memory limit no one prefix fits the centralized column, which is no hyperbola at its slow end: with"
        f" {_OTHER_PREFIX} tokens the closed form gives {'/'.join(counts)} at 2/4/6/8 tokens/s against {published}"
        f" printed. {context_tokens(group):.0f} tokens and the limit together give what the table shows."
    )


def _wisp(case: Case, found: Found) -> str:
    speed = case.speeds_tokens_per_s[-1]
    wanted = (Rung.WISP, Rung.KV, Rung.PREDICTOR)
    ours, fcfs, predicted = (devices(found, case, rung, speed) for rung in wanted)
    published = CAPACITY_32B["wisp"][SPEEDS_TOKENS_PER_S.index(speed)]
    context = round(context_tokens(_plain(case, speed)))
    read_s, token_s = _added_s(case, 0, context), _added_s(case, 1, context) - _added_s(case, 0, context)
    return (
        f"WISP with these settings serves {ours} at {speed:g} tokens/s, published {published}; first come first served"
        f" with kept KV serves {fcfs}, and {predicted} with WISP's predictor: kept KV is most of the gain. Algorithm 1"
        " ends a batch at the first block that can no longer be in time; from the first such block on batches are"
        " nearly empty, and it does not recover (an erratum of the paper). The predictor stops drafts early, which"
        f" costs capacity where a round reads its prefix for {1e3 * read_s:.1f} ms and a drafted token"
        f" adds {1e3 * token_s:.2f} ms. Nothing of WISP's column was used to find the settings."
    )


def _per_round(case: Case, found: Found) -> str:
    speed = case.speeds_tokens_per_s[-1]
    rates = [found[case.name, rung, speed].violation_rates["round"] for rung in (Rung.SLED, Rung.WISP, Rung.CHAINS)]
    return (
        "Counted per round, as eq. 4 is printed, a round that commits one token is late whatever the server does: at"
        f" the capacities above {100 * rates[0]:.0f} % (SLED), {100 * rates[1]:.0f} % (WISP) and {100 * rates[2]:.0f} %"
        " (ours, with windows) of the rounds are. No eps of a few percent can be kept that way, so Table 2 cannot have"
        " been counted so; responses are counted here."
    )


def _memory_free(case: Case, free: Case, found: Found) -> str:
    shown = []
    for one in (case, free):
        for rung in (Rung.CHAINS, Rung.TREES):
            over = [multiple(found, one, rung, base, 8.0) for base in (Rung.CENTRALIZED, Rung.SLED)]
            shown.append("/".join("no" if ratio is None else f"{ratio:.1f}" for ratio in over))
    return (
        f"With KV memory for everybody windows serve {shown[2]} times centralized/SLED at 8 tokens/s and trees"
        f" {shown[3]}; with the limit {shown[0]} and {shown[1]}. So memory, not time, ends the rungs above"
        f" `{Rung.KV}` there. Trees gain little over chains where a token is accepted as often as here"
        f" ({case.settings.token_acceptance:g}): siblings help where rejection is likely."
    )


def _other_costs(first: Case, other: Case, found: Found) -> str:
    parts = []
    for case, speed in ((first, first.speeds_tokens_per_s[-1]), (other, other.speeds_tokens_per_s[0])):
        ratios = [multiple(found, case, Rung.CHAINS, over, speed) for over in (Rung.CENTRALIZED, Rung.SLED)]
        shown = ["no" if ratio is None else f"{ratio:.1f}" for ratio in ratios]
        added_s = _added_s(case, 1, round(context_tokens(_plain(case, speed))))
        constant_s = case.costs.target.predict_work_s(BatchWork())
        parts.append(
            f"{shown[0]} times centralized and {shown[1]} times SLED at {speed:g} tokens/s, where a step costs"
            f" {1e3 * constant_s:.1f} ms and each response in it {1e3 * added_s:.2f} ms more"
        )
    return (
        f"Costs decide, not the system. Table 12: with windows {parts[0]}. {other.name[0].upper()}{other.name[1:]}"
        f" ({other.source}): {parts[1]}. Drafting shares a response's own part among the tokens of a round; where that"
        " part is small beside the step, batching alone serves as many."
    )


def _plain(case: Case, speed: float) -> DeviceGroup:
    return group_of(case.settings, SloClass("any", speed), 1)


def _added_s(case: Case, new: int, cached: int) -> float:
    """What a block adds to a pass that computes something already."""
    model, other = case.costs.target, VerifyCost(8, 0)
    return model.predict_s([other, VerifyCost(new, cached)]) - model.predict_s([other])


def table_1(loads: Sequence[LoadResult], published: Sequence[float]) -> LoadResult | None:
    """The run of first come first served whose violations at the tight speeds are nearest to Table 1's."""
    runs = [load for load in loads if load.rung is Rung.KV and len(load.by_class) == len(published)]
    if not runs:
        return None

    def distance(load: LoadResult) -> float:
        rates = [one.round_violation_rate for one in load.by_class]
        return sum((ours - theirs) ** 2 for ours, theirs in zip(rates, published, strict=True))

    return min(runs, key=distance)


def lengths_of(settings: Settings) -> str:
    """Settings in one line."""
    return (
        f"prompt {settings.prompt_tokens}, output {settings.output_tokens} (+-{100 * settings.length_spread:.0f} %),"
        f" {settings.draft_tokens_per_s:g} draft tokens/s, window {settings.window},"
        f" token acceptance {settings.token_acceptance:g} (accepted fraction {settings.accepted_fraction:.2f}),"
        f" RTT {1e3 * settings.rtt_s:g} ms, eps {settings.epsilon:g}, KV of {settings.kv_tokens} tokens"
    )

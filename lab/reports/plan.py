"""Tables and figures of ``outrider plan``."""

from cluster.reports.tables import show_table
from lab.reports.columns import percent
from lab.simulation.advice import Advice, SideAnswer, lines
from lab.simulation.mix import MixCapacity, PromiseRule
from lab.simulation.results import ClassResults

_HEADER = (
    "devices",
    "class",
    "draft",
    "tokens/round",
    "alone",
    "together",
    "late",
    "no drafts: alone",
    "together",
    "late",
)
_SIDES = ("", "first token p50", "p99", "busy", "devices served", "by seed", "servers needed")


def show_plan(advice: Advice, rule: PromiseRule, seeds: int) -> None:
    rows = []
    for index, group in enumerate(advice.mix.groups):
        draft = advice.drafts[index]
        rows.append(
            (
                f"{group.count} {group.name}",
                f"{group.slo.name} ({group.slo.tokens_per_s:g}/s)",
                draft.draft,
                f"{draft.expected_tokens:.2f}",
                f"{draft.tokens_per_s_alone:.1f}",
                *_together(advice.drafting.by_group[index]),
                f"{advice.autoregressive_tokens_per_s[index]:.1f}",
                *_together(advice.autoregressive.by_group[index]),
            )
        )
    note = "alone: one device on the server; together: all devices active; late: share of responses."
    show_table("tokens per second of a device", _HEADER, rows, note)
    show_table(
        "the server",
        _SIDES,
        [_side(advice, one) for one in (advice.drafting, advice.autoregressive)],
        f"First tokens and busy time: all devices active. Served: devices of the mix, if in each class at most "
        f"{percent(rule.epsilon)}\nof responses are late or refused, and the p99 of first tokens is at most "
        f"{rule.first_token_s:g} s; minimum over {seeds} seed(s).",
    )
    for line in lines(advice, rule):
        print(f"{line}.")


def plan_figures(advice: Advice) -> dict[str, object]:
    groups = [
        {
            "name": group.name,
            "count": group.count,
            "promised_tokens_per_s": group.slo.tokens_per_s,
            "outlook": draft,
            "target_alone_tokens_per_s": speed,
        }
        for group, draft, speed in zip(
            advice.mix.groups, advice.drafts, advice.autoregressive_tokens_per_s, strict=True
        )
    ]
    return {
        "groups": groups,
        "drafting": advice.drafting,
        "target_alone": advice.autoregressive,
        "multiple": advice.multiple,
        "better": advice.better.side,
        "servers": advice.servers,
    }


def _together(found: ClassResults) -> tuple[str, str]:
    speed = found.achieved_tokens_per_s
    return "-" if speed is None else f"{speed:.1f}", percent(found.response_violation_rate)


def _side(advice: Advice, one: SideAnswer) -> tuple[object, ...]:
    waits, found = one.first_token_times, one.served
    return (
        one.side,
        f"{waits.p50_s:.2f} s",
        f"{waits.p99_s:.2f} s",
        percent(one.busy_share),
        "-" if found is None else _served(found),
        "-" if found is None or not found.searched_all else f"{found.devices} to {found.most}",
        "-" if found is None or not found.devices else -(-advice.mix.devices // found.devices),
    )


def _served(found: MixCapacity) -> str:
    return str(found.devices) if found.searched_all else f"more than {found.devices}, not searched"

"""Devices, link, models and promises in; speeds, capacity, and whether drafting pays, out.

Reads a scenario as ``outrider simulate`` does, or builds one from flags. Its ``systems``, ``window`` and ``expansion``
are not needed: the plan finds the draft, and compares drafting devices with the target served alone on the same server.
An answer is as good as its cost model: `outrider profile` measures one.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

import yaml
from tqdm import tqdm

from cluster.reports.json_file import write_json
from cluster.reports.tables import percent, show_table
from cluster.scenarios import SCENARIOS, scenario_file
from outrider.contracts.errors import ParameterError
from outrider.link.profiles import PROFILES
from outrider.simulation.advice import GroupAdvice, advise
from outrider.simulation.reading import ReadScenario, load_scenario, parse_scenario
from outrider.simulation.roofline import HARDWARE, MODELS

_HEADER = ("devices", "class", "draft", "tokens/round", "alone", "together", "late", "capacity", "target alone", "x")
_FIELDS = ("--devices", "--draft-tokens-per-s", "--acceptance")


def add_options(parser: argparse.ArgumentParser) -> None:
    """A scenario, or flags in its place."""
    parser.description = __doc__
    add = parser.add_argument
    add("file", nargs="?", metavar="SCENARIO", help=f"a YAML file, {', '.join(SCENARIOS)}; or use the flags below")
    add("--devices", type=int, default=None, help="how many")
    add("--draft-tokens-per-s", type=float, default=None, help="of one device")
    add("--acceptance", type=float, default=None, help="probability that a draft token is accepted")
    add("--speed", type=float, default=8.0, help="promised, in tokens per second (default: 8)")
    add("--link", choices=sorted(PROFILES), default="wifi_20m", help="default: wifi_20m")
    add("--target", choices=sorted(MODELS), default="qwen3-32b", help="for the roofline (default: qwen3-32b)")
    add("--gpu", choices=sorted(HARDWARE), default="a100-80gb", help="likewise (default: a100-80gb)")
    add("--profile", default=None, help="cost profile in the roofline's place: a file, or a shipped one's name")
    add("--kv-tokens", type=int, default=None, help="KV positions the server holds (a roofline works it out)")
    add("--prompt-tokens", type=int, default=300, help="of a prompt (default: 300)")
    add("--output-tokens", type=int, default=150, help="of a response (default: 150)")
    add("--seed", type=int, default=None)
    add("--json", type=Path, default=None, metavar="FILE", help="write everything")


def run(arguments: argparse.Namespace) -> None:
    """Answer."""
    seed = arguments.seed
    scenario = load_scenario(scenario_file(arguments.file), seed) if arguments.file else _from_flags(arguments)
    print(f"{scenario.name}: {sum(group.count for group in scenario.groups)} devices; costs: {scenario.cost_source}")
    answers = advise(scenario.groups, scenario.verifier, scenario.epsilon, seed or 0)
    advice = list(tqdm(answers, desc="groups", total=len(scenario.groups), disable=None))
    _show(scenario, advice)
    if arguments.json is not None:
        content = {"scenario": scenario.name, "costs": scenario.cost_source, "measured": scenario.measured}
        verdicts = {found.group.name: found.verdict for found in advice}
        write_json(arguments.json, content | {"groups": [_figures(found) for found in advice], "verdicts": verdicts})


def _show(scenario: ReadScenario, advice: Sequence[GroupAdvice]) -> None:
    rows = []
    for found in advice:
        together = found.together.achieved_tokens_per_s
        rows.append(
            (
                f"{found.group.count} {found.group.name}",
                f"{found.group.slo.name} ({found.group.slo.tokens_per_s:g}/s)",
                found.outlook.draft,
                f"{found.outlook.expected_tokens:.2f}",
                f"{found.outlook.tokens_per_s_alone:.1f}",
                "-" if together is None else f"{together:.1f}",
                percent(found.together.response_violation_rate),
                "-" if found.drafting is None else f"{'>= ' * found.drafting.bounded}{found.drafting.devices}",
                "-" if found.drafting is None else found.serving_alone,
                "-" if found.multiple is None else f"{found.multiple:.2f}",
            )
        )
    show_table(
        "tokens per second of a device, and devices that keep the promise",
        _HEADER,
        rows,
        "alone, together: a device that has the verifier for itself, and one while all of yours are active;\n"
        "late: share of those responses slower than promised; capacity: devices of this kind alone on the server of\n"
        f"which at most {percent(scenario.epsilon)} of responses are late; x: over the target served without drafts.",
    )
    for found in advice:
        print(f"{found.group.name}: {found.verdict}.")
        if found.drafting is not None and found.drafting.devices >= 0.9 * found.resident:
            print(f"  KV memory is what ends it: {found.resident:.0f} responses fit at once.")
    if not scenario.measured:
        print(
            "\nWARNING: the cost model is a roofline from data sheets. Real engines are slower, by overheads that\n"
            "shift these multiples either way. Measure yours with `outrider profile` before you rely on a number."
        )


def _figures(found: GroupAdvice) -> dict[str, object]:
    return {
        "name": found.group.name,
        "count": found.group.count,
        "promised_tokens_per_s": found.group.slo.tokens_per_s,
        "outlook": found.outlook,
        "target_alone": found.target,
        "capacity": found.drafting,
        "multiple": found.multiple,
        "together": found.together,
        "resident_responses": found.resident if found.resident != float("inf") else None,
    }


def _from_flags(args: argparse.Namespace) -> ReadScenario:
    if None in (args.devices, args.draft_tokens_per_s, args.acceptance):
        needed = f"FILE.yaml, or {', '.join(_FIELDS)}"
        raise ParameterError("outrider plan", needed, "neither")
    cost = {"profile": args.profile} if args.profile else {"roofline": {"model": args.target, "gpu": args.gpu}}
    file = {
        "name": "your devices",
        "slo_classes": [{"name": "promised", "tokens_per_s": args.speed}],
        "server": {"cost": cost, **({"kv_tokens": args.kv_tokens} if args.kv_tokens else {})},
        "devices": [
            {
                "name": "device",
                "slo": "promised",
                "count": args.devices,
                "draft_tokens_per_s": args.draft_tokens_per_s,
                "acceptance": [args.acceptance],
                "prompt": {"tokens": args.prompt_tokens},
                "output": {"tokens": args.output_tokens},
                "link": {"profile": args.link},
            }
        ],
    }
    return parse_scenario(yaml.safe_dump(file), "flags", args.seed)

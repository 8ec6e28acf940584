"""Predict speeds, capacity and whether drafting pays, from devices, links, models and promised speeds.

Reads a scenario as ``outrider simulate`` does, or builds one from flags. Its ``systems``, ``window`` and ``expansion``
are not needed: the plan finds the best draft, and compares drafting devices with the target served alone on the same
server. A plan is as good as its cost model: `outrider profile` measures one.
"""

import argparse
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path

import yaml
from tqdm import tqdm

from lab.reports.json_file import write_json
from lab.reports.plan import plan_figures, show_plan
from lab.scenarios import SCENARIOS, scenario_file
from lab.simulation.advice import (
    PlanQuestion,
    SideAnswer,
    advice_of,
    answer,
    confirmation,
    drafting_mix,
    first_look,
    lines,
    questions,
)
from lab.simulation.mix import MOST_ROUNDS, PromiseRule
from lab.simulation.reading import ReadScenario, load_scenario, parse_scenario
from lab.simulation.roofline import HARDWARE, MODELS
from outrider.contracts.errors import ConfigError, ParameterError
from outrider.documents.problems import ConfigFileError
from outrider.link.profiles import PROFILES

_FIELDS = ("--devices", "--draft-tokens-per-s", "--acceptance")
_FLAGS = {  # fields of the generated scenario and the flags that set them
    "devices[0].count": "--devices",
    "devices[0].draft_tokens_per_s": "--draft-tokens-per-s",
    "devices[0].acceptance[0]": "--acceptance",
    "devices[0].prompt.tokens": "--prompt-tokens",
    "devices[0].output.tokens": "--output-tokens",
    "slo_classes[0].tokens_per_s": "--speed",
    "server.kv_tokens": "--kv-tokens",
}


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.description = __doc__
    add = parser.add_argument
    add("file", nargs="?", metavar="SCENARIO", help=f"a YAML file, {', '.join(SCENARIOS)}; or use the flags below")
    add("--devices", type=int, default=None, help="number of devices")
    add("--draft-tokens-per-s", type=float, default=None, help="of one device")
    add("--acceptance", type=float, default=None, help="probability that a draft token is accepted")
    add("--speed", type=float, default=8.0, help="promised speed in tokens/s (default: 8)")
    add("--link", choices=sorted(PROFILES), default="wifi_20m", help="default: wifi_20m")
    add("--target", choices=sorted(MODELS), default="qwen3-32b", help="for the roofline (default: qwen3-32b)")
    add("--gpu", choices=sorted(HARDWARE), default="a100-80gb", help="for the roofline (default: a100-80gb)")
    add("--profile", default=None, help="cost profile instead of the roofline: a file, or a shipped one's name")
    add("--kv-tokens", type=int, default=None, help="KV positions of the server (default: by the roofline)")
    add("--prompt-tokens", type=int, default=300, help="of a prompt (default: 300)")
    add("--output-tokens", type=int, default=150, help="of a response (default: 150)")
    add("--first-token-s", type=float, default=5.0, help="bound of the p99 of first tokens (default: 5)")
    add("--seed", type=int, default=None, help="the first seed (default: 0)")
    add("--seeds", type=int, default=3, metavar="N", help="number of seeds (default: 3)")
    add(
        "--rounds",
        type=int,
        default=MOST_ROUNDS,
        help=f"of one run, about: more search further (default: {MOST_ROUNDS})",
    )
    add("--json", type=Path, default=None, metavar="FILE", help="write every figure")


def run(arguments: argparse.Namespace) -> None:
    if arguments.seeds < 1:
        raise ParameterError("--seeds", "a number of at least 1", arguments.seeds)
    if arguments.first_token_s <= 0.0:
        raise ParameterError("--first-token-s", "a number above 0", arguments.first_token_s)
    if arguments.rounds < 1:
        raise ParameterError("--rounds", "a number of at least 1", arguments.rounds)
    first = arguments.seed or 0
    scenario = load_scenario(scenario_file(arguments.file), first) if arguments.file else _from_flags(arguments)
    rule = PromiseRule(scenario.epsilon, arguments.first_token_s)
    print(f"{scenario.name}: {sum(group.count for group in scenario.groups)} devices; costs: {scenario.cost_source}")
    mix = drafting_mix(scenario.groups, scenario.verifier)
    asked = questions(mix, rule, first, arguments.rounds)
    advice = advice_of(mix, *_answers(asked, range(first, first + arguments.seeds)))
    show_plan(advice, rule, arguments.seeds)
    if not scenario.measured:
        print(
            "\nWARNING: the cost model is a roofline from data sheets. Real engines are slower, by overheads that\n"
            "shift these multiples either way. Measure yours with `outrider profile` before you rely on a number."
        )
    if arguments.json is not None:
        content = {"scenario": scenario.name, "costs": scenario.cost_source, "measured": scenario.measured}
        write_json(arguments.json, content | plan_figures(advice) | {"advice": lines(advice, rule)})


def _answers(asked: tuple[PlanQuestion, PlanQuestion], seeds: range) -> list[SideAnswer]:
    """Answer for both sides in two processes. A search that ended at its limit found no capacity: one seed will do."""
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        looks = list(tqdm(pool.map(first_look, asked), desc="with drafts, without", total=2, disable=None))
        confirming = [
            [
                pool.submit(confirmation, replace(question, seed=seed), look.searched.devices)
                for seed in (seeds if look.searched.broken_by is not None else seeds[:1])
            ]
            if look.searched is not None
            else []
            for question, look in zip(asked, looks, strict=True)
        ]
        jobs = [job for side in confirming for job in side]
        for job in tqdm(as_completed(jobs), desc="confirmed by seeds", total=len(jobs), disable=None):
            job.result()
    sides = zip(asked, looks, confirming, strict=True)
    return [answer(question, look, [job.result() for job in jobs]) for question, look, jobs in sides]


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
    try:
        return parse_scenario(yaml.safe_dump(file), "flags", args.seed)
    except ConfigFileError as error:
        named = (ConfigError(_FLAGS.get(one.field, one.field), one.needed, one.found) for one in error.problems)
        raise ConfigFileError(tuple(named), error.source) from error

"""Predict speeds, capacity and whether drafting pays, from devices, links, models and promised speeds.

Reads a scenario as ``outrider simulate`` does. Its ``systems``, ``window`` and ``expansion`` are not needed: the plan
finds the best draft, and compares drafting devices with the target served alone on the same server. A plan is as good
as its cost model: `outrider profile` measures one.
"""

import argparse
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path

from tqdm import tqdm

from cluster.option_types import natural, positive, positive_int
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
from lab.simulation.reading import load_scenario


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.description = __doc__
    add = parser.add_argument
    add("file", metavar="SCENARIO", help=f"a YAML file, or one of {', '.join(SCENARIOS)}")
    add("--first-token-s", type=positive, default=5.0, help="bound of the p99 of first tokens (default: 5)")
    add("--seed", type=natural, default=0, help="the first seed (default: 0)")
    add("--seeds", type=positive_int, default=3, metavar="N", help="number of seeds (default: 3)")
    told = f"of one run, about: more search further (default: {MOST_ROUNDS})"
    add("--rounds", type=positive_int, default=MOST_ROUNDS, help=told)
    add("--json", type=Path, default=None, metavar="FILE", help="write every figure")


def run(arguments: argparse.Namespace) -> None:
    first = arguments.seed
    scenario = load_scenario(scenario_file(arguments.file), first)
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

"""Train models that a pair of models is served with: a decision head or an acceptance predictor."""

import argparse
from time import perf_counter
from typing import Any

from cluster.option_types import new_folder, positive_int
from lab.reports.json_file import write_json
from lab.reports.training import show_head, show_predictor
from lab.training.head.head_config import HeadConfig
from lab.training.head.train import train_head
from lab.training.pair_config import PairConfig, add_flags
from lab.training.predictor.predictor_config import PredictorConfig
from lab.training.predictor.train import train_predictor
from lab.training.tasks.loading import load_tasks
from lab.training.tasks.task import TaskDivision, split_tasks

_HEAD = """Train the decision head of semantic verification for a target and its drafter.

The target answers each task. At each mismatch the drafter's token replaces the target's and the target finishes
the answer: if the score falls, such a mismatch must be rejected. The head learns to separate these from the others by
both models' hidden states, and to accept more on bad links. Stored with it is the largest threshold that is shown, on
tasks unused in training, to cost less than --most-drop of the score. Labels are kept beside the head, so that a stopped
run resumes. A report in JSON is written beside it as well."""


_PREDICTOR = """Train the predictor of the probability that a device's next draft token is accepted.

Target and drafter write responses together, in this process, and each verified draft token becomes an example: four
features of the distribution it was drawn from, and whether it was accepted. Alternatively --rounds names folders of
rounds that devices logged in service (drafters[].round_log); then neither model is loaded, and options of making rounds
(--dtype, --max-new-tokens) have no effect. A small perceptron is fitted, calibrated and stored for this pair and
acceptance rule; simpler models, and trees if the extra `train` is installed, are fitted for comparison and reported.
Examples made here are kept beside the file, and a report in JSON is written there as well."""


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.description = __doc__
    kinds = parser.add_subparsers(required=True, metavar="WHAT")
    head = _add(kinds, "head", HeadConfig, "the decision head of semantic verification", _HEAD)
    head.set_defaults(train=_train_head)
    tasks = "embedded (the built-in ones; embedded:N, N of a kind), or a file"
    head.add_argument("--tasks", required=True, help=tasks)
    few = "limit of tasks to label; calibration and test keep theirs"
    head.add_argument("--most-training-tasks", type=positive_int, default=None, help=few)
    text = "the probability that a draft token is accepted"
    predictor = _add(kinds, "predictor", PredictorConfig, text, _PREDICTOR)
    predictor.set_defaults(train=_train_predictor)
    predictor.add_argument("--plots", type=new_folder, default=None, help="folder for plots of features and models")


def _add(kinds: Any, name: str, config: type[PairConfig], text: str, description: str) -> argparse.ArgumentParser:
    form = argparse.RawDescriptionHelpFormatter
    parser: argparse.ArgumentParser = kinds.add_parser(name, help=text, description=description, formatter_class=form)
    add_flags(parser, config)
    return parser


def run(arguments: argparse.Namespace) -> None:
    flags = vars(arguments)
    del flags["run"]
    flags.pop("train")(flags)


def _train_head(flags: dict[str, Any]) -> None:
    source, most = flags.pop("tasks"), flags.pop("most_training_tasks")
    config = HeadConfig(**flags)
    report = train_head(config, division(source, most), on_stage=print)
    show_head(config, report)
    record = {"config": config.plain(), "tasks": source, "most_training_tasks": most, "report": report}
    write_json(config.out.with_suffix(".report.json"), record)


def _train_predictor(flags: dict[str, Any]) -> None:
    plots = flags.pop("plots")
    config = PredictorConfig(**flags | {"rounds": tuple(flags.get("rounds", ()))})
    report = train_predictor(config, clock=perf_counter, on_stage=print)
    show_predictor(config, report)
    if plots is not None:
        from lab.reports.predictor_plots import plot_predictor

        plot_predictor(plots / f"predictor_{config.rule}.png", report)
    write_json(config.out.with_suffix(".report.json"), {"config": config.plain(), "report": report})


def division(source: str, most: int | None) -> TaskDivision:
    """Divide named tasks, with at most ``most`` to train on."""
    train, calibration, test = split_tasks(load_tasks(source))
    return TaskDivision(train[:most], calibration, test)

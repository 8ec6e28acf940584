"""Train models that a pair of models is served with: a decision head or an acceptance predictor."""

import argparse
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lab.training.head.division import TaskDivision

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
    """Only given options are passed on: ``HeadConfig`` and ``PredictorConfig`` have the defaults."""
    parser.description = __doc__
    kinds = parser.add_subparsers(required=True, metavar="WHAT")
    _add_head(kinds.add_parser("head", help="the decision head of semantic verification", description=_HEAD))
    summary = "the probability that a draft token is accepted"
    _add_predictor(kinds.add_parser("predictor", help=summary, description=_PREDICTOR))


def _add_common(parser: argparse.ArgumentParser) -> None:
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.argument_default = argparse.SUPPRESS
    add = parser.add_argument
    add("--target", required=True, help="the embedded target's name, or a directory in Hugging Face format")
    add("--drafter", required=True, help="its drafter: a name, a file of `outrider distill`, or a directory")
    add("--out", type=Path, required=True, help="file to write, ending in .safetensors")
    add("--batch", type=int, help="texts generated at once")
    add("--window-tokens", type=int, help="draft tokens per round")
    add("--epochs", type=int, help="of a fit, upper limit")
    add("--patience", type=int, help="stop after this many epochs without a lower validation loss")
    add("--seed", type=int, help="of all random draws")
    add("--dtype", help="of the target: float32, bfloat16, float16 or auto")
    add("--drafter-dtype", help="of the drafter: int8 as well")
    add("--device", help="cpu, cuda or another torch device")
    add("--threads", type=int, help="CPU threads")


def _add_head(head: argparse.ArgumentParser) -> None:
    _add_common(head)
    head.set_defaults(train=_train_head)
    add = head.add_argument
    add(
        "--tasks",
        required=True,
        help="embedded (the built-in ones; embedded:N, N of a kind), a file, or a dataset's name",
    )
    add("--most-training-tasks", type=int, help="limit of tasks to label; calibration and test keep theirs")
    add("--labels", type=Path, help="label file to read or create (default: beside --out)")
    add("--max-new-tokens", type=int, help="length limit of an answer")
    add("--mismatches-per-task", type=_count_or_all, help="limit of tried mismatches, a seeded sample; all: every one")
    add("--least-mismatches", type=int, help="with fewer, training is refused")
    add("--least-calibration-tasks", type=int, help="with fewer, training is refused")
    add("--relabelling", help="how importance is smoothed, sum or max; none: the same labels on every link")
    add("--kappa", type=float, help="mismatches over which importance falls to 1 / e")
    add("--least-repair-share", type=float, help="of the critical mismatches, repaired on the worst link")
    add("--temperature", type=float, help="of the relabelling policy, in units of importance")
    add("--links-per-answer", type=int, help="links that each answer is repeated under")
    add("--hidden", type=int, help="units of the head")
    add("--dropout", type=float, help="share of the units")
    add("--learning-rate", type=float, help="of AdamW")
    add("--weight-decay", type=float, help="of AdamW")
    add("--hidden-field", help="of drafters' hidden states on the link: fp32, fp16 or int8, as wire.hidden_field")
    add("--thresholds", type=_numbers, help="to compare, ascending from 0, separated by commas")
    add("--most-drop", type=float, help="mean score that the chosen threshold may cost")


def _add_predictor(predictor: argparse.ArgumentParser) -> None:
    _add_common(predictor)
    predictor.set_defaults(train=_train_predictor)
    add = predictor.add_argument
    add("--rule", required=True, help="acceptance rule: greedy, shared_noise or ratio")
    add(
        "--rounds",
        type=Path,
        nargs="+",
        help="folders of device logs; or one .safetensors file of examples to read or create (default: beside --out)",
    )
    add("--prompts", type=Path, help="text file, one prompt a line (default: built-in ones unused in distillation)")
    add("--most-prompts", type=int, help="use only the first so many")
    add("--temperatures", type=_numbers, help="separated by commas (default: 0 if greedy, else 0.7 and 1)")
    add("--max-new-tokens", type=int, help="length limit of a response")
    add("--least-tokens", type=int, help="verified draft tokens; with fewer, training is refused")
    add("--trials", type=int, help="settings tried of each kind of model")
    add("--latency-calls", type=int, help="of each kind, timed one by one")
    add("--plots", type=Path, help="folder for plots of features and models")


def run(arguments: argparse.Namespace) -> None:
    """Train, write the result, and print the report."""
    flags = vars(arguments)
    del flags["run"]
    flags.pop("train")(flags)


def _train_head(flags: dict[str, Any]) -> None:
    from lab.reports.head_training import show_head
    from lab.reports.json_file import write_json
    from lab.training.head.head_config import HeadConfig
    from lab.training.head.train import train_head

    source, most = flags.pop("tasks"), flags.pop("most_training_tasks", None)
    config = HeadConfig(**flags)
    report = train_head(config, division(source, most), on_stage=print)
    show_head(config, report)
    record = {"config": config.plain(), "tasks": source, "most_training_tasks": most, "report": report}
    write_json(config.out.with_suffix(".report.json"), record)


def _train_predictor(flags: dict[str, Any]) -> None:
    from lab.reports.json_file import write_json
    from lab.reports.predictor_training import show_predictor
    from lab.training.predictor.predictor_config import PredictorConfig
    from lab.training.predictor.train import train_predictor

    plots = flags.pop("plots", None)
    config = PredictorConfig(**flags | {"rounds": tuple(flags.get("rounds", ()))})
    report = train_predictor(config, clock=perf_counter, on_stage=print)
    show_predictor(config, report)
    if plots is not None:
        from lab.reports.predictor_plots import plot_predictor

        plot_predictor(plots / f"predictor_{config.rule}.png", report)
    write_json(config.out.with_suffix(".report.json"), {"config": config.plain(), "report": report})


def division(source: str, most: int | None) -> "TaskDivision":
    """Divide named tasks, with at most ``most`` to train on."""
    from lab.training.head.division import TaskDivision
    from lab.training.tasks.loading import load_tasks
    from lab.training.tasks.splits import split_tasks

    splits = split_tasks(load_tasks(source))
    return TaskDivision(splits.train[:most], splits.calibration, splits.test)


def _count_or_all(text: str) -> int | None:
    return None if text == "all" else int(text)


def _numbers(text: str) -> tuple[float, ...]:
    return tuple(map(float, text.split(",")))

"""``usage.outrider.choices``: why each round's plan was chosen."""

from collections.abc import Sequence
from dataclasses import fields

from outrider.contracts.requests import ChoiceReport, PlanEstimate
from serve_app.answers import ExplainedRound, ExplainedUsage
from serve_app.api.openai.writing.choice_reader import ChoiceReader


def explained_usage(readers: Sequence[ChoiceReader]) -> ExplainedUsage:
    """The plans of the last rounds, if they were asked for."""
    choices = [_report(choice) for reader in readers for choice in reader.choices]
    return {"choices": choices} if choices else {}


def _report(report: ChoiceReport) -> ExplainedRound:
    """An item of ``usage.outrider.choices``, written out, as ``asdict`` takes ten times as long."""
    second = report.runner_up
    return {
        "chosen": _plan(report.chosen),
        "runner_up": None if second is None else _plan(second),
        "reason": report.reason,
    }


def _plan(plan: PlanEstimate) -> dict[str, object]:
    return {each.name: getattr(plan, each.name) for each in fields(PlanEstimate)}

"""What was tried and what became of it: a table to read, and the same as JSON. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from math import ceil

from tests.chaos.running import Outcome
from tests.chaos.told import End

CALM = "no fault"


@dataclass(frozen=True, slots=True)
class Row:
    """All faults of one name.

    Attributes:
        tried: how many were done; ``late``: their turn did not come, as all streams had ended.
        effective: of which it is known that they took effect; of others another fault had ended the process first.
        survived: of which the schedule was as it has to be.
        streams: that were under way; of these ``failed`` ended with an error of their own or a broken connection.
        recovery_s: quantiles of the longest wait of each of these streams; ``served``: less loads of all verifiers.
    """

    fault: str
    tried: int
    late: int
    effective: int
    survived: int
    streams: int
    failed: int
    recovery_p50_s: float | None
    recovery_p99_s: float | None
    recovery_max_s: float | None
    served_p99_s: float | None


def rows(outcomes: Sequence[Outcome]) -> list[Row]:
    """A row for each fault, by name."""
    names = sorted({name for outcome in outcomes for name in _names(outcome)})
    return [_row(name, [outcome for outcome in outcomes if name in _names(outcome)]) for name in names]


def _names(outcome: Outcome) -> set[str]:
    return {each.fault.name for each in outcome.struck} or {CALM}


def _row(name: str, outcomes: Sequence[Outcome]) -> Row:
    mine = [(outcome, each) for outcome in outcomes for each in outcome.struck if each.fault.name == name]
    done = [(outcome, each) for outcome, each in mine if each.at_s is not None]
    waits = sorted(wait for outcome in outcomes for wait in outcome.silences_s.get(name, ()))
    served = sorted(wait for outcome in outcomes for wait in outcome.served_silences_s.get(name, ()))
    failed = sum(
        told.end in (End.FAILED, End.REFUSED, End.BROKEN) for outcome in outcomes for told in outcome.told.values()
    )
    calm = name == CALM
    return Row(
        fault=name,
        tried=len(outcomes) if calm else len(done),
        late=len(mine) - len(done),
        effective=len(outcomes) if calm else sum(bool(each.proof) for _, each in done),
        survived=sum(not o.wrong for o in outcomes) if calm else sum(not outcome.wrong for outcome, _ in done),
        streams=len(waits),
        failed=failed,
        recovery_p50_s=quantile(waits, 0.5),
        recovery_p99_s=quantile(waits, 0.99),
        recovery_max_s=waits[-1] if waits else None,
        served_p99_s=quantile(served, 0.99),
    )


def quantile(ascending: Sequence[float], share: float) -> float | None:
    """The least that so large a share does not exceed; None of none."""
    return ascending[max(ceil(share * len(ascending)) - 1, 0)] if ascending else None


def table(found: Iterable[Row]) -> str:
    """To be read."""
    head = ("fault", "tried", "effective", "survived", "streams", "failed", "p50 s", "p99 s", "max s", "served p99 s")
    cells = [head, *map(_cells, found)]
    widths = [max(len(line[i]) for line in cells) for i in range(len(head))]
    return "\n".join("  ".join(map(_padded, line, widths, range(len(head)))) for line in cells)


def _cells(row: Row) -> tuple[str, ...]:
    counts = (row.fault, row.tried, row.effective, row.survived, row.streams, row.failed)
    times = (row.recovery_p50_s, row.recovery_p99_s, row.recovery_max_s, row.served_p99_s)
    return (*map(str, counts), *("-" if time_s is None else f"{time_s:.2f}" for time_s in times))


def _padded(cell: str, width: int, column: int) -> str:
    return cell.rjust(width) if column else cell.ljust(width)


def as_json(outcomes: Sequence[Outcome]) -> dict[str, object]:
    """Everything but the streams' texts."""
    return {
        "faults": [asdict(row) for row in rows(outcomes)],
        "schedules": [
            {
                "seed": outcome.schedule.seed,
                "wrong": list(outcome.wrong),
                "whole_again_s": outcome.whole_again_s,
                "faults": [
                    {"fault": each.fault.name, "done": each.at_s is not None, "proof": each.proof}
                    for each in outcome.struck
                ],
                "streams": {str(number): str(told.end) for number, told in outcome.told.items()},
            }
            for outcome in outcomes
        ],
    }

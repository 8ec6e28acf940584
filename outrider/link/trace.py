"""Read a changing link from CSV: recorded conditions over time, repeated for ever.

The file has one header line and one line per change, in strict order of time from 0::

    time_s,up_bps,down_bps,rtt_s,per_up,per_down
    0,20e6,50e6,0.040,0.01,0.01
    0.5,2e6,5e6,0.090,0.05,0.02

A line holds until the next one's time. The last holds as long as the one before it (a single line for ever); then the
trace begins again.
"""

import csv
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import cycle, islice, pairwise
from math import inf, isfinite
from pathlib import Path

from outrider.contracts.errors import ConfigError, ParameterError
from outrider.documents.text_file import MAX_DATA_BYTES, read_text
from outrider.link.profiles import LinkProfile

COLUMNS = ("time_s", "up_bps", "down_bps", "rtt_s", "per_up", "per_down")


@dataclass(frozen=True, slots=True)
class LinkTrace:
    """Conditions over time; ``parse_trace`` makes valid ones."""

    starts_s: tuple[float, ...]  # when each of ``profiles`` begins, strictly ascending from 0
    profiles: tuple[LinkProfile, ...]  # one for each start

    @property
    def durations_s(self) -> tuple[float, ...]:
        """Seconds for which each profile holds."""
        if len(self.starts_s) == 1:
            return (inf,)
        steps = [after - before for before, after in pairwise(self.starts_s)]
        return (*steps, steps[-1])


LinkSource = LinkProfile | LinkTrace


def segments(source: LinkSource, t_s: float) -> Iterator[tuple[LinkProfile, float]]:
    """Yield conditions from ``t_s`` of the trace on, each with the seconds it holds; the last may hold for ever."""
    if isinstance(source, LinkProfile) or len(source.profiles) == 1:
        yield source if isinstance(source, LinkProfile) else source.profiles[0], inf
        return
    durations_s = source.durations_s
    t_s %= source.starts_s[-1] + durations_s[-1]
    first = bisect_right(source.starts_s, t_s) - 1
    yield source.profiles[first], max(source.starts_s[first] + durations_s[first] - t_s, 0.0)
    yield from islice(cycle(zip(source.profiles, durations_s, strict=True)), first + 1, None)


def profile_at(source: LinkSource, t_s: float) -> LinkProfile:
    return next(segments(source, t_s))[0]


def load_trace(path: str | Path) -> LinkTrace:
    """Read a trace file; a ``ConfigError`` names the line that is wrong."""
    return parse_trace(read_text(path, "link trace", "CSV", MAX_DATA_BYTES), str(path))


def parse_trace(text: str, source: str) -> LinkTrace:
    rows = _rows(text, source)
    _, header = next(rows, (1, []))
    if tuple(header) != COLUMNS:
        raise ConfigError(f"{source} line 1", f"the columns {','.join(COLUMNS)}", ",".join(header))
    starts_s: list[float] = []
    profiles: list[LinkProfile] = []
    for number, row in rows:
        line = f"{source} line {number}"
        if len(row) != len(COLUMNS):
            raise ConfigError(line, f"{len(COLUMNS)} values", ",".join(row))
        time_s, up_bps, down_bps, rtt_s, per_up, per_down = (
            _number(value, f"{line}: {column}") for column, value in zip(COLUMNS, row, strict=True)
        )
        if starts_s and time_s <= starts_s[-1]:
            raise ConfigError(f"{line}: time_s", f"a time after the line before ({starts_s[-1]:g})", time_s)
        if not starts_s and time_s != 0.0:
            raise ConfigError(f"{line}: time_s", "0 on the first line", time_s)
        try:
            profiles.append(LinkProfile(up_bps, down_bps, rtt_s, per_up, per_down))
        except ParameterError as error:
            raise ConfigError(f"{line}: {error.field}", error.needed, error.found) from error
        starts_s.append(time_s)
    if not starts_s:
        raise ConfigError(f"{source} line 2", "at least one line of values", "the end of the file")
    return LinkTrace(tuple(starts_s), tuple(profiles))


def _rows(text: str, source: str) -> Iterator[tuple[int, list[str]]]:
    rows = csv.reader(text.splitlines(), skipinitialspace=True)
    try:
        for row in rows:
            yield rows.line_num, row
    except csv.Error as error:
        raise ConfigError(f"{source} line {rows.line_num}", "comma-separated values", str(error)) from error


def _number(text: str, field: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = inf
    if not isfinite(value):
        raise ConfigError(field, "a number", text)
    return value

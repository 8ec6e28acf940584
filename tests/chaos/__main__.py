"""Chaos: ``python -m tests.chaos --seeds 1 2 3``, or ``--minutes 30``; exit status 1 if something was wrong.

Each seed is a schedule of streams and faults. One that fails is told with its seed and run again with less and less
of it, to show the smallest that still fails; ``--schedule FILE`` runs one that was written down. The model of each
cluster writes tool calls in another form; all that agents ask of it is asked first, while processes are killed.
"""

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from itertools import count, cycle
from pathlib import Path

from platformdirs import user_cache_path

from lab.bench.harness.record import write_record
from tests.chaos.agents.asks import agents_of, half_of
from tests.chaos.agents.models import FORMS
from tests.chaos.injecting import told_faults
from tests.chaos.judging import Struck
from tests.chaos.left import calm
from tests.chaos.links import die_with_parent, enter
from tests.chaos.references import PROMPTS, Alone
from tests.chaos.report import as_json, rows, table
from tests.chaos.running import Chaos, Outcome
from tests.chaos.schedules import FAULTS, Menu, Schedule, Target, schedule_of, schedule_of_agents
from tests.chaos.services import Layout, under_test
from tests.chaos.shrinking import shrunk

_WARM_UP_SEED = -1
_PER_CLUSTER = 6  # schedules, then a cluster of the next layout and form


def main(argv: Sequence[str] | None = None) -> int:
    """Run schedules and report."""
    args = _parser().parse_args(argv)
    without_links = "asked to" if args.without_links else enter(["-m", "tests.chaos", *sys.argv[1:]])
    die_with_parent()
    if without_links:
        print(f"Links stay as they are: {without_links}", flush=True)
    session = Session(args)
    try:
        session.run()
    finally:
        session.close()
        session.report()
    return session.status()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    add = parser.add_argument
    add("--seeds", type=int, nargs="+", default=None, help="of the schedules to run")
    add("--minutes", type=float, default=None, help="instead of naming seeds: as many as there is time for")
    add("--first-seed", type=int, default=1, help="of these")
    add("--schedule", type=Path, default=None, help="or a file with one schedule, as a report has it")
    add("--layout", type=Layout, choices=list(Layout), default=None, help="default: one after the other")
    add("--form", choices=list(FORMS), default=None, help="of tool calls; default: another one for each cluster")
    add("--agents", choices=("all", "half", "none"), default="all", help="half: each request streamed or whole")
    add("--faults", nargs="+", default=[], help="draw only those whose names have one of these words in them")
    add("--streams", type=int, nargs=2, default=Menu(()).streams, help="least and most of a schedule")
    add("--tokens", type=int, default=48, help="of the longest streams")
    add("--prompts", type=int, default=len(PROMPTS), help="how many to choose from")
    add("--sampling-seeds", type=int, default=3, help="likewise, of streams")
    add("--shrink-tries", type=int, default=8, help="runs spent on the smallest schedule that fails; 0: none")
    add("--report", type=Path, default=None, help="folder for report.json, report.txt and schedules that failed")
    add("--references", type=Path, default=user_cache_path("outrider") / "chaos-references.json")
    add("--without-links", action="store_true", help="in no network namespace; links are left alone")
    return parser


class Session:
    """One cluster after the other, and what became of the schedules on them."""

    def __init__(self, args: argparse.Namespace) -> None:
        self._args, self._began_s = args, time.monotonic()
        self._alone = Alone(args.references, args.tokens)
        self._outcomes: list[Outcome] = []
        self._layouts, self._forms = self._next_layouts(), cycle([args.form] if args.form else list(FORMS))
        self._on_this = 0
        self._cluster = ExitStack()
        self._chaos: Chaos | None = None
        self._menu = Menu(FAULTS)
        self._folder = Path(tempfile.mkdtemp(prefix="outrider-chaos-"))

    def run(self) -> None:
        """All schedules."""
        for make in self._schedules():
            if self._on_this >= _PER_CLUSTER and (self._args.layout is None or self._args.form is None):
                self.close()
            chaos = self._whole()
            outcome = self._tried(chaos, make(self._menu))
            if outcome.wrong and self._args.shrink_tries:
                self._shrink(outcome.schedule)

    def close(self) -> None:
        """End the cluster."""
        self._chaos, self._on_this = None, 0
        self._cluster.close()

    def status(self) -> int:
        """Of the process."""
        return int(any(outcome.wrong for outcome in self._outcomes))

    def report(self) -> None:
        """Print the table; write it where it is wanted."""
        text = table(rows(self._outcomes))
        left_out = told_faults(self._menu.targets)
        failed = sorted({outcome.schedule.seed for outcome in self._outcomes if outcome.wrong})
        text += f"\n{len(self._outcomes)} schedules; failed seeds: {failed or 'none'}" + (left_out and f"\n{left_out}")
        print(text, flush=True)
        if self._args.report is not None:
            self._args.report.mkdir(parents=True, exist_ok=True)
            (self._args.report / "report.txt").write_text(text + "\n")
            write_record(self._args.report / "report.json", self._args, as_json(self._outcomes))

    def _schedules(self) -> Iterator[Callable[[Menu], Schedule]]:
        args = self._args
        if args.schedule is not None:
            told = Schedule.from_json(args.schedule.read_text())
            yield lambda _: told
            return
        timed = args.minutes is not None
        for seed in count(args.first_seed) if timed else args.seeds or [args.first_seed]:
            if timed and time.monotonic() - self._began_s > 60.0 * args.minutes:
                return
            yield partial(schedule_of, seed)

    def _next_layouts(self) -> Iterator[Layout]:
        while True:
            yield from Layout if self._args.layout is None else (self._args.layout,)

    def _whole(self) -> Chaos:
        """A cluster that is whole: this one, or the next."""
        if self._chaos is not None and self._chaos.wait_whole() is None:
            print("not whole: a new cluster", flush=True)
            self.close()
        if self._chaos is None:
            self._chaos = self._started()
        self._on_this += 1
        return self._chaos

    def _started(self) -> Chaos:
        layout, form = next(self._layouts), next(self._forms)
        print(f"Cluster: {layout}, tool calls in {form}", flush=True)
        folder = self._folder / f"{layout}-{len(self._outcomes)}"
        under = self._cluster.enter_context(under_test(layout, folder, form))
        chaos = Chaos(under.service, under.folder, under.injector, self._alone)
        assert chaos.wait_whole() is not None, "the cluster did not come up whole"
        args = self._args
        sizes = replace(Menu(()), prompts=args.prompts, most_tokens=args.tokens, streams=tuple(args.streams))
        targets, seeds = _wanted(under.injector.targets(), args.faults), sizes.seeds[: args.sampling_seeds]
        agents = {"all": list(agents_of(form)), "half": half_of(form), "none": []}[args.agents]
        self._menu = menu = replace(sizes, targets=targets, seeds=seeds, agents=tuple(agents))
        calmly = replace(schedule_of(_WARM_UP_SEED, replace(menu, targets=FAULTS, poison=False)), faults=())
        self._tried(chaos, calmly)
        chaos.before = calm(under.service, under.folder)
        if agents:
            self._tried(chaos, schedule_of_agents(agents, args.tokens, under.injector.targets()))
            assert chaos.wait_whole() is not None, "the cluster did not become whole again"
        return chaos

    def _tried(self, chaos: Chaos, schedule: Schedule) -> Outcome:
        began_s = time.monotonic()
        outcome = chaos.run(schedule)
        self._outcomes.append(outcome)
        faults = ", ".join(f"{each.fault.name} ({_became(each)})" for each in outcome.struck)
        ends = ", ".join(sorted({str(told.end) for told in outcome.told.values()}))
        state = "WRONG" if outcome.wrong else "ok"
        took = f"in {time.monotonic() - began_s:.0f} s; whole again after {outcome.whole_again_s or 0:.1f} s"
        streams = f"{len(outcome.told)} streams ({ends})"
        print(f"seed {schedule.seed}: {state} {took}; {streams}; {faults or 'no fault'}", flush=True)
        for line in outcome.wrong:
            print(f"    {line}", flush=True)
        return outcome

    def _shrink(self, schedule: Schedule) -> None:
        smallest = shrunk(
            schedule, lambda smaller: bool(self._tried(self._whole(), smaller).wrong), self._args.shrink_tries
        )
        print("The smallest that still fails:\n" + "\n".join(smallest.lines()), flush=True)
        if self._args.report is not None:
            self._args.report.mkdir(parents=True, exist_ok=True)
            (self._args.report / f"failed-{schedule.seed}.json").write_text(smallest.to_json() + "\n")


def _became(struck: Struck) -> str:
    if struck.at_s is None:
        return "too late"
    return struck.proof or ("gone first" if struck.moot else "no effect")


def _wanted(targets: tuple[Target, ...], words: Sequence[str]) -> tuple[Target, ...]:
    found = tuple(
        target for target in targets if not words or any(word in f"{target[0]} {target[1]}" for word in words)
    )
    assert found, f"needs faults that are possible here, found none of {list(words)}"
    return found


if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)  # threads of Ray's clients live on behind its shutdown, and may crash on what ends before them

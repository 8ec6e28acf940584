"""Soak: ``python -m tests.chaos.soak --minutes 60``: load at a share of the most that was measured, with chaos on.

First as many streams as the service takes, one after the other per client, tell how many responses it makes per second.
Then streams arrive by themselves at a share of that, whatever becomes of them, while a few faults strike at a time,
again and again, each time once all processes are back. Each stream is judged as in ``tests.chaos``; memory of every
process is sampled throughout. A fault without effect is wrong only where no other was felt at its time.
"""

import argparse
import os
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from random import Random

from platformdirs import user_cache_path

from lab.bench.harness.record import write_record
from tests.chaos.clients import body_of, told_by
from tests.chaos.judging import Struck, judged_stream, overlapped, without_effect
from tests.chaos.left import calm, left_behind
from tests.chaos.links import die_with_parent, enter
from tests.chaos.processes import all_pids, rss_bytes
from tests.chaos.provoking import HostileClients
from tests.chaos.readiness import watched
from tests.chaos.references import PROMPTS, Alone
from tests.chaos.report import Row, rows, table
from tests.chaos.running import Chaos, Outcome, silences
from tests.chaos.schedules import Fault, FaultKind, Menu, Schedule, Stream, StreamKind, Victim, fault_of, stream_of
from tests.chaos.services import Layout, UnderTest, under_test
from tests.chaos.slopes import Sample, slopes, worst
from tests.chaos.slopes import table as slope_table
from tests.chaos.told import Told

_CLIENTS = 16  # while the most is measured
_MOST_UNDER_WAY = 64  # more are not sent: the service is behind, and so is this process
_SAMPLE_EVERY_S = 5.0
_POISONED = 0.02  # of the streams
_MEAN_PAUSE_S = 20.0  # between two bursts of faults


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, soak, and report; status 1 if a stream was wrong or something is left."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.soak", description=__doc__)
    add = parser.add_argument
    add("--minutes", type=float, default=60.0)
    add("--share", type=float, default=0.8, help="of the most responses per second")
    add("--measure-s", type=float, default=60.0, help="for which the most is measured")
    add("--together", type=int, default=3, help="faults that strike at a time, at most; 1: each is measured by itself")
    add("--hostile", action="store_true", help="with clients beside that send what `make hostile` sends")
    add("--seed", type=int, default=1)
    add("--tokens", type=int, default=32, help="of the longest streams")
    add("--layout", type=Layout, choices=list(Layout), default=Layout.ONE_DOOR)
    add("--report", type=Path, default=None, help="folder for soak.json, soak.txt and memory.png")
    add("--references", type=Path, default=user_cache_path("outrider") / "chaos-references.json")
    args = parser.parse_args(argv)
    without_links = enter(["-m", "tests.chaos.soak", *sys.argv[1:]])
    die_with_parent()
    if without_links:
        print(f"Links stay as they are: {without_links}", flush=True)
    folder = Path(tempfile.mkdtemp(prefix="outrider-soak-"))
    with under_test(args.layout, folder) as under:
        return Soak(args, under).run()


class Soak:
    """One soak of one service."""

    def __init__(self, args: argparse.Namespace, under: UnderTest) -> None:
        self._args, self._under = args, under
        self._alone = Alone(args.references, args.tokens)
        self._chaos = Chaos(under.service, under.folder, under.injector, self._alone)
        targets = tuple(  # each of these ends every stream there is: of a soak nothing would be left
            target
            for target in under.injector.targets()
            if target not in ((FaultKind.KILL, Victim.INGRESS), (FaultKind.KILL, Victim.PROXY))
        )
        self._menu = replace(Menu(targets, prompts=len(PROMPTS), most_tokens=args.tokens), seeds=(11,))
        self._rng = Random(f"soak {args.seed}")
        self._struck: list[Struck] = []
        self._samples: list[Sample] = []
        self._over = threading.Event()
        self._hostile = HostileClients(under.service.url, args.seed) if args.hostile else None

    def run(self) -> int:
        """All of it."""
        assert self._chaos.wait_whole() is not None, "the service did not come up whole"
        self._learn()
        most_per_s = self._measured_most()
        print(f"The most: {most_per_s:.3f} responses/s", flush=True)
        before = calm(self._under.service, self._under.folder)
        works = [self._sample, self._strike]
        if self._hostile is not None:
            works.append(partial(self._hostile.run, self._over))
        threads = [threading.Thread(target=work, daemon=True) for work in works]
        for thread in threads:
            thread.start()
        with watched(self._under.service) as loads:
            sent, not_sent = self._loaded(self._args.share * most_per_s)
        self._over.set()
        for thread in threads:
            thread.join()
        wrong = without_effect([each for each in self._struck if not overlapped(each, self._struck)])
        for stream, told in sent:
            wrong += self._judged(stream, told)
        schedule = Schedule(self._args.seed, (), tuple(each.fault for each in self._struck))
        if self._chaos.wait_whole() is None:
            wrong.append("not whole again")
        wrong += left_behind(self._under.service, self._under.folder, before, schedule)
        by_number = {stream.number: told for stream, told in sent}
        outcome = Outcome(
            schedule,
            tuple(wrong),
            by_number,
            tuple(self._struck),
            None,
            silences(by_number, self._struck),
            silences(by_number, self._struck, loads.spans),
        )
        self._report(outcome, most_per_s, not_sent)
        return int(bool(wrong))

    def _learn(self) -> None:
        """What the target alone says to each stream that may be drawn."""
        for prompt in range(self._menu.prompts):
            for kind in (StreamKind.GREEDY, StreamKind.SEEDED):
                self._alone.expected(Stream(0, kind, prompt, self._args.tokens, seed=11, n=3))

    def _measured_most(self) -> float:
        done, over = list[float](), threading.Event()

        def client(number: int) -> None:
            rng = Random(f"most {number}")
            while not over.is_set():
                told = self._told(replace(stream_of(rng, number, self._menu), hangs_up_after=0))
                done.append(told.ended_at_s)

        began_s = time.monotonic()
        with ThreadPoolExecutor(_CLIENTS) as pool:
            for number in range(_CLIENTS):
                pool.submit(client, number)
            over.wait(self._args.measure_s)
            over.set()
        measure_s: float = self._args.measure_s
        return sum(at_s <= began_s + measure_s for at_s in done) / measure_s

    def _loaded(self, rate_per_s: float) -> tuple[list[tuple[Stream, Told]], int]:
        """Streams as they arrive; and how many were not sent as too many were under way."""
        asked: list[tuple[Stream, Future[Told]]] = []
        not_sent, number = 0, 0
        ends_at_s = time.monotonic() + 60.0 * self._args.minutes
        with ThreadPoolExecutor(_MOST_UNDER_WAY) as pool:
            while (now_s := time.monotonic()) < ends_at_s:
                time.sleep(min(self._rng.expovariate(rate_per_s), max(ends_at_s - now_s, 0.0)))
                if sum(not future.done() for _, future in asked) >= _MOST_UNDER_WAY:
                    not_sent += 1
                    continue
                stream = stream_of(self._rng, number, self._menu)
                if self._rng.random() < _POISONED:
                    stream = Stream(number, StreamKind.POISONED, stream.prompt, stream.tokens)
                number += 1
                asked.append((stream, pool.submit(self._told, stream)))
        return [(stream, future.result()) for stream, future in asked], not_sent

    def _told(self, stream: Stream) -> Told:
        body = body_of(stream, self._alone.prompt(stream), self._alone.stop(stream))
        return told_by(self._under.service.url, stream, body, lambda _: None)

    def _strike(self) -> None:
        rng = Random(f"faults {self._args.seed}")
        while not self._over.wait(rng.expovariate(1.0 / _MEAN_PAUSE_S)):
            together = min(rng.choice([1, 1, 2, 3]), self._args.together)
            faults = [fault_of(rng, self._menu) for _ in range(together)]
            with ThreadPoolExecutor(len(faults)) as pool:
                found: list[Struck] = list(pool.map(self._struck_by, faults))
            self._struck += found
            for each in found:
                print(f"{each.fault.name}: {each.proof or 'no effect'}", flush=True)
            self._chaos.wait_whole()

    def _struck_by(self, fault: Fault) -> Struck:
        return self._under.injector.strike(fault)

    def _sample(self) -> None:
        while not self._over.wait(_SAMPLE_EVERY_S):
            now_s = time.monotonic()
            for pid, victim in all_pids(self._under.service).items():
                if rss := rss_bytes(pid):
                    self._samples.append(Sample(now_s, pid, str(victim), rss))

    def _judged(self, stream: Stream, told: Told) -> list[str]:
        semantic = stream.kind is StreamKind.SEMANTIC
        foreign = self._alone.foreign(stream, told) if semantic else []
        return judged_stream(stream, told, () if semantic else self._alone.expected(stream), foreign, self._struck)

    def _report(self, outcome: Outcome, most_per_s: float, not_sent: int) -> None:
        found, faults = slopes(self._samples), rows([outcome])
        ends = Counter(str(told.end) for told in outcome.told.values())
        load = f"{len(outcome.told)} streams at {self._args.share:.0%} of {most_per_s:.3f}/s: {dict(ends)}"
        hostile = [f"worst answers of hostile cases: {self._hostile.ends}"] if self._hostile is not None else []
        text = "\n".join(
            (
                f"{load}; {not_sent} more were not sent",
                *hostile,
                table(faults),
                slope_table(found),
                "steepest, MiB/h: " + ", ".join(f"{kind} {per_h:+.1f}" for kind, per_h in worst(found).items()),
                *outcome.wrong[:40],
                "wrong" if outcome.wrong else "all as it has to be",
            )
        )
        print(text, flush=True)
        if self._args.report is not None:
            self._write(self._args.report, text, faults, outcome, {"most_per_s": most_per_s, "ends": dict(ends)})

    def _write(self, folder: Path, text: str, faults: list[Row], outcome: Outcome, figures: dict[str, object]) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "soak.txt").write_text(text + "\n")
        content = {
            **figures,
            "faults": [asdict(row) for row in faults],
            "slopes": [asdict(slope) for slope in slopes(self._samples)],
            "wrong": list(outcome.wrong),
            "samples": [asdict(sample) for sample in self._samples],
        }
        write_record(folder / "soak.json", self._args, content)
        _plot(folder / "memory.png", self._samples)


def _plot(file: Path, samples: Sequence[Sample]) -> None:
    """Memory of each process over time, in a panel for each kind."""
    import matplotlib as mpl  # noqa: PLC0415 (only where it is drawn)

    mpl.use("Agg")
    from matplotlib import pyplot as plt  # noqa: PLC0415 (likewise)

    kinds = sorted({sample.kind for sample in samples})
    if not kinds:
        return
    began_s = samples[0].at_s
    figure, panels = plt.subplots(len(kinds), 1, sharex=True, figsize=(8, 1.8 * len(kinds)), squeeze=False)
    for kind, panel in zip(kinds, panels[:, 0], strict=True):
        for process in sorted({sample.process for sample in samples if sample.kind == kind}):
            mine = [sample for sample in samples if sample.process == process and sample.kind == kind]
            panel.plot([(one.at_s - began_s) / 60 for one in mine], [one.rss_bytes / 2**20 for one in mine])
        panel.set_ylabel(f"{kind}\nMiB")
    panels[-1, 0].set_xlabel("minutes")
    figure.tight_layout()
    figure.savefig(file, dpi=110)
    plt.close(figure)


if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)  # as in tests.chaos

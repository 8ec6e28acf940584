"""Engines side by side in one process: verification rounds, the bare steps beneath them, and closed loops.

A warm round finds its prefix resident (opened anew for every cell, from the prefix cache); a cold one computes it
first, in chunks, from prompts that nobody has seen. Times are wall milliseconds of whole rounds. The arms of a cell
take turns, in another order in every repeat, after a round that does not count.

Run as a program by ``outrider bench engines``, in a process of its own: samples come as JSON lines.
"""

import argparse
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from pathlib import Path

import torch
from tqdm import tqdm

from bench.engines.alone import alone_sample
from bench.engines.engines import MODES, EngineOptions, MeasuredEngine, torch_engine, vllm_engine
from bench.engines.plan import QUICK, WHOLE, AloneCell, RoundCell
from bench.harness.driver import Tokens, random_tokens
from bench.harness.recorded_drafts import RecordSettings, recorded_drafts
from bench.harness.samples import Sample, rotated
from bench.harness.timing import Call, seconds_of
from outrider.models.loading import load_target_facts

BARE = "bare vllm"


def measured(options: EngineOptions, on_cell: Callable[[], object]) -> Iterator[Sample[RoundCell] | Sample[AloneCell]]:
    """All samples. An arm that cannot be made, or fails in a cell, gives a sample that says so."""
    grid, vocab_size = options.grid, load_target_facts(options.target).vocab_size
    engines: list[MeasuredEngine] = []
    failures: dict[str, str] = {}
    for name, make in (("torch", torch_engine), ("vllm", vllm_engine)):
        try:
            engines.append(make(options))
        except Exception as error:  # noqa: BLE001 (whatever ends one arm must not end the others)
            failures |= dict.fromkeys(_arms_of(name), _shown(error))
    longest = random_tokens(max(grid.generations), max(grid.prefixes), max(grid.drafts), vocab_size, seed=0)
    for cell in grid.warm():
        yield from (Sample(cell, arm, {}, failure) for arm, failure in failures.items())
        yield from warm_samples(cell, engines, longest, grid.warm_repeats)
        on_cell()
    for number, cell in enumerate(grid.cold()):
        for repeat in range(grid.cold_repeats):
            seed = 1 + number * grid.cold_repeats + repeat
            fresh = random_tokens(cell.generations, cell.prefix, cell.draft, vocab_size, seed)
            yield from cold_samples(cell, rotated(engines, repeat), fresh)
        on_cell()
    yield from _alone_samples(options, engines, on_cell)


def warm_samples(
    cell: RoundCell, engines: Sequence[MeasuredEngine], tokens: Tokens, repeats: int
) -> Iterator[Sample[RoundCell]]:
    """One warm cell."""
    makers: dict[str, Callable[[], Call]] = {}  # what makes an arm's call, itself not timed
    for one in engines:
        try:
            one.open(cell, tokens)
            for call in one.calls().values():  # warms up, and computes what the prefix cache lacks
                call()
        except Exception as error:  # noqa: BLE001
            yield from (Sample(cell, arm, {}, _shown(error)) for arm in _arms_of(one.name))
            continue
        makers |= {arm: partial(_same, call) for arm, call in one.calls().items()}
        if one.bare is not None:
            one.round("greedy")
            makers[BARE] = one.bare_call
    for repeat in range(repeats):
        for arm in rotated(list(makers), repeat):
            yield _timed(cell, arm, makers[arm])
    for one in engines:
        with suppress(Exception):
            one.close(keep_cache=True)


def cold_samples(cell: RoundCell, engines: Sequence[MeasuredEngine], tokens: Tokens) -> Iterator[Sample[RoundCell]]:
    """One cold cell, once: greedy, and the bare step over the same passes right after."""
    for one in engines:
        one.open(cell, tokens)
        [(arm, call)] = one.calls().items()
        sample = _timed(cell, arm, partial(_same, call))
        yield sample
        if one.bare is not None and sample.values:
            yield _timed(cell, BARE, one.bare_call)
        with suppress(Exception):
            one.close(keep_cache=False)


def _alone_samples(
    options: EngineOptions, engines: Sequence[MeasuredEngine], on_cell: Callable[[], object]
) -> Iterator[Sample[AloneCell]]:
    """Closed loops with recorded drafts."""
    grid = options.grid
    responses = recorded_drafts(
        RecordSettings(options.target, options.drafter, max(grid.generations), grid.alone_tokens)
    )
    for clients in grid.generations:
        for repeat in range(grid.alone_repeats):
            for one in rotated(engines, repeat):
                if one.recorder is not None:
                    one.recorder.recording = False
                for window in grid.alone_windows:
                    try:
                        yield alone_sample(one.name, one.engine, responses[:clients], window, grid.alone_tokens)
                    except Exception as error:  # noqa: BLE001 (whatever ends one arm must not end the others)
                        yield Sample(AloneCell(clients, window), one.name, {}, _shown(error))
        on_cell()


def _timed(cell: RoundCell, arm: str, make: Callable[[], Call]) -> Sample[RoundCell]:
    try:
        return Sample(cell, arm, {"ms": 1e3 * seconds_of(make())})
    except Exception as error:  # noqa: BLE001 (whatever ends one arm must not end the others)
        return Sample(cell, arm, {}, _shown(error))


def _same(call: Call) -> Call:
    return call


def _arms_of(engine: str) -> list[str]:
    return [*(f"{engine} {mode}" for mode in MODES), *([BARE] if engine == "vllm" else [])]


def _shown(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"


def read_samples(file: Path) -> tuple[list[Sample[RoundCell]], list[Sample[AloneCell]]]:
    """What ``main`` wrote, as far as it got."""
    lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
    read = [json.loads(line) for line in lines]
    rounds = [Sample(**{**one, "cell": RoundCell(**one["cell"])}) for one in read if "warm" in one["cell"]]
    return rounds, [Sample(**{**one, "cell": AloneCell(**one["cell"])}) for one in read if "warm" not in one["cell"]]


def main(argv: Sequence[str] | None = None) -> None:
    """Measure and write the samples, one JSON line each."""
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    for name in ("--target", "--drafter", "--dtype", "--device"):
        add(name, required=True)
    add("--threads", type=int, required=True)
    add("--prefill-chunk", type=int, required=True)
    add("--quick", action="store_true")
    add("--out", type=Path, required=True)
    args = parser.parse_args(argv)
    torch.set_num_threads(args.threads)
    grid = QUICK if args.quick else WHOLE
    options = EngineOptions(args.target, args.drafter, args.dtype, args.device, args.threads, args.prefill_chunk, grid)
    cells = len(grid.warm()) + len(grid.cold()) + len(grid.generations)
    with (
        args.out.open("w", encoding="utf-8", buffering=1) as out,
        tqdm(total=cells, desc="engines", disable=None) as bar,
    ):
        for sample in measured(options, bar.update):
            out.write(json.dumps(asdict(sample)) + "\n")


if __name__ == "__main__":
    main()

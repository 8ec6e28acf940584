"""Engines side by side in one process: verification rounds, the bare steps beneath them, and closed loops.

A warm round finds its prefix resident (opened anew for every cell, from the prefix cache); a cold one computes it
first, in chunks, from prompts that nobody has seen. Times are wall seconds of whole rounds. The arms of a cell take
turns, in another order in every repeat, after a round that does not count.

Run as a program by ``outrider bench engines``, in a process of its own: samples come as JSON lines.
"""

import argparse
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from pathlib import Path

import torch
from tqdm import tqdm

from bench.engines_alone import alone_sample
from bench.engines_beds import Bed, Call, RoundOptions, Transformers, torch_bed, vllm_bed
from bench.engines_driver import GREEDY, MODES, Tokens, random_tokens
from bench.engines_figures import BARE, AloneSample, RoundCell, RoundSample, rotated
from bench.engines_plan import QUICK, WHOLE
from bench.recorded_drafts import RecordSettings, recorded_drafts
from outrider.models.registry import load_target_facts

TRANSFORMERS = "transformers"  # in cells of this draft only: it is there to see that the torch engine is no slower
PLAIN_DRAFT = 8


def measured(options: RoundOptions, on_cell: Callable[[], object]) -> Iterator[RoundSample | AloneSample]:
    """All samples. An arm that cannot be made, or fails in a cell, gives a sample that says so."""
    vocab_size = load_target_facts(options.target).vocab_size
    beds: dict[str, Bed] = {}
    plain: Transformers | None = None
    failures: dict[str, str] = {}
    for name, make in (("torch", torch_bed), ("vllm", vllm_bed)):
        try:
            beds[name] = make(options)
        except Exception as error:  # noqa: BLE001 (whatever ends one arm must not end the others)
            failures |= {arm: _said(error) for arm in _arms_of(name)}
    try:
        plain = Transformers(options)
    except Exception as error:  # noqa: BLE001
        failures[TRANSFORMERS] = _said(error)
    grid = options.grid
    longest = random_tokens(max(grid.generations), max(grid.prefixes), max(grid.drafts), vocab_size, seed=0)
    for cell in grid.warm():
        yield from (RoundSample(cell, arm, None, failure) for arm, failure in failures.items())
        yield from warm_samples(cell, beds, plain, longest, grid.warm_repeats)
        on_cell()
    for number, cell in enumerate(grid.cold()):
        for repeat in range(grid.cold_repeats):
            seed = 1 + number * grid.cold_repeats + repeat
            fresh = random_tokens(cell.generations, cell.prefix, cell.draft, vocab_size, seed)
            yield from cold_samples(cell, rotated(list(beds.values()), repeat), fresh)
        on_cell()
    yield from alone_samples(options, list(beds.values()), on_cell)


def warm_samples(
    cell: RoundCell, beds: Mapping[str, Bed], plain: Transformers | None, tokens: Tokens, repeats: int
) -> Iterator[RoundSample]:
    """One warm cell."""
    calls: dict[str, Callable[[], Call]] = {}  # what makes an arm's call, itself not timed
    for bed in beds.values():
        try:
            bed.open(cell, tokens)
            for call in bed.calls(cell).values():  # warms up, and computes what the prefix cache lacks
                call()
        except Exception as error:  # noqa: BLE001
            yield from (RoundSample(cell, arm, None, _said(error)) for arm in _arms_of(bed.name))
            continue
        calls |= {arm: partial(_same, call) for arm, call in bed.calls(cell).items()}
        if bed.bare is not None:
            bed.round(GREEDY)
            calls[BARE] = bed.bare_call
    if plain is not None and cell.draft == PLAIN_DRAFT:
        run = plain.call(cell)
        run()
        calls[TRANSFORMERS] = partial(_same, run)
    for repeat in range(repeats):
        for arm in rotated(list(calls), repeat):
            yield _timed(cell, arm, calls[arm])
    for bed in beds.values():
        with suppress(Exception):
            bed.close(keep_cache=True)


def cold_samples(cell: RoundCell, beds: Sequence[Bed], tokens: Tokens) -> Iterator[RoundSample]:
    """One cold cell, once: greedy, and the bare step over the same passes right after."""
    for bed in beds:
        bed.open(cell, tokens)
        [(arm, call)] = bed.calls(cell).items()
        sample = _timed(cell, arm, partial(_same, call))
        yield sample
        if bed.bare is not None and sample.seconds is not None:
            yield _timed(cell, BARE, bed.bare_call)
        with suppress(Exception):
            bed.close(keep_cache=False)


def alone_samples(options: RoundOptions, beds: Sequence[Bed], on_cell: Callable[[], object]) -> Iterator[AloneSample]:
    """Closed loops with recorded drafts."""
    grid = options.grid
    settings = RecordSettings(options.target, options.drafter, max(grid.generations), grid.alone_tokens)
    responses = recorded_drafts(settings)
    for clients in grid.generations:
        for repeat in range(grid.alone_repeats):
            for bed in rotated(beds, repeat):
                if bed.recorder is not None:
                    bed.recorder.recording = False
                for window in grid.alone_windows:
                    try:
                        yield alone_sample(bed.name, bed.engine, responses[:clients], window, grid.alone_tokens)
                    except Exception as error:  # noqa: BLE001 (whatever ends one arm must not end the others)
                        yield AloneSample(bed.name, clients, window, None, None, exact=False, failure=_said(error))
        on_cell()


def _timed(cell: RoundCell, arm: str, make: Callable[[], Call]) -> RoundSample:
    try:
        call = make()
        _synchronise()
        began_at_s = time.perf_counter()
        call()
        _synchronise()
        return RoundSample(cell, arm, time.perf_counter() - began_at_s)
    except Exception as error:  # noqa: BLE001 (whatever ends one arm must not end the others)
        return RoundSample(cell, arm, None, _said(error))


def _synchronise() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def _same(call: Call) -> Call:
    return call


def _arms_of(bed: str) -> list[str]:
    return [*(f"{bed} {mode}" for mode in MODES), *([BARE] if bed == "vllm" else [])]


def _said(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"


def read_samples(file: Path) -> tuple[list[RoundSample], list[AloneSample]]:
    """What ``main`` wrote, as far as it got."""
    lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
    read = [json.loads(line) for line in lines]
    rounds = [RoundSample(**{**one, "cell": RoundCell(**one["cell"])}) for one in read if "cell" in one]
    return rounds, [AloneSample(**one) for one in read if "cell" not in one]


def main(argv: Sequence[str] | None = None) -> None:
    """Measure and write the samples, one JSON line each."""
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add("--target", required=True)
    add("--drafter", required=True)
    add("--dtype", required=True)
    add("--device", required=True)
    add("--threads", type=int, required=True)
    add("--prefill-chunk", type=int, required=True)
    add("--quick", action="store_true")
    add("--out", type=Path, required=True)
    args = parser.parse_args(argv)
    torch.set_num_threads(args.threads)
    grid = QUICK if args.quick else WHOLE
    options = RoundOptions(args.target, args.drafter, args.dtype, args.device, args.threads, args.prefill_chunk, grid)
    cells = len(grid.warm()) + len(grid.cold()) + len(grid.generations)
    with (
        args.out.open("w", encoding="utf-8", buffering=1) as out,
        tqdm(total=cells, desc="engines", disable=None) as bar,
    ):
        for sample in measured(options, bar.update):
            out.write(json.dumps(asdict(sample)) + "\n")


if __name__ == "__main__":
    main()

"""``outrider profile``: measure this machine's verification times and fit the cost model to them (WISP Appendix C).

Runs the paper's five kinds of batches and the row counts of speculation on the live engine, in an order that spreads
the machine's moods over all of them; prints how well eq. 19, and eq. 19 with row offsets, predict batches they were not
fitted to; writes the profile that ``outrider serve`` loads, and the raw samples beside it.
"""

import argparse
import csv
import os
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch
import yaml
from tqdm import tqdm

from bench.profile_runs import BatchRunner, UniquePrompts
from bench.profile_tables import print_profile
from outrider.assembly.verifiers import VerifierSpec, build_verifier, check_engine
from outrider.config.schema import Device, VerifierConfig
from outrider.contracts.errors import ParameterError
from outrider.costs.fit_figures import BatchSample, Regime, assess, medians_of, noise_floor_mape, works_of
from outrider.costs.fitting import FitKind, FittedModel, fit
from outrider.costs.profiles import profile_of, to_json
from outrider.costs.profiling_plan import Configuration, ProfilingPlan, profiling_plan
from outrider.engines.limits import EngineLimits
from outrider.engines.torch.model import configured_kv_bytes_per_token
from outrider.models.registry import load_target_facts, resolve_folder, torch_dtype
from outrider.models.target_folder import read_config

_LARGEST_TOKENS = {"cpu": 256, "cuda": 2000}
_QUICK_LARGEST_TOKENS, _QUICK_SHARE, _QUICK_REPEATS = 128, 0.25, 2
_SPARE_BLOCKS = 4  # what an engine keeps for itself
_CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}


def main(argv: Sequence[str]) -> None:
    """Measure, fit, print and write."""
    args = _arguments(argv)
    torch.set_num_threads(args.threads)
    usual = _QUICK_LARGEST_TOKENS if args.quick else _LARGEST_TOKENS[args.device.partition(":")[0]]
    largest_tokens = usual if args.largest_tokens is None else args.largest_tokens
    plan = profiling_plan(largest_tokens, args.seed, _QUICK_SHARE if args.quick else 1.0)
    repeats = min(args.repeats, _QUICK_REPEATS) if args.quick else args.repeats
    context_tokens = load_target_facts(args.target).max_context_tokens
    if largest_tokens >= context_tokens:
        needed = f"less than the target's context of {context_tokens} tokens"
        raise ParameterError("largest_tokens", needed, largest_tokens)
    spec = _spec(args, plan)
    built = build_verifier(spec)
    prompts = UniquePrompts(built.facts.vocab_size, args.seed, spec.limits.block_tokens)
    runner = BatchRunner(built.engine, prompts, _CLOCKS[args.clock])
    train, test = measure(runner, plan, repeats, args.warmups, args.seed)
    fitted = fit(train, test, args.seed)
    machine = built.machine
    threads = f", {machine.threads} thread(s)" if machine.device == "cpu" else ""
    engine = f"{machine.engine} {machine.engine_version}"
    print(f"{machine.model} {machine.dtype} on {machine.hardware}{threads}, {engine}, {args.clock} clock")
    print_profile(train, test, fitted)
    model = fitted.guarded(test)
    name = f"{machine.model}-{machine.dtype}-{machine.engine}-{machine.device}-{machine.threads}"
    date = datetime.now(UTC).date().isoformat()
    profile = profile_of(name, model, machine, date, _figures(train, test, fitted))
    args.out.write_text(to_json(profile), encoding="utf-8")
    samples = args.out.with_suffix(".samples.csv")
    write_samples(samples, train, test, fitted)
    print(f"\nwrote {args.out} and {samples}")
    if args.plots:
        from bench.profile_plots import plot_profile  # noqa: PLC0415 (needs matplotlib, which serving does not)

        plot_profile(args.plots, train, test, fitted)


def _arguments(argv: Sequence[str]) -> argparse.Namespace:
    """What is asked for. Refused is, before minutes of measuring, what could not be measured or written."""
    parser = argparse.ArgumentParser(prog="outrider profile", description=__doc__)
    add = parser.add_argument
    add("--target", default="embedded", help="model.target of the service (default: %(default)s)")
    add(
        "--dtype",
        default="float32",
        choices=["float32", "bfloat16", "float16"],
        help="model.dtype (default: %(default)s)",
    )
    add("--engine", default="torch", choices=["torch", "vllm"], help="verifiers.engine (default: %(default)s)")
    add("--device", default="cpu", help="verifiers.device (default: %(default)s)")
    add("--tensor-parallel-size", type=_from(1), default=1, help="that of verifiers (default: %(default)s)")
    add(
        "--vllm-options",
        type=_mapping,
        default={},
        metavar="YAML",
        help="that of verifiers, such as '{quantization: fp8}'",
    )
    add("--threads", type=_from(1), default=1, help="verifiers.threads (default: %(default)s)")
    add("--largest-tokens", type=int, help="of one batch; the paper's is 2000 (default: 256 on a CPU)")
    add("--repeats", type=_from(1), default=3, help="measured runs of each configuration (default: %(default)s)")
    add("--warmups", type=_from(0), default=1, help="discarded passes before its first run (default: %(default)s)")
    add(
        "--clock",
        default="wall",
        choices=list(_CLOCKS),
        help="cpu leaves out what other processes took (one thread on a CPU): to see which errors are their noise",
    )
    add("--seed", type=_from(0), default=0, help="of the random configurations (default: %(default)s)")
    add("--out", type=Path, default=Path("cost_profile.json"), help="the profile; samples go beside it")
    add("--plots", type=Path, help="a folder for figures (needs the extra `bench`)")
    add("--quick", action="store_true", help="a quarter of the configurations, smaller, twice: about a minute")
    args = parser.parse_args(argv)
    check_engine(args.engine)
    if args.engine == "torch" and (args.tensor_parallel_size > 1 or args.vllm_options):
        parser.error("--tensor-parallel-size above 1 and --vllm-options need --engine vllm")
    if args.engine == "vllm" and args.device not in _LARGEST_TOKENS:
        parser.error(f"--device needs cpu or cuda with --engine vllm, found {args.device}")
    if args.device.partition(":")[0] not in _LARGEST_TOKENS:
        parser.error(f"--device needs cpu, cuda or cuda:N, found {args.device}")
    if args.device != "cpu" and not torch.cuda.is_available():
        parser.error(f"--device {args.device} needs a GPU and a CUDA build of torch, found none")
    if args.clock == "cpu" and (args.threads > 1 or args.device != "cpu"):
        parser.error("--clock cpu needs --threads 1 and --device cpu: it adds up the seconds of all threads")
    if args.plots and find_spec("matplotlib") is None:
        parser.error("--plots needs matplotlib; pip install 'outrider[bench]'")
    for folder in filter(None, (args.out.parent, args.plots)):
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            parser.error(f"needs a folder to write to, found {folder}: {error.strerror}")
    if args.out.is_dir() or not os.access(args.out if args.out.exists() else args.out.parent, os.W_OK):
        parser.error(f"--out needs a file that can be written, found {args.out}")
    return args


def _mapping(text: str) -> dict[str, object]:
    try:
        value = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise argparse.ArgumentTypeError(f"needs YAML, found {text!r}: {error}") from error
    if not isinstance(value, dict):
        raise argparse.ArgumentTypeError(f"needs a YAML mapping, found {text!r}")
    return value


def _from(least: int) -> Callable[[str], int]:
    def integer(text: str) -> int:
        if (value := int(text)) < least:
            raise argparse.ArgumentTypeError(f"needs at least {least}, found {value}")
        return value

    return integer


def measure(
    runner: BatchRunner, plan: ProfilingPlan, repeats: int, warmups: int, seed: int
) -> tuple[list[BatchSample], list[BatchSample]]:
    """Run everything ``repeats`` times, each time in another order, and pack the times into samples."""
    configurations = (*plan.train, *plan.test)
    seconds: list[list[float]] = [[] for _ in configurations]
    rng = np.random.default_rng(seed)
    runner.run(max(configurations, key=_new_tokens).blocks)  # the process's own warm-up: memory, kernels
    with tqdm(total=repeats * len(configurations), desc="batches", disable=None) as bar:
        for repeat in range(repeats):
            for index in rng.permutation(len(configurations)).tolist():
                seconds[index].append(runner.run(configurations[index].blocks, 0 if repeat else warmups))
                bar.update()
    samples = [
        BatchSample(one.regime, one.blocks, tuple(times)) for one, times in zip(configurations, seconds, strict=True)
    ]
    return samples[: len(plan.train)], samples[len(plan.train) :]


def write_samples(file: Path, train: Sequence[BatchSample], test: Sequence[BatchSample], fitted: FittedModel) -> None:
    """One row for each configuration: what it was, what it took, what was predicted."""
    predicted = {
        kind: report.model.predict_works_s(works_of((*train, *test))) for kind, report in fitted.reports.items()
    }
    with file.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream)
        sums = ("new_tokens", "interactions", "cached_tokens")
        writer.writerow(("set", "regime", "blocks", *sums, "median_s", "variation", "seconds", *predicted))
        for index, sample in enumerate((*train, *test)):
            work = sample.work
            writer.writerow(
                (
                    "train" if index < len(train) else "test",
                    sample.regime.value,
                    " ".join(f"{block.new_tokens}+{block.cached_tokens}" for block in sample.blocks),
                    work.new_tokens,
                    work.interactions,
                    work.cached_tokens,
                    f"{sample.median_s:.6f}",
                    f"{sample.variation:.4f}",
                    " ".join(f"{seconds:.6f}" for seconds in sample.seconds),
                    *(f"{column[index]:.6f}" for column in predicted.values()),
                )
            )


def _spec(args: argparse.Namespace, plan: ProfilingPlan) -> VerifierSpec:
    """An engine that holds every batch of the plan, and computes it in one pass."""
    configurations = (*plan.train, *plan.test)
    folder = resolve_folder(args.target)
    bytes_per_token = configured_kv_bytes_per_token(read_config(folder), torch_dtype(args.dtype))
    device: Device = "cpu" if args.device == "cpu" else "cuda"
    block_tokens = VerifierConfig(engine=args.engine, device=device, num_gpus=1.0).block_tokens
    blocks = max(_kv_blocks(one, block_tokens) for one in configurations) + _SPARE_BLOCKS
    new_tokens = max(map(_new_tokens, configurations))
    chunk_tokens = new_tokens + max(_cached_tokens(one) for one in configurations)
    return VerifierSpec(
        engine=args.engine,
        target=args.target,
        dtype=args.dtype,
        device=args.device,
        threads=args.threads,
        limits=EngineLimits(blocks * block_tokens * bytes_per_token, block_tokens, chunk_tokens),
        max_pass_tokens=chunk_tokens,
        tensor_parallel_size=args.tensor_parallel_size,
        vllm_options=args.vllm_options,
    )


def _new_tokens(configuration: Configuration) -> int:
    return sum(block.new_tokens for block in configuration.blocks)


def _cached_tokens(configuration: Configuration) -> int:
    return max(block.cached_tokens for block in configuration.blocks)


def _kv_blocks(configuration: Configuration, block_tokens: int) -> int:
    return sum((block.new_tokens + block.cached_tokens) // block_tokens + 2 for block in configuration.blocks)


def _figures(train: Sequence[BatchSample], test: Sequence[BatchSample], fitted: FittedModel) -> dict[str, float | None]:
    """What the profile says of its own quality."""
    report = fitted.reports[FitKind.OFFSETS]
    verification = [sample for sample in test if sample.regime is Regime.VERIFICATION]
    figures: dict[str, float | None] = {
        "train_r2": report.train.r2,
        "train_mape": report.train.mape,
        "test_r2": report.test.r2 if report.test else None,
        "test_mape": report.test.mape if report.test else None,
        "test_mape_verification": assess(report.model, verification).mape if verification else None,
        "noise_floor_mape": noise_floor_mape((*train, *test)),
        "largest_measured_s": float(medians_of((*train, *test)).max()),
    }
    return figures

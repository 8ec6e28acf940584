"""Measure this machine's verification times and fit the cost model to them (WISP Appendix C).

Runs the paper's five kinds of batches and the row counts of speculation on the live engine, interleaved so that drifts
of the machine spread over all of them; prints how well eq. 19, and eq. 19 with row offsets, predict batches they were
not fitted to; writes the profile that ``outrider serve`` loads, and the raw samples beside it.
"""

import argparse
import csv
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import get_args

import torch
from tqdm import tqdm

from cluster.commands.checkout import lab_module
from cluster.option_types import natural, new_file, new_folder, positive_int
from cluster.options import check_plots
from cluster.reports.profile import show_profile
from outrider.assembly.verifiers import build_verifier
from outrider.config.replicas import VerifierConfig
from outrider.config.values import Device, TargetDType
from outrider.contracts.errors import ConfigError, ParameterError
from outrider.costs.batch_runs import BatchRunner, UniquePrompts, measure
from outrider.costs.fit_figures import BatchSample, works_of
from outrider.costs.fitting import FittedModel, fit
from outrider.costs.profiles import profile_of, to_json
from outrider.costs.profiling_plan import Configuration, ProfilingPlan, profiling_plan
from outrider.documents.whole_file import whole_file, write_whole
from outrider.documents.yaml_text import parse_yaml
from outrider.engines.kinds import VerifierSpec
from outrider.engines.limits import EngineLimits
from outrider.engines.registry import VERIFIERS
from outrider.engines.torch.model import configured_kv_bytes_per_token
from outrider.models.folders import resolve_folder
from outrider.models.loading import load_target_facts, torch_dtype
from outrider.models.target_folder import read_config

_LARGEST_TOKENS = {"cpu": 256, "cuda": 2000}
_QUICK_LARGEST_TOKENS, _QUICK_SHARE, _QUICK_REPEATS = 128, 0.25, 2
_SPARE_BLOCKS = 4  # reserved by the engine
_CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.description = __doc__
    add = parser.add_argument
    add("--target", default="embedded", help="model.target of the service (default: %(default)s)")
    add("--dtype", default="auto", choices=get_args(TargetDType), help="model.dtype (default: %(default)s)")
    add("--engine", default="torch", choices=tuple(VERIFIERS), help="verifiers.engine (default: %(default)s)")
    add("--device", default="cpu", help="verifiers.device (default: %(default)s)")
    add("--tensor-parallel-size", type=positive_int, default=1, help="of verifiers (default: %(default)s)")
    options = "verifiers.vllm_options, such as '{quantization: fp8}'"
    add("--vllm-options", type=_mapping, default={}, metavar="YAML", help=options)
    add("--threads", type=positive_int, default=1, help="verifiers.threads (default: %(default)s)")
    add("--largest-tokens", type=int, help="largest batch; the paper's is 2000 (default: 256 on a CPU)")
    add("--repeats", type=positive_int, default=3, help="measured runs of each configuration (default: %(default)s)")
    add("--warmups", type=natural, default=1, help="discarded passes before its first run (default: %(default)s)")
    clock = "cpu excludes other processes (one thread on a CPU), to see which errors are their noise"
    add("--clock", default="wall", choices=tuple(_CLOCKS), help=clock)
    add("--seed", type=natural, default=0, help="of the random configurations (default: %(default)s)")
    add("--out", type=new_file, default="cost_profile.json", help="the profile; samples are written beside it")
    add(
        "--plots", type=new_folder, metavar="FOLDER", help="draw fit and errors (in a checkout, with the extra `bench`)"
    )
    add("--quick", action="store_true", help="a quarter of the configurations, smaller, measured twice: about a minute")


def run(arguments: argparse.Namespace) -> None:
    _check_engine(arguments)
    check_plots(arguments.plots)
    plots = None if arguments.plots is None else lab_module("reports.profile_plots", "profile --plots")
    torch.set_num_threads(arguments.threads)
    plan = _plan(arguments)
    built = build_verifier(spec_of(arguments, plan))
    prompts = UniquePrompts(built.facts.vocab_size, arguments.seed, _block_tokens(arguments))
    runner = BatchRunner(built.engine, prompts, _CLOCKS[arguments.clock])
    repeats = min(arguments.repeats, _QUICK_REPEATS) if arguments.quick else arguments.repeats
    with tqdm(total=repeats * len((*plan.train, *plan.test)), desc="batches", disable=None) as bar:
        warmups, seed = arguments.warmups, arguments.seed
        train, test = measure(runner, plan, repeats=repeats, warmups=warmups, seed=seed, on_batch=bar.update)
    fitted = fit(train, test, arguments.seed)
    machine = built.machine
    threads = f", {machine.threads} thread(s)" if machine.device == "cpu" else ""
    engine = f"{machine.engine} {machine.engine_version}"
    print(f"{machine.model} {machine.dtype} on {machine.hardware}{threads}, {engine}, {arguments.clock} clock")
    show_profile(train, test, fitted)
    name = f"{machine.model}-{machine.dtype}-{machine.engine}-{machine.device}-{machine.threads}"
    date = datetime.now(UTC).date().isoformat()
    profile = profile_of(name, fitted.guarded(test), machine, date, fitted.quality(train, test))
    write_whole(arguments.out, to_json(profile))
    samples = arguments.out.with_suffix(".samples.csv")
    write_samples(samples, train, test, fitted)
    print(f"\nwrote {arguments.out} and {samples}")
    if plots is not None:
        plots.plot_profile(arguments.plots, train, test, fitted)


def write_samples(file: Path, train: Sequence[BatchSample], test: Sequence[BatchSample], fitted: FittedModel) -> None:
    """Write one row per configuration: its blocks, the measured times and the predictions."""
    predicted = {
        kind: report.model.predict_works_s(works_of((*train, *test))) for kind, report in fitted.reports.items()
    }
    with whole_file(file) as partial, partial.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream)
        sums = ("new_tokens", "interactions", "cached_tokens")
        writer.writerow(("set", "kind", "blocks", *sums, "median_s", "variation", "seconds", *predicted))
        for index, sample in enumerate((*train, *test)):
            work = sample.work
            writer.writerow(
                (
                    "train" if index < len(train) else "test",
                    sample.kind.value,
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


def _check_engine(arguments: argparse.Namespace) -> None:
    engine = VERIFIERS[arguments.engine]
    engine.check_installed()
    device, kind = arguments.device, arguments.device.partition(":")[0]
    if not engine.takes_options and (arguments.tensor_parallel_size > 1 or arguments.vllm_options):
        raise ParameterError("--tensor-parallel-size above 1 and --vllm-options", "--engine vllm", arguments.engine)
    if arguments.engine == "vllm" and device not in _LARGEST_TOKENS:
        raise ParameterError("--device", "cpu or cuda with --engine vllm", device)
    if kind not in _LARGEST_TOKENS:
        raise ParameterError("--device", "cpu, cuda or cuda:N", device)
    if device != "cpu" and not torch.cuda.is_available():
        raise ParameterError(f"--device {device}", "a GPU and a CUDA build of torch", "none")
    if arguments.clock == "cpu" and (arguments.threads > 1 or device != "cpu"):
        needed = "--threads 1 and --device cpu: it adds up the seconds of all threads"
        raise ParameterError("--clock cpu", needed, f"{arguments.threads} on {device}")


def _plan(arguments: argparse.Namespace) -> ProfilingPlan:
    usual = _QUICK_LARGEST_TOKENS if arguments.quick else _LARGEST_TOKENS[arguments.device.partition(":")[0]]
    largest_tokens = usual if arguments.largest_tokens is None else arguments.largest_tokens
    plan = profiling_plan(largest_tokens, arguments.seed, _QUICK_SHARE if arguments.quick else 1.0)
    context_tokens = load_target_facts(arguments.target).max_context_tokens
    if largest_tokens >= context_tokens:
        needed = f"less than the target's context of {context_tokens} tokens"
        raise ParameterError("largest_tokens", needed, largest_tokens)
    return plan


def spec_of(arguments: argparse.Namespace, plan: ProfilingPlan) -> VerifierSpec:
    """An engine that holds every batch of the plan and computes it in one pass, in a service's data type."""
    dtype = VERIFIERS[arguments.engine].settled_dtype(arguments.dtype, arguments.device, arguments.target)
    configurations, block_tokens = (*plan.train, *plan.test), _block_tokens(arguments)
    config = read_config(resolve_folder(arguments.target))
    bytes_per_token = configured_kv_bytes_per_token(config, torch_dtype(dtype))
    blocks = max(_kv_blocks(one, block_tokens) for one in configurations) + _SPARE_BLOCKS
    most_cached = max(block.cached_tokens for one in configurations for block in one.blocks)
    pass_tokens = max(one.new_tokens for one in configurations) + most_cached
    return VerifierSpec(
        engine=arguments.engine,
        target=arguments.target,
        dtype=dtype,
        device=arguments.device,
        threads=arguments.threads,
        limits=EngineLimits(blocks * block_tokens * bytes_per_token, block_tokens, pass_tokens),
        max_pass_tokens=pass_tokens,
        tensor_parallel_size=arguments.tensor_parallel_size,
        vllm_options=arguments.vllm_options,
    )


def _block_tokens(arguments: argparse.Namespace) -> int:
    device: Device = "cpu" if arguments.device == "cpu" else "cuda"
    return VerifierConfig(engine=arguments.engine, device=device, num_gpus=1.0).block_tokens


def _kv_blocks(configuration: Configuration, block_tokens: int) -> int:
    return sum((block.new_tokens + block.cached_tokens) // block_tokens + 2 for block in configuration.blocks)


def _mapping(text: str) -> dict[str, object]:
    try:
        value = parse_yaml(text, "--vllm-options")
    except ConfigError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    if not isinstance(value, dict):
        raise argparse.ArgumentTypeError(f"needs a YAML mapping, found {text!r}")
    return value

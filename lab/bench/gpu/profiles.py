"""Verification times on the device: ``outrider profile`` of a model with random weights, and a plan with it."""

import contextlib
import io
import time
from collections.abc import Callable
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from cluster.cli import main as outrider
from cluster.reports.profile import show_profile
from lab.bench.gpu.random_models import as_loaded, random_model
from lab.bench.gpu.setting import Found, Setting
from outrider.costs.batch_runs import BatchRunner, UniquePrompts, measure
from outrider.costs.fitting import fit
from outrider.costs.profiles import profile_of, to_json
from outrider.costs.profiling_plan import Configuration, profiling_plan
from outrider.engines.kinds import VerifierSpec
from outrider.engines.limits import EngineLimits
from outrider.engines.torch.model import kv_bytes_per_token
from outrider.engines.torch.verifier import TorchVerifier

_BLOCK_TOKENS = 16
_LARGEST, _SMALL_LARGEST = 2000, 128
_REPEATS, _FEW_REPEATS = 3, 2
_DRAFTING = ("--devices", "20", "--draft-tokens-per-s", "40", "--acceptance", "0.7", "--kv-tokens", "200000")


def run(setting: Setting) -> Found:
    """Measure, fit, and plan for 20 devices of 40 tokens/s with such a target."""
    shape = "tiny" if setting.small else "8B"
    model = random_model(shape, setting.device, setting.dtype, setting.seed)
    plan = profiling_plan(_SMALL_LARGEST if setting.small else _LARGEST, setting.seed, 0.25 if setting.small else 1.0)
    configurations = (*plan.train, *plan.test)
    most_cached = max(block.cached_tokens for one in configurations for block in one.blocks)
    pass_tokens = max(one.new_tokens for one in configurations) + most_cached
    blocks = max(map(_blocks, configurations)) + 4
    limits = EngineLimits(kv_bytes_per_token(model) * blocks * _BLOCK_TOKENS, _BLOCK_TOKENS, pass_tokens)
    engine = TorchVerifier(as_loaded(model), limits)
    runner = BatchRunner(engine, UniquePrompts(model.config.vocab_size, setting.seed, _BLOCK_TOKENS), time.perf_counter)
    repeats = _FEW_REPEATS if setting.small else _REPEATS
    train, test = measure(runner, plan, repeats=repeats, warmups=1, seed=setting.seed)
    fitted = fit(train, test, setting.seed)
    spec = VerifierSpec("torch", shape, str(setting.dtype).removeprefix("torch."), str(setting.device), 1, limits)
    machine, date = spec.machine(f"llama {shape}", torch.__version__), datetime.now(UTC).date().isoformat()
    quality = fitted.quality(train, test)
    profile = to_json(profile_of(f"{machine.hardware} {shape}", fitted.guarded(test), machine, date, quality))
    fit_table = _told(lambda: show_profile(train, test, fitted))
    planned = _planned(profile, setting)
    rows = [(name, "-" if value is None else f"{value:.3g}") for name, value in quality.items()]
    figures = {"machine": asdict(machine), "profile": profile, "fit": fit_table, "plan": planned}
    return Found(("fit", ""), rows, figures)


def _blocks(configuration: Configuration) -> int:
    return sum((block.new_tokens + block.cached_tokens) // _BLOCK_TOKENS + 2 for block in configuration.blocks)


def _planned(profile: str, setting: Setting) -> str:
    with TemporaryDirectory() as folder:
        file = Path(folder) / "profile.json"
        file.write_text(profile, encoding="utf-8")
        few = ("--rounds", "200", "--seeds", "1") if setting.small else ()
        return _told(lambda: outrider(["plan", *_DRAFTING, *few, "--profile", str(file)]))


def _told(run: Callable[[], object]) -> str:
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        run()
    return said.getvalue()

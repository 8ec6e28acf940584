"""Whole engines: a verifier's pass and a drafter's step, and their waits for the device."""

import warnings
from itertools import count
from statistics import median

import torch
from torch.profiler import ProfilerActivity, profile

from lab.bench.gpu.random_models import as_loaded, random_model
from lab.bench.gpu.setting import Found, Setting, repeated_s
from lab.bench.harness.timing import Call
from outrider.contracts.drafting import DraftPlan, DraftRequest, DraftTerms
from outrider.contracts.exchanged import WireFormat
from outrider.contracts.prefix import EMPTY_PREFIX_HASH, extend_prefix_hash
from outrider.contracts.requests import SamplingParams
from outrider.contracts.verifying import OpenGeneration
from outrider.costs.batch_runs import UniquePrompts
from outrider.costs.driver import GenerationDriver
from outrider.engines.drafter.engine import TorchDrafter
from outrider.engines.limits import EngineLimits
from outrider.engines.torch.model import kv_bytes_per_token
from outrider.engines.torch.verifier import TorchVerifier
from outrider.models.model_classes import PreTrainedModel

_BLOCK_TOKENS, _PROMPT, _WINDOW, _CHUNK = 16, 200, 8, 8192
_MOST_TOKENS = 2 * _PROMPT  # of a generation: a few are added by each call
_PARAMS = SamplingParams(temperature=0.8, seed=1)
_COPIES = ("Memcpy HtoD", "Memcpy DtoH")  # names in the profiler
_WAITS = ("cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaEventSynchronize")
_COUNTED = ("host waits", "copies up", "copies down", "warned of")


def run(setting: Setting) -> Found:
    shape = "tiny" if setting.small else "1B"
    counts, repeats = ((1, 3), 2) if setting.small else ((1, 8, 32), 10)
    rows, figures = list[list[object]](), list[dict[str, object]]()
    for name, make in _ENGINES.items():
        for generations in counts:
            once = make(random_model(shape, setting.device, setting.dtype), generations)
            took_ms = 1e3 * median(repeated_s(once, repeats))
            waits = _waits(once, setting.device)
            figures.append({"engine": name, "generations": generations, "ms": took_ms, **waits})
            rows.append([name, generations, f"{took_ms:.3g}", *waits.values()])
    return Found(("engine", "generations", "ms", *_COUNTED), rows, {"model": shape, "steps": figures})


def _waits(once: Call, device: torch.device) -> dict[str, int]:
    """Waits of one call: those the profiler shows, and those torch itself warns of."""
    on_card = device.type == "cuda"
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if on_card else [])]
    with profile(activities=activities) as seen:
        once()
    names = [event.name for event in seen.events()]
    up, down = (sum(name.startswith(copy) for name in names) for copy in _COPIES)
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        if on_card:
            torch.cuda.set_sync_debug_mode("warn")
        try:
            once()
        finally:
            if on_card:
                torch.cuda.set_sync_debug_mode("default")
    told = sum("synchroniz" in str(one.message) for one in warned)
    return dict(zip(_COUNTED, (sum(name in _WAITS for name in names), up, down, told), strict=True))


def _limits(model: PreTrainedModel, generations: int) -> EngineLimits:
    return EngineLimits(kv_bytes_per_token(model) * generations * _MOST_TOKENS, _BLOCK_TOKENS, _CHUNK)


def _verifier(model: PreTrainedModel, generations: int) -> Call:
    """A pass over a draft of each generation."""
    engine = TorchVerifier(as_loaded(model), _limits(model, generations))
    driver, prompts = GenerationDriver(engine, _PARAMS), UniquePrompts(model.config.vocab_size, seed=0)
    for number in range(generations):
        driver.open(f"g{number}", prompts.take(_PROMPT))
    driver.round(dict.fromkeys(driver.tokens, ()))
    drafts = {name: prompts.draft(_WINDOW) for name in driver.tokens}
    return lambda: driver.round(drafts)


def _drafter(model: PreTrainedModel, generations: int) -> Call:
    """A step of this many chains; complete blocks are started again behind the same tokens."""
    engine, vocab = TorchDrafter(as_loaded(model), _limits(model, generations)), int(model.config.vocab_size)
    prompts, rounds = UniquePrompts(vocab, seed=0), count(1)
    opened = [OpenGeneration(f"g{number}", prompts.take(_PROMPT), _PARAMS) for number in range(generations)]
    for one in opened:
        engine.open(one, DraftTerms(WireFormat(vocab)))

    def step() -> None:
        if not engine.busy:
            number = next(rounds)
            for one in opened:
                prefix, plan = extend_prefix_hash(EMPTY_PREFIX_HASH, one.prompt_ids), DraftPlan("token_ids", _WINDOW)
                engine.submit(DraftRequest(one.generation, number, len(one.prompt_ids), (), prefix, plan))
        engine.step()

    for _ in range(_WINDOW + 1):
        step()
    return step


_ENGINES = {"verifier, a draft of 8": _verifier, "drafter, a token": _drafter}

"""Draft engines of one model side by side: time of a token, and greedy acceptance on held-out responses."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from lab.bench.harness.recorded_drafts import RecordedResponse, greedy_drafts
from lab.bench.harness.statistics import Spread, rotated, spread_of
from outrider.contracts.drafting import Draft, DrafterEngine, DraftPlan, DraftRequest, DraftTerms
from outrider.contracts.exchanged import WireFormat
from outrider.contracts.prefix import EMPTY_PREFIX_HASH, extend_prefix_hash
from outrider.contracts.requests import SamplingParams
from outrider.contracts.verifying import OpenGeneration
from outrider.engines.kinds import DrafterSpec
from outrider.engines.limits import EngineLimits
from outrider.engines.onnx.engine import OnnxDrafter
from outrider.engines.onnx.export import export_drafter
from outrider.engines.onnx.model import OnnxModel
from outrider.engines.torch.kind import torch_drafter
from outrider.models.loading import load_drafter
from outrider.protocols.registry import PLAINEST

LIMITS = EngineLimits(2**28)
WINDOW = 16
_AT_ONCE = 16


@dataclass(frozen=True, slots=True)
class TokenTime:
    engine: str
    prefix: int  # tokens before the draft
    generations: int  # at once
    temperature: float
    cpu_ms: Spread  # of the process per token of one generation, over repeats
    wall_ms: Spread


def engines_of(model: str, target: str, folder: Path, *, with_float32: bool = False) -> dict[str, DrafterEngine]:
    """Return engines of one thread by name: today's torch engine, and exports of the same model."""
    torch.set_num_threads(1)
    spec = DrafterSpec("torch", model, target, "auto", "cpu", 1, LIMITS)
    loaded, found = load_drafter(model, target, dtype="float32", device="cpu"), dict[str, DrafterEngine]()
    for name, quantise in (("onnx", True), ("float32", False))[: 1 + with_float32]:
        file = folder / f"{name}.onnx"
        export_drafter(loaded, file, quantise=quantise)
        found[name] = OnnxDrafter(OnnxModel(file, 1), LIMITS)
    return {"torch": torch_drafter(spec).engine, **found}


def token_times(
    engines: dict[str, DrafterEngine], prefixes: Sequence[int], generations: Sequence[int], repeats: int, vocab: int
) -> list[TokenTime]:
    """Time drafts of ``WINDOW`` tokens behind a computed prefix; engines take turns, in another order each time."""
    found = []
    for prefix in prefixes:
        for count in generations:
            for temperature in (0.0, 0.7):
                taken: dict[str, list[tuple[float, float]]] = {name: [] for name in engines}
                for repeat in range(repeats + 1):
                    for name in rotated(list(engines), repeat):
                        taken[name].append(_drafted(engines[name], prefix, count, temperature, vocab))
                for name, times in taken.items():
                    cpu, wall = (spread_of([1e3 * one[at] for one in times[1:]]) for at in range(2))
                    found.append(TokenTime(name, prefix, count, temperature, cpu, wall))
    return found


def acceptance(
    engine: DrafterEngine, responses: Sequence[RecordedResponse], vocab_size: int
) -> tuple[int, list[int | None]]:
    """Return how often the first token of a greedy draft is the target's next one, and each first token."""
    hits, chosen = 0, list[int | None]()
    for start in range(0, len(responses), _AT_ONCE):
        some = responses[start : start + _AT_ONCE]
        outputs = [one.output_ids for one in some]
        for output, drafts in zip(
            outputs, greedy_drafts(engine, [one.prompt_ids for one in some], outputs, 1, vocab_size), strict=True
        ):
            firsts = [draft[0] if draft else None for draft in drafts]
            hits += sum(first == token for first, token in zip(firsts, output, strict=True))
            chosen += firsts
    return hits, chosen


def _drafted(engine: DrafterEngine, prefix: int, count: int, temperature: float, vocab: int) -> tuple[float, float]:
    """Return processor and wall seconds per token of each of ``count`` generations."""
    names = [f"timed {number}" for number in range(count)]
    prompts = [tuple((7919 * at + number) % (vocab - 1000) + 500 for at in range(prefix)) for number in range(count)]
    params = SamplingParams(temperature=temperature, seed=5)
    for name, prompt in zip(names, prompts, strict=True):
        engine.open(OpenGeneration(name, prompt, params), DraftTerms(WireFormat(vocab)))
    _round(engine, [_request(name, prompt, 0, 1) for name, prompt in zip(names, prompts, strict=True)])
    before = time.process_time(), time.perf_counter()
    _round(engine, [_request(name, prompt, 1, WINDOW) for name, prompt in zip(names, prompts, strict=True)])
    after = time.process_time(), time.perf_counter()
    for name in names:
        engine.close(name)
    return (after[0] - before[0]) / (count * WINDOW), (after[1] - before[1]) / (count * WINDOW)


def _round(engine: DrafterEngine, requests: Sequence[DraftRequest]) -> None:
    for request in requests:
        engine.submit(request)
    answered = 0
    while answered < len(requests):
        answered += sum(isinstance(answer, Draft) for answer in engine.step())


def _request(name: str, prompt: tuple[int, ...], number: int, window: int) -> DraftRequest:
    prefix_hash = extend_prefix_hash(EMPTY_PREFIX_HASH, prompt)
    return DraftRequest(name, number, len(prompt), (), prefix_hash, DraftPlan(PLAINEST, window))

"""Measures passes of all arms in turn: torch's in this process, vLLM's in its own."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from statistics import median
from typing import Protocol

from lab.bench.harness.samples import rotated
from lab.bench.passes.bounds import ModelBytes
from lab.bench.passes.shapes import PassShape, Pool
from lab.bench.passes.timing import Memory, pass_seconds
from lab.bench.passes.torch_models import EXACT, INEXACT, Make, served, weight_bytes
from lab.bench.passes.vllm_step import StepSettings, VllmStepError, vllm_step
from outrider.engines.forward_model import MaskedModel
from outrider.engines.torch.linears import can_pack
from outrider.engines.torch.model import kv_bytes_per_token
from outrider.models.loading import load_target

VLLM = "vllm"
_VLLM_BLOCK_TOKENS, _TORCH_BLOCK_TOKENS = 32, 16


@dataclass(frozen=True, slots=True)
class Point:
    """A pass to measure: its shape, and the resident tokens of each sequence."""

    shape: PassShape
    context_tokens: int

    def __str__(self) -> str:
        """``4x1 behind 500``."""
        return f"{self.shape} behind {self.context_tokens}"


@dataclass(frozen=True, slots=True)
class PassPlan:
    """What is measured, and how often."""

    target: str
    dtype: str
    threads: int
    points: tuple[Point, ...]
    turns: int  # of all arms
    passes: int  # of an arm in a turn; the median of their times counts
    buffer_mib: int  # read to measure memory bandwidth
    with_vllm: bool = True

    def pool(self, block_tokens: int) -> Pool:
        """A pool for all points; if the longest has one row, that sequence is alone in being long."""
        alone = [point for point in self.points if point.shape.generations == 1]
        others = [point for point in self.points if point.shape.generations > 1]
        most = max((point.context_tokens + point.shape.rows for point in others), default=0)
        long = max((point.context_tokens + point.shape.rows for point in alone), default=0)
        generations = max((point.shape.generations for point in others), default=0)
        return Pool(block_tokens, max(long, 1), most, generations)


@dataclass(frozen=True, slots=True)
class Measured:
    """All figures, turn by turn.

    Attributes:
        seconds: of a pass by arm and point; a failed arm is missing.
        bytes_per_s: of reading memory.
        failures: of arms.
    """

    sizes: ModelBytes
    seconds: Mapping[str, Mapping[Point, list[float]]]
    bytes_per_s: list[float]
    failures: Mapping[str, str]


class _Arm(Protocol):
    def seconds(self, shape: PassShape, context_tokens: int, passes: int) -> list[float]: ...


@dataclass(frozen=True, slots=True)
class _Local:
    """A model in this process."""

    model: MaskedModel
    pool: Pool
    threads: int

    def seconds(self, shape: PassShape, context_tokens: int, passes: int) -> list[float]:
        """Times of ``passes`` passes."""
        return pass_seconds(self.model, self.pool.segments(shape, context_tokens), passes, self.threads)


def measured(plan: PassPlan, on_cell: Callable[[str], object]) -> Measured:
    """Run the plan; ``on_cell`` gets the arm after each of its measurements."""
    with _arms(plan) as (arms, sizes, failures):
        memory = Memory(plan.buffer_mib, plan.threads)
        seconds: dict[str, dict[Point, list[float]]] = {name: {} for name in arms}
        bytes_per_s: list[float] = []
        for turn in range(plan.turns):
            bytes_per_s.append(memory.bytes_per_s())
            for point in plan.points:
                for name in rotated(list(arms), turn):
                    try:
                        found = arms[name].seconds(point.shape, point.context_tokens, plan.passes)
                    except VllmStepError as error:
                        failures[name] = str(error)
                        del arms[name], seconds[name]
                        continue
                    seconds[name].setdefault(point, []).append(median(found))
                    on_cell(name)
        return Measured(sizes, seconds, bytes_per_s, failures)


@contextmanager
def _arms(plan: PassPlan) -> Iterator[tuple[dict[str, _Arm], ModelBytes, dict[str, str]]]:
    """Arms by name, the bytes their model reads, and those that did not start."""
    failures = dict[str, str]()
    with ExitStack() as running:
        arms, sizes = _torch_arms(plan)
        if plan.with_vllm:
            settings = StepSettings(plan.target, plan.dtype, plan.threads, plan.pool(_VLLM_BLOCK_TOKENS))
            try:
                arms[VLLM] = running.enter_context(vllm_step(settings))
            except VllmStepError as error:
                failures[VLLM] = str(error)
        yield arms, sizes, failures


def _torch_arms(plan: PassPlan) -> tuple[dict[str, _Arm], ModelBytes]:
    """The served model, and inexact ones where exactness changes anything."""
    kinds: dict[str, Make] = {EXACT: served}
    arms, pool = dict[str, _Arm](), plan.pool(_TORCH_BLOCK_TOKENS)
    loaded = load_target(plan.target, dtype=plan.dtype, device="cpu")
    sizes = ModelBytes(weight_bytes(loaded.model), kv_bytes_per_token(loaded.model))
    if can_pack(loaded.model):
        kinds |= INEXACT
    for name, kind in kinds.items():
        model = loaded.model if name == EXACT else load_target(plan.target, dtype=plan.dtype, device="cpu").model
        arms[name] = _Local(kind(model, pool.blocks, pool.block_tokens), pool, plan.threads)
    return arms, sizes


def points(shapes: Sequence[PassShape], prefix: int, context: tuple[int, int] | None) -> tuple[Point, ...]:
    """All shapes behind the prefix; and one row behind each length of ``context``, a short and a long one."""
    found = [Point(shape, prefix) for shape in shapes]
    one = PassShape(1, 1)
    return tuple(dict.fromkeys([*found, *(Point(one, context_tokens) for context_tokens in context or ())]))

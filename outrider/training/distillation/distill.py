"""Distil a drafter for any Llama-like target from the target's own layers.

The first layers are copied, a projection in front of the target's head is fitted, and both are trained on responses
that the target wrote: KL divergence on the most frequent tokens plus smooth L1 on the final hidden state. The drafter
shares the target's tokenizer, embedding and head by construction.

A run can be stopped at any moment and resumed: batches are a function of (seed, step), so on a CPU with the same
number of threads the result is the same to the bit. On a GPU some torch kernels sum in varying order.
"""

import hashlib
import json
import random
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import torch
from tqdm import tqdm

from outrider.contracts.errors import ParameterError
from outrider.documents.text_file import MAX_DATA_BYTES, read_text
from outrider.models.drafter_model import check_sizes, check_token_map_hash, load_drafter, output_head
from outrider.models.drafter_weights import DrafterInfo, DrafterWeights, read_drafter, save_drafter
from outrider.models.loading import LoadedModel, load_target
from outrider.training.builtin_prompts import builtin_prompts
from outrider.training.distillation.checkpoint import load_checkpoint, save_checkpoint
from outrider.training.distillation.measured_acceptance import AcceptanceReport, evaluate_acceptance
from outrider.training.distillation.student import (
    Student,
    Teacher,
    cut_from_target,
    distillation_loss,
    frequent_tokens,
    head_ids,
    learning_rate,
    predicting_rows,
    take_step,
    with_more_layers,
)
from outrider.training.traces import Trace, TraceConfig, make_traces, read_traces, split_traces

_RIDGE_TRACES = 80
_EVALUATED_TRACES = 48  # held-out traces measured at most
_TRACE_BATCH = 16


@dataclass(frozen=True, slots=True)
class DistillConfig:
    target: str  # name or path of the model to distil from
    out: Path  # file to write, ``*.safetensors``; traces and the checkpoint are kept beside it under its name
    steps: int = 2000  # optimiser steps; 0 only with ``init_from``: new head, same weights
    layers: int = 4  # how many of the target's first layers the drafter gets
    batch: int = 8  # traces per step
    learning_rate: float = 1.2e-3  # peak; 1.2e-3 from the target's layers, less from a trained drafter
    vocab_k: int = 8192  # the loss covers this many of the most frequent tokens
    head_tokens: int = 16384  # number of the most frequent tokens that the drafter may propose
    hidden_weight: float = 0.5  # of the smooth L1 term on the final hidden state
    seed: int = 0  # of the traces and of the order of batches
    traces: Path | None = None  # existing training data (``training.traces``); None makes it
    trace_count: int = 2048  # responses to make if ``traces`` is None
    prompts: Path | None = None  # text file with one prompt a line to make traces from; None: the built-in prompts
    own_prompts: float = 0.0  # share of traces whose prompt the target writes itself: no two are alike
    max_new_tokens: int = 96  # length limit of a made response
    resume: bool = True  # resume from the checkpoint if there is one; else start again
    checkpoint_every_steps: int = 100  # steps between two checkpoints
    init_from: Path | None = None  # drafter file of this target to start from, with at most as many layers
    dtype: str = "float32"  # the target's in training, ``float32`` or ``bfloat16``; the drafter trains in float32
    device: str = "cpu"  # a torch device
    threads: int | None = None  # CPU threads of torch; None: unchanged

    def __post_init__(self) -> None:
        counts = (
            "layers",
            "batch",
            "vocab_k",
            "head_tokens",
            "trace_count",
            "max_new_tokens",
            "checkpoint_every_steps",
        )
        for field in counts:
            if (value := getattr(self, field)) < 1:
                raise ParameterError(field, "an integer >= 1", value)
        if self.steps < (fewest := int(self.init_from is None)):
            raise ParameterError("steps", f"an integer >= {fewest}", self.steps)
        if not 0.0 <= self.own_prompts <= 1.0:
            raise ParameterError("own_prompts", "a share in 0..1", self.own_prompts)
        if not self.learning_rate > 0:
            raise ParameterError("learning_rate", "a number > 0", self.learning_rate)
        if self.out.suffix != ".safetensors":
            raise ParameterError("out", "a file name ending in .safetensors", str(self.out))


@dataclass(frozen=True, slots=True)
class DistillReport:
    """Result of a distillation.

    ``before`` and ``after`` are acceptance on held-out traces, of the initial and of the saved weights.
    """

    out: Path
    steps: int
    trained_tokens: int  # output tokens seen, repetitions counted
    last_loss: float
    before: AcceptanceReport
    after: AcceptanceReport


def distill(
    config: DistillConfig, *, progress: bool = True, on_step: Callable[[int, float], None] | None = None
) -> DistillReport:
    """Distil a drafter and write it to ``config.out``; ``on_step`` gets the number of steps done, and the loss.

    Raises:
        ParameterError: the traces or the checkpoint do not belong to this configuration, or the target is too shallow.
        ModelUnavailableError: target or ``init_from`` cannot be loaded, or the target is not Llama-like.
        VocabularyMismatchError: ``init_from`` belongs to another target.
    """
    if config.threads is not None:
        torch.set_num_threads(config.threads)
    target = load_target(config.target, dtype=config.dtype, device=config.device)
    depth = target.model.config.get_text_config(decoder=True).num_hidden_layers
    if config.layers > depth:
        raise ParameterError("layers", f"an integer in 1..{depth}, the target's layers", config.layers)
    train, held_out = split_traces(_traces(config, target, progress=progress))
    if len(train) < config.batch:
        raise ParameterError("traces", f"at least one batch of {config.batch} that is not held out", len(train))
    held_out = _evaluated(held_out)
    teacher, student = Teacher(target.model), _student(config, target)
    if config.init_from is None:
        student.fit_projection(train[:_RIDGE_TRACES], teacher)
    before = evaluate_acceptance(target, student.model, held_out)
    last_loss = _train(config, target, student, teacher, train, progress=progress, on_step=on_step)
    weights = replace(student.weights(), head_ids=head_ids(train, config.head_tokens, target.vocab_size))
    after = _save(config, target, weights, held_out)
    seen = (len(trace.output_ids) for step in range(config.steps) for trace in _batch(config, train, step))
    return DistillReport(config.out, config.steps, sum(seen), last_loss, before, after)


def _traces(config: DistillConfig, target: LoadedModel, *, progress: bool) -> list[Trace]:
    if config.traces is not None:
        return read_traces(config.traces)
    prompts: Sequence[str] = builtin_prompts()
    if config.prompts is not None:
        prompts = [
            line for line in read_text(config.prompts, "prompts", "text", MAX_DATA_BYTES).splitlines() if line.strip()
        ]
    made = TraceConfig(
        config.trace_count,
        max_new_tokens=config.max_new_tokens,
        seed=config.seed,
        batch=_TRACE_BATCH,
        own_prompts=config.own_prompts,
    )
    return make_traces(target, prompts, config.out.with_suffix(".traces.jsonl.gz"), made, progress=progress)


def _evaluated(held_out: Sequence[Trace]) -> list[Trace]:
    kinds = [[trace for trace in held_out if trace.temperature == kind] for kind in (0.0, 1.0)]
    return [trace for kind in kinds for trace in kind[: _EVALUATED_TRACES // 2]]


def _student(config: DistillConfig, target: LoadedModel) -> Student:
    source_layers = tuple(range(config.layers))
    if config.init_from is None:
        return Student(target.model, source_layers, cut_from_target(target.model, source_layers))
    info, weights = read_drafter(config.init_from)
    check_sizes(info, target.model.config.get_text_config(decoder=True), config.init_from)
    check_token_map_hash(info, target.token_map_hash, target.name, config.init_from)
    if info.source_layers != source_layers[: len(info.source_layers)]:
        needed = f"a drafter of the target's layers {source_layers}, or of the first of them"
        raise ParameterError("init_from", needed, info.source_layers)
    weights = with_more_layers(weights, target.model, source_layers)
    return Student(target.model, source_layers, replace(weights, head_ids=None))


def _batch(config: DistillConfig, train: Sequence[Trace], step: int) -> list[Trace]:
    """Return the traces of one step: the next slice of an endless sequence of shuffled epochs."""
    wanted = range(step * config.batch, (step + 1) * config.batch)
    orders = {epoch: _order(config.seed, epoch, len(train)) for epoch in {i // len(train) for i in wanted}}
    return [train[orders[i // len(train)][i % len(train)]] for i in wanted]


def _order(seed: int, epoch: int, count: int) -> list[int]:
    order = list(range(count))
    random.Random(f"{seed} {epoch}").shuffle(order)  # noqa: S311  an order, not a secret
    return order


def _train(
    config: DistillConfig,
    target: LoadedModel,
    student: Student,
    teacher: Teacher,
    train: Sequence[Trace],
    *,
    progress: bool,
    on_step: Callable[[int, float], None] | None,
) -> float:
    parameters = student.parameters()
    for parameter in parameters.values():
        parameter.requires_grad = True
    optimizer = torch.optim.AdamW(parameters.values(), lr=config.learning_rate, betas=(0.9, 0.95), weight_decay=0.01)
    file, fingerprint = config.out.with_suffix(".checkpoint.pt"), _fingerprint(config, target, train)
    done, loss = load_checkpoint(file, fingerprint, parameters, optimizer) if config.resume else (0, float("nan"))
    head = output_head(target.model)[frequent_tokens(train, config.vocab_k)].float()
    with tqdm(total=config.steps, initial=done, desc="distilling", unit="step", disable=not progress) as bar:
        for step in range(done, config.steps):
            batch = _batch(config, train, step)
            wanted = predicting_rows(teacher, batch)
            rate = learning_rate(step, config.steps, config.learning_rate)
            current = distillation_loss(student.predicted_hidden(batch), wanted, head, config.hidden_weight)
            loss = take_step(optimizer, current, rate)
            if (step + 1) % config.checkpoint_every_steps == 0 or step + 1 == config.steps:
                save_checkpoint(file, fingerprint, step + 1, loss, parameters, optimizer)
            bar.set_postfix(loss=f"{loss:.3f}", refresh=False)
            bar.update()
            if on_step is not None:
                on_step(step + 1, loss)
    return loss


def _save(
    config: DistillConfig, target: LoadedModel, weights: DrafterWeights, held_out: Sequence[Trace]
) -> AcceptanceReport:
    """Write the drafter, measure it as loaded back from the file, and add the figures to the file."""
    description = DrafterInfo(
        target=target.name,
        target_hash=target.model_hash,
        token_map_hash=target.token_map_hash,
        source_layers=tuple(range(config.layers)),
        hidden_size=target.model.config.get_text_config(decoder=True).hidden_size,
    )
    save_drafter(config.out, weights, description)
    report = evaluate_acceptance(target, load_drafter(config.out, target.model), held_out)
    figures = {"greedy": report.greedy, "overlap": report.overlap, "shared_noise": report.shared_noise}
    measured = {f"{name}_acceptance": value for name, value in figures.items() if value is not None}
    save_drafter(config.out, weights, replace(description, measured=measured))
    return report


def _fingerprint(config: DistillConfig, target: LoadedModel, train: Sequence[Trace]) -> dict[str, str]:
    """Return everything that decides a run's result; only a checkpoint with the same values can be resumed."""
    place = (
        "out",
        "traces",
        "prompts",
        "trace_count",
        "own_prompts",
        "max_new_tokens",
        "resume",
        "checkpoint_every_steps",
        "threads",
    )
    settings = {key: str(value) for key, value in asdict(config).items() if key not in (*place, "head_tokens")}
    data = hashlib.sha256(json.dumps([asdict(trace) for trace in train]).encode()).hexdigest()
    return {**settings, "target": target.model_hash, "training traces": data}

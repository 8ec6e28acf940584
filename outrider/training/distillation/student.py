"""The student of a distillation, and one step of its training.

The student starts as some of the target's layers; the target's embedding and head are used and stay frozen. Before
training, a square projection in front of the head is fitted by ridge regression to the target's final hidden states:
untrained early exit is hardly ever accepted, and this takes it a third of the way in seconds.
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

import torch
from torch.nn.functional import log_softmax, smooth_l1_loss
from transformers import PretrainedConfig

from outrider.models.drafter_model import build_drafter, drafter_config, input_embedding, output_head
from outrider.models.drafter_weights import DrafterWeights
from outrider.models.model_classes import PreTrainedModel
from outrider.training.traces import Trace

_RIDGE = 1e-2  # relative to the mean of the Gram matrix's diagonal
_WARMUP_STEPS = 20
_FINAL_LEARNING_RATE = 0.05  # relative to the peak
_CACHE_BYTES = 2 * 2**30


def learning_rate(step: int, steps: int, peak: float) -> float:
    """Linear warm-up over 20 steps, then half a cosine down to 5 % of the peak at ``steps``."""
    cosine = 0.5 * (1 + math.cos(math.pi * step / steps))
    return peak * min(1.0, (step + 1) / _WARMUP_STEPS) * (_FINAL_LEARNING_RATE + (1 - _FINAL_LEARNING_RATE) * cosine)


def frequent_tokens(traces: Sequence[Trace], count: int) -> list[int]:
    """Return the ids of the ``count`` most frequent output tokens, ascending; ties go to the lower id."""
    counts = Counter(token for trace in traces for token in trace.output_ids)
    return sorted(sorted(counts, key=lambda token: (-counts[token], token))[:count])


def head_ids(traces: Sequence[Trace], count: int, vocab_size: int) -> torch.Tensor | None:
    """Return the ``count`` tokens a drafter may propose, ascending: most frequent, then lowest ids; None: all."""
    if count >= vocab_size:
        return None
    known = set(frequent_tokens(traces, count))
    others = (token for token in range(vocab_size) if token not in known)
    return torch.tensor(sorted([*known, *islice(others, count - len(known))]))


def cut_from_target(target: PreTrainedModel, source_layers: Sequence[int]) -> DrafterWeights:
    body: Any = target.base_model
    layers = {
        f"{i}.{name}": value.detach().to(torch.float32, copy=True)
        for i, source in enumerate(source_layers)
        for name, value in body.layers[source].state_dict().items()
    }
    norm = body.norm.weight.detach().to(torch.float32, copy=True)
    return DrafterWeights(layers, norm, torch.eye(len(norm), device=norm.device))


def with_more_layers(weights: DrafterWeights, target: PreTrainedModel, source_layers: Sequence[int]) -> DrafterWeights:
    """Append more of the target's layers to a drafter; until they are trained they add nothing to its result.

    Args:
        weights: a drafter of the first of ``source_layers``.
        target: the model whose layers are appended.
        source_layers: old and new layers together.
    """
    cut = cut_from_target(target, source_layers).layers
    silent = {name: torch.zeros_like(value) if _adds(name) else value for name, value in cut.items()}
    return replace(weights, layers=silent | dict(weights.layers))


def _adds(name: str) -> bool:
    """Return whether the parameter's product is added to the residual stream."""
    return any(f".{part}." in name for part in ("o_proj", "down_proj"))


class Teacher:
    """The target's final hidden states over whole traces, kept in memory up to a budget.

    Each trace is run alone, so its states do not depend on the batch that asks for it: a resumed run sees the same.
    """

    def __init__(self, target: PreTrainedModel) -> None:
        self._target = target
        self._kept: dict[Trace, torch.Tensor] = {}
        self._kept_bytes = 0

    @torch.no_grad()
    def hidden(self, trace: Trace) -> torch.Tensor:
        """``[len(prompt) + len(output), hidden]`` in the target's dtype, on its device."""
        device = self._target.device
        if trace in self._kept:
            return self._kept[trace].to(device)
        ids = torch.tensor([trace.prompt_ids + trace.output_ids], device=device)
        states: torch.Tensor = self._target.base_model(input_ids=ids, use_cache=False).last_hidden_state[0]
        if self._kept_bytes + states.nbytes <= _CACHE_BYTES:
            self._kept[trace] = states.cpu()
            self._kept_bytes += states.nbytes
        return states


class Student:
    """A drafter in training: float32 parameters, bfloat16 arithmetic if the target is in bfloat16."""

    def __init__(self, target: PreTrainedModel, source_layers: Sequence[int], weights: DrafterWeights) -> None:
        """Build the student around the target's embedding and head; ``weights`` are trained in place."""
        text: PretrainedConfig = target.config.get_text_config(decoder=True)
        embedding, head = input_embedding(target), output_head(target)
        self.model: Any = build_drafter(
            drafter_config(text, tuple(source_layers)),
            weights,
            embedding.float(),
            None if head.data_ptr() == embedding.data_ptr() else head.float(),
        )
        self._body: Any = self.model.base_model
        self._projection: Any = self.model.lm_head[0]
        self._half = target.dtype == torch.bfloat16

    def parameters(self) -> dict[str, torch.nn.Parameter]:
        named = {f"layers.{name}": value for name, value in self._body.layers.named_parameters()}
        return {**named, "norm": self._body.norm.weight, "projection": self._projection.weight}

    def weights(self) -> DrafterWeights:
        layers = {name: value.detach() for name, value in self._body.layers.state_dict().items()}
        return DrafterWeights(layers, self._body.norm.weight.detach(), self._projection.weight.detach().T)

    def body_states(self, traces: Sequence[Trace]) -> tuple[torch.Tensor, torch.Tensor]:
        """Final-norm states ``[traces, longest, hidden]``, and the mask of positions that predict an output token."""
        longest = max(len(trace.prompt_ids) + len(trace.output_ids) for trace in traces)
        ids = torch.zeros(len(traces), longest, dtype=torch.long)
        real, predicts = torch.zeros_like(ids), torch.zeros_like(ids, dtype=torch.bool)
        for row, trace in enumerate(traces):
            tokens = trace.prompt_ids + trace.output_ids
            ids[row, : len(tokens)] = torch.tensor(tokens)
            real[row, : len(tokens)] = 1
            predicts[row, len(trace.prompt_ids) - 1 : len(tokens) - 1] = True
        device = self._projection.weight.device
        with torch.autocast(device.type, torch.bfloat16, enabled=self._half):
            states: torch.Tensor = self._body(
                input_ids=ids.to(device), attention_mask=real.to(device), use_cache=False
            ).last_hidden_state
        return states.float(), predicts.to(device)

    def predicted_hidden(self, traces: Sequence[Trace]) -> torch.Tensor:
        """``[N, hidden]``: projected states at the N positions that predict an output token."""
        states, predicts = self.body_states(traces)
        projected: torch.Tensor = self._projection(states[predicts])
        return projected

    @torch.no_grad()
    def fit_projection(self, traces: Sequence[Trace], teacher: Teacher) -> None:
        """Fit the projection by ridge regression of the target's final states on the student's, at all positions."""
        hidden = self._projection.weight.shape[0]
        gram = torch.zeros(hidden, hidden, device=self._projection.weight.device)
        cross = torch.zeros_like(gram)
        for trace in traces:
            states = self.body_states([trace])[0][0]
            gram += states.T @ states
            cross += states.T @ teacher.hidden(trace).float()
        ridge = torch.eye(hidden, device=gram.device) * gram.diagonal().mean() * _RIDGE
        self._projection.weight.copy_(torch.linalg.solve(gram + ridge, cross).T)


def distillation_loss(
    predicted: torch.Tensor, target_hidden: torch.Tensor, head: torch.Tensor, hidden_weight: float
) -> torch.Tensor:
    """Mean KL(target || student) over the rows of ``head``, plus a weighted smooth L1 between hidden states.

    Args:
        predicted: ``[N, hidden]`` float32, the student's projected states.
        target_hidden: ``[N, hidden]`` float32.
        head: ``[K, hidden]`` float32, the target's head rows of the frequent tokens; both distributions are
            renormalised over them.
        hidden_weight: of the smooth L1 term.
    """
    target_logs = log_softmax(target_hidden @ head.T, -1)
    student_logs = log_softmax(predicted @ head.T, -1)
    divergence = (target_logs.exp() * (target_logs - student_logs)).sum(-1).mean()
    return divergence + hidden_weight * smooth_l1_loss(predicted, target_hidden)


def predicting_rows(teacher: Teacher, traces: Sequence[Trace]) -> torch.Tensor:
    """``[N, hidden]`` float32: the target's states at the positions ``Student.predicted_hidden`` returns."""
    return torch.cat([teacher.hidden(t)[len(t.prompt_ids) - 1 : -1] for t in traces]).float()


def take_step(optimizer: torch.optim.Optimizer, loss: torch.Tensor, rate: float) -> float:
    """Take one optimiser step with gradients clipped to norm 1; return the loss."""
    optimizer.zero_grad()
    loss.backward()  # type: ignore[no-untyped-call]
    for group in optimizer.param_groups:
        group["lr"] = rate
        torch.nn.utils.clip_grad_norm_(group["params"], 1.0)
    optimizer.step()
    return loss.item()

"""Acceptance of a drafter, measured token by token along its target's own responses.

At each output position both models see the true prefix, so this is token acceptance: given that all tokens before
were accepted. Windows, protocols and engines play no part.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from outrider.models.loading import LoadedModel
from outrider.models.model_classes import PreTrainedModel
from outrider.sampling.noise import Purpose, gumbel_noise
from outrider.training.traces import Trace


@dataclass(frozen=True, slots=True)
class AcceptanceReport:
    """Shares of output tokens; None where there was no trace to measure it on."""

    greedy: float | None  # drafter's argmax equals the target's, on traces of temperature 0
    # mean of sum(min(target_probs, draft_probs)), on traces of temperature 1: what ratio sampling accepts
    overlap: float | None
    shared_noise: float | None  # both draw the same token from the same noise, on traces of temperature 1


@torch.inference_mode()
def evaluate_acceptance(target: LoadedModel, drafter: PreTrainedModel, traces: Sequence[Trace]) -> AcceptanceReport:
    """Measure a drafter on its target's traces; traces at temperatures other than 0 and 1 are skipped.

    ``traces`` are held out from the drafter's training (``training.traces.split_traces``).
    """
    greedy, sampled = ([trace for trace in traces if trace.temperature == kind] for kind in (0.0, 1.0))
    same_argmax: list[torch.Tensor] = []
    overlaps: list[torch.Tensor] = []
    same_draw: list[torch.Tensor] = []
    for trace in greedy:
        theirs, ours = (_logits(model, trace, target.vocab_size) for model in (target.model, drafter))
        same_argmax.append((theirs.argmax(-1) == ours.argmax(-1)).float())
    for seed, trace in enumerate(sampled):
        theirs, ours = (_logits(model, trace, target.vocab_size).log_softmax(-1) for model in (target.model, drafter))
        overlaps.append(torch.minimum(theirs, ours).exp().sum(-1))
        positions = range(len(trace.prompt_ids), len(trace.prompt_ids) + len(trace.output_ids))
        rows = [gumbel_noise(seed, position, Purpose.TARGET_TOKEN, target.vocab_size) for position in positions]
        noise = torch.from_numpy(np.stack(rows))
        same_draw.append(((theirs + noise).argmax(-1) == (ours + noise).argmax(-1)).float())
    return AcceptanceReport(
        greedy=_mean(same_argmax),
        overlap=_mean(overlaps),
        shared_noise=_mean(same_draw),
    )


def _logits(model: PreTrainedModel, trace: Trace, vocab_size: int) -> torch.Tensor:
    """``[len(output), vocab]`` float32 on the CPU: rows that predict the output tokens."""
    ids = torch.tensor([trace.prompt_ids + trace.output_ids], device=model.device)
    rows = torch.arange(len(trace.prompt_ids) - 1, ids.shape[1] - 1, device=model.device)
    logits: torch.Tensor = model(input_ids=ids, logits_to_keep=rows, use_cache=False).logits
    return logits[0, :, :vocab_size].float().cpu()


def _mean(parts: list[torch.Tensor]) -> float | None:
    return torch.cat(parts).mean().item() if parts else None

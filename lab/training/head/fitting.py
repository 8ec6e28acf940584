"""Fit a head to examples: binary cross-entropy with balanced classes, dropout, weight decay, early stopping.

Seeded; on a CPU with a fixed number of threads the result is the same to the bit.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

from lab.training.head.examples import Examples
from outrider.contracts.exchanged import FloatRow
from outrider.verification.decision_head import HeadWeights, Standard, link_inputs

_LEAST_DEVIATION = 1e-3  # relative to the mean deviation of its kind


@dataclass(frozen=True, slots=True)
class FitConfig:
    hidden: int = 64  # units
    dropout: float = 0.5
    learning_rate: float = 1e-4
    weight_decay: float = 0.1
    batch: int = 256  # examples per step
    epochs: int = 100  # upper limit
    patience: int = 6  # stop after this many epochs without a lower validation loss
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Fit:
    """Result of a fit; losses are class-balanced cross-entropies in nats."""

    weights: HeadWeights
    epochs: int  # run
    best_epoch: int  # the epoch of the kept parameters, from 1
    train_loss: float  # of that epoch, with dropout
    validation_loss: float


class HeadModule(nn.Module):
    """``[N, width]`` standardised inputs to ``[N]`` logits (WISV eq. 24 and 25)."""

    def __init__(self, width: int, hidden: int, dropout: float) -> None:
        super().__init__()
        self.inner = nn.Linear(width, hidden)
        self.dropout = nn.Dropout(dropout)
        self.outer = nn.Linear(hidden, 1)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.outer(self.dropout(torch.relu(self.inner(x))))
        return logits[:, 0]


def standard_of(numbers: npt.NDArray[np.floating]) -> Standard:
    """Means and floored deviations of ``[M, d]``: a feature that hardly varies in training must not be magnified."""
    wide = numbers.astype(np.float64)
    deviation = wide.std(0)
    floor = max(_LEAST_DEVIATION * float(deviation.mean()), 1e-6)
    return Standard(wide.mean(0), np.maximum(deviation, floor))


def fit(train: Examples, validation: Examples, config: FitConfig) -> Fit:
    """Train on ``train``; keep the parameters with the lowest loss on ``validation``."""
    standards = standard_of(train.hidden.drafter), standard_of(train.hidden.target), standard_of(train.links)
    own, held_out = (_HeadInputs(part, standards) for part in (train, validation))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        module = HeadModule(own.width, config.hidden, config.dropout)
        best = _trained(module, own, held_out, config)
    inner, outer = module.inner, module.outer
    weights = HeadWeights(
        drafter=standards[0],
        target=standards[1],
        csi=standards[2],
        inner=_numbers(inner.weight),
        inner_bias=_numbers(inner.bias),
        outer=_numbers(outer.weight[0]),
        outer_bias=float(outer.bias.detach()[0]),
    )
    return Fit(weights, *best)


class _HeadInputs:
    """Standardised inputs and class-balanced weights; a mismatch's inputs are stored once for all its links."""

    def __init__(self, part: Examples, standards: tuple[Standard, Standard, Standard]) -> None:
        drafter, target, csi = standards
        states = np.concatenate([drafter(_wide(part.hidden.drafter)), target(_wide(part.hidden.target))], 1)
        self._states, self._links = (
            torch.from_numpy(each.astype(np.float32)) for each in (states, link_inputs(csi, part.links))
        )
        self._mismatch, self._link = torch.from_numpy(part.mismatch), torch.from_numpy(part.link)
        self._labels = torch.from_numpy(part.labels.astype(np.float32))
        share = float(self._labels.mean())
        self._weights = torch.where(self._labels > 0, 0.5 / max(share, 1e-6), 0.5 / max(1.0 - share, 1e-6))

    def __len__(self) -> int:
        return len(self._labels)

    @property
    def width(self) -> int:
        return self._states.shape[1] + self._links.shape[1]

    def loss(self, module: HeadModule, rows: Tensor) -> Tensor:
        x = torch.cat([self._states[self._mismatch[rows]], self._links[self._link[rows]]], 1)
        return binary_cross_entropy_with_logits(module(x), self._labels[rows], weight=self._weights[rows])


def _trained(
    module: HeadModule, own: _HeadInputs, held_out: _HeadInputs, config: FitConfig
) -> tuple[int, int, float, float]:
    """Leave the best parameters in the module; return the epochs and losses of ``Fit``."""
    optimizer = torch.optim.AdamW(
        [
            {"params": [module.inner.weight, module.outer.weight], "weight_decay": config.weight_decay},
            {"params": [module.inner.bias, module.outer.bias], "weight_decay": 0.0},
        ],
        lr=config.learning_rate,
    )
    best, kept = (0, np.inf, np.inf), module.state_dict()
    epoch = 0
    for epoch in range(1, config.epochs + 1):
        module.train()
        losses = []
        for rows in torch.split(torch.randperm(len(own)), config.batch):
            optimizer.zero_grad()
            loss = own.loss(module, rows)
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            losses.append(loss.item())
        module.eval()
        with torch.no_grad():
            found = held_out.loss(module, torch.arange(len(held_out))).item()
        if found < best[2]:
            best = epoch, float(np.mean(losses)), found
            kept = {name: values.clone() for name, values in module.state_dict().items()}
        elif epoch - best[0] >= config.patience:
            break
    module.load_state_dict(kept)
    return epoch, *best


def _wide(numbers: FloatRow) -> npt.NDArray[np.float64]:
    return numbers.astype(np.float64)


def _numbers(values: Tensor) -> npt.NDArray[np.float64]:
    return values.detach().numpy().astype(np.float64)

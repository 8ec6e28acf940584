"""WISP's perceptron: balanced classes, early stopping, and a seeded random search over the dimensions of its Table 9.

On a CPU with a fixed number of threads the result is the same to the bit.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

from lab.training.predictor.drafted import DraftedTokens, Floats
from lab.training.predictor.logistic import Platt
from outrider.drafting.features import FEATURE_NAMES
from outrider.drafting.perceptron import Perceptron, PerceptronLayer

# WISP table 9.
_HIDDEN = ((64, 32), (128, 64), (256, 128, 64), (512, 128, 64))
_LEARNING_RATES = 1e-5, 1e-3
_BATCHES = (32, 64, 128, 256)
_MOST_DROPOUT = 0.3


@dataclass(frozen=True, slots=True)
class MlpSettings:
    hidden: tuple[int, ...] = (512, 128, 64)
    learning_rate: float = 1e-3  # of Adam
    batch: int = 128
    dropout: float = 0.1
    batch_norm: bool = False


@dataclass(frozen=True, slots=True)
class EarlyStopping:
    epochs: int = 60  # upper limit
    patience: int = 6  # stop after this many epochs without a lower validation loss


@dataclass(frozen=True, slots=True, eq=False)
class MlpFit:
    """Result of a fit; the loss is a class-balanced cross-entropy in nats."""

    settings: MlpSettings
    perceptron: Perceptron
    epochs: int  # run
    best_epoch: int  # the epoch of the kept parameters, from 1
    validation_loss: float


def drawn_settings(seed: int, trials: int) -> list[MlpSettings]:
    rng = np.random.default_rng(seed)
    low, high = map(math.log, _LEARNING_RATES)
    return [
        MlpSettings(
            hidden=_HIDDEN[rng.integers(len(_HIDDEN))],
            learning_rate=math.exp(rng.uniform(low, high)),
            batch=_BATCHES[rng.integers(len(_BATCHES))],
            dropout=float(rng.uniform(0.0, _MOST_DROPOUT)),
            batch_norm=bool(rng.integers(2)),
        )
        for _ in range(trials)
    ]


def search_mlp(
    train: DraftedTokens,
    validation: DraftedTokens,
    *,
    trials: int,
    patience: EarlyStopping,
    seed: int,
    on_fitted: Callable[[MlpFit], None] = lambda _fit: None,
) -> MlpFit:
    """Return the fit with the lowest validation loss."""
    best: MlpFit | None = None
    for settings in drawn_settings(seed, trials):
        found = fit_mlp(train, validation, settings, patience, seed)
        on_fitted(found)
        if best is None or found.validation_loss < best.validation_loss:
            best = found
    assert best is not None, "at least one trial"
    return best


def fit_mlp(
    train: DraftedTokens, validation: DraftedTokens, settings: MlpSettings, patience: EarlyStopping, seed: int
) -> MlpFit:
    """Train on one part; keep the parameters with the lowest loss on the other."""
    mean, deviation = train.features.mean(0), np.maximum(train.features.std(0), 1e-6)
    own, held_out = (_PredictorInputs(part, mean, deviation) for part in (train, validation))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        module = _Module(settings)
        epochs, best_epoch, loss = _train(module, own, held_out, settings, patience)
    return MlpFit(settings, Perceptron(module.layers(mean, deviation)), epochs, best_epoch, loss)


def calibrated(perceptron: Perceptron, platt: Platt) -> Perceptron:
    """Fold Platt scaling into the perceptron: its probabilities become ``platt``'s of its scores."""
    *inner, (weights, bias) = perceptron.layers
    outer = weights.astype(np.float64) * platt.slope, bias.astype(np.float64) * platt.slope + platt.offset
    return Perceptron([*inner, (outer[0].astype(np.float32), outer[1].astype(np.float32))])


class _Module(nn.Module):
    """``[N, 4]`` standardised features to ``[N]`` logits."""

    def __init__(self, settings: MlpSettings) -> None:
        super().__init__()
        widths = [len(FEATURE_NAMES), *settings.hidden]
        self._linears = [nn.Linear(*pair) for pair in pairwise(widths)]
        self._norms = [nn.BatchNorm1d(width) if settings.batch_norm else None for width in settings.hidden]
        self._outer = nn.Linear(widths[-1], 1)
        self.inner = nn.ModuleList([*self._linears, *(norm for norm in self._norms if norm is not None)])
        self.dropout = nn.Dropout(settings.dropout)

    def forward(self, x: Tensor) -> Tensor:
        for linear, norm in zip(self._linears, self._norms, strict=True):
            x = linear(x)
            x = self.dropout(torch.relu(x if norm is None else norm(x)))
        logits: Tensor = self._outer(x)
        return logits[:, 0]

    def layers(self, mean: Floats, deviation: Floats) -> list[PerceptronLayer]:
        """The same network on raw features, with standardisation and batch norm folded in: both are linear.

        Weights between units are rounded to the float16 that a file keeps them in.
        """
        found: list[tuple[Floats, Floats]] = []
        for linear, norm in zip(self._linears, self._norms, strict=True):
            weights, bias = _numbers(linear.weight), _numbers(linear.bias)
            if norm is not None and norm.running_mean is not None and norm.running_var is not None:
                scale: Floats = _numbers(norm.weight) / np.sqrt(_numbers(norm.running_var) + norm.eps)
                weights = weights * scale[:, None]
                bias = (bias - _numbers(norm.running_mean)) * scale + _numbers(norm.bias)
            found.append((weights, bias))
        first, bias = found[0]
        found[0] = first / deviation, bias - (first / deviation) @ mean
        found = [(weights.astype(np.float16).astype(np.float64), bias) for weights, bias in found]
        found.append((_numbers(self._outer.weight), _numbers(self._outer.bias)))
        return [(weights.astype(np.float32), bias.astype(np.float32)) for weights, bias in found]


class _PredictorInputs:
    """Standardised features, labels and class-balanced weights of a part."""

    def __init__(self, part: DraftedTokens, mean: Floats, deviation: Floats) -> None:
        self._x = torch.from_numpy(((part.features - mean) / deviation).astype(np.float32))
        self._labels = torch.from_numpy(part.accepted.astype(np.float32))
        share = float(self._labels.mean())
        self._weights = torch.where(self._labels > 0, 0.5 / max(share, 1e-6), 0.5 / max(1.0 - share, 1e-6))

    def __len__(self) -> int:
        return len(self._labels)

    def loss(self, module: _Module, rows: Tensor) -> Tensor:
        return binary_cross_entropy_with_logits(module(self._x[rows]), self._labels[rows], weight=self._weights[rows])


def _train(
    module: _Module, own: _PredictorInputs, held_out: _PredictorInputs, settings: MlpSettings, patience: EarlyStopping
) -> tuple[int, int, float]:
    """Leave the best parameters in the module; return epochs run, the best one and its validation loss."""
    optimizer = torch.optim.Adam(module.parameters(), lr=settings.learning_rate)
    best, kept = (0, math.inf), module.state_dict()
    epoch = 0
    for epoch in range(1, patience.epochs + 1):
        module.train()
        for rows in torch.split(torch.randperm(len(own)), settings.batch):
            if len(rows) == 1 and settings.batch_norm:
                continue  # batch norm has no deviation of a single token
            optimizer.zero_grad()
            loss = own.loss(module, rows)
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
        module.eval()
        with torch.no_grad():
            found = held_out.loss(module, torch.arange(len(held_out))).item()
        if found < best[1]:
            best = epoch, found
            kept = {name: values.clone() for name, values in module.state_dict().items()}
        elif epoch - best[0] >= patience.patience:
            break
    module.load_state_dict(kept)
    return epoch, *best


def _numbers(values: Tensor) -> Floats:
    numbers: Floats = values.detach().numpy().astype(np.float64)
    return numbers

"""Configuration of a decision head's training."""

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from lab.training.head.fitting import FitConfig
from lab.training.head.importance import Smoothing
from lab.training.head.relabelling import Relabelling
from lab.training.head.replacing import Sampling
from lab.training.pair_config import PairConfig
from outrider.contracts.errors import ParameterError
from outrider.contracts.exchanged import FloatField
from outrider.protocols.hidden_states import STATE_FIELDS

UNRELABELLED = "none"
_RANGES = (("least_repair_share", 0.01, 1.0), ("dropout", 0.0, 0.99), ("weight_decay", 0.0, 10.0))
_CHOICES = {
    "relabelling": [*map(str, Smoothing), UNRELABELLED],
    "hidden_field": [field.value for field in STATE_FIELDS],
}
_THRESHOLDS = (0.0, 0.03, 0.05, 0.07, 0.09, 0.12, 0.15, 0.2, 0.3, 0.5, 0.7, 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadConfig(PairConfig):
    counts: ClassVar[tuple[str, ...]] = (
        "max_new_tokens",
        "mismatches_per_task",
        "least_mismatches",
        "least_calibration_tasks",
        "batch",
        "links_per_answer",
        "hidden",
        "epochs",
        "patience",
        "window_tokens",
    )
    labels: Path | None = None  # label file to read or create; None: beside ``out``
    max_new_tokens: int = 224  # length limit of an answer
    mismatches_per_task: int | None = 16  # upper limit, a seeded sample; None: all
    least_mismatches: int = 200  # with fewer, training is refused
    least_calibration_tasks: int = 80  # with fewer, training is refused: no threshold could be chosen
    batch: int = 96  # texts generated at once
    relabelling: str = Smoothing.SUM.value  # how importance is smoothed: ``sum``, ``max``, or ``none``: no relabelling
    kappa: float = 2.0  # mismatches over which importance falls to 1 / e
    least_repair_share: float = 0.7  # of the critical mismatches, on the worst link
    temperature: float = 0.25  # of the relabelling policy, in units of importance
    links_per_answer: int = 8  # links that each answer is repeated under
    hidden: int = 64  # units of the head
    dropout: float = 0.5
    learning_rate: float = 1e-4
    weight_decay: float = 0.1
    epochs: int = 100  # upper limit
    patience: int = 6  # epochs without a lower validation loss
    hidden_field: str = FloatField.FP16.value  # of drafters' states in training: ``wire.hidden_field`` in service
    window_tokens: int = 24  # draft tokens per round when thresholds are compared
    thresholds: tuple[float, ...] = _THRESHOLDS  # ascending from 0: compared on the calibration tasks
    most_drop: float = 0.01  # mean score that the chosen threshold may cost

    def __post_init__(self) -> None:
        PairConfig.__post_init__(self)
        for field in ("kappa", "temperature", "learning_rate", "most_drop"):
            if not (value := getattr(self, field)) > 0:
                raise ParameterError(field, "a number > 0", value)
        self._check_ranges()
        rising = list(self.thresholds) == sorted(set(self.thresholds))
        if not rising or not self.thresholds or self.thresholds[0] != 0.0 or self.thresholds[-1] > 1.0:
            raise ParameterError("thresholds", "numbers that rise from 0 to at most 1", self.thresholds)

    def _check_ranges(self) -> None:
        for field, least, most in _RANGES:
            if not least <= (value := getattr(self, field)) <= most:
                raise ParameterError(field, f"a number in {least:g}..{most:g}", value)
        for field, allowed in _CHOICES.items():
            if (name := getattr(self, field)) not in allowed:
                raise ParameterError(field, f"one of {', '.join(allowed)}", name)

    @property
    def sampling(self) -> Sampling:
        """Which mismatches are tried."""
        return Sampling(self.mismatches_per_task, self.seed)

    @property
    def policy(self) -> Relabelling:
        return Relabelling(self.least_repair_share, self.temperature)

    @property
    def fitting(self) -> FitConfig:
        return FitConfig(
            hidden=self.hidden,
            dropout=self.dropout,
            learning_rate=self.learning_rate,
            weight_decay=self.weight_decay,
            epochs=self.epochs,
            patience=self.patience,
            seed=self.seed,
        )

    @property
    def label_file(self) -> Path:
        return self.out.with_suffix(".labels.jsonl") if self.labels is None else self.labels

"""Configuration of a decision head's training."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from lab.training.head.fitting import FitConfig
from lab.training.head.relabelling import Smoothing
from lab.training.head.replacing import Sampling
from lab.training.pair_config import PairConfig, numbers
from outrider.contracts.errors import ParameterError
from outrider.contracts.exchanged import FloatField
from outrider.protocols.hidden_states import STATE_FIELDS

UNRELABELLED = "none"
_CHOICES = {
    "relabelling": [*map(str, Smoothing), UNRELABELLED],
    "hidden_field": [field.value for field in STATE_FIELDS],
}
_THRESHOLDS = (0.0, 0.03, 0.05, 0.07, 0.09, 0.12, 0.15, 0.2, 0.3, 0.5, 0.7, 1.0)


def _count_or_all(text: str) -> int | None:
    return None if text == "all" else int(text)


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadConfig(PairConfig):
    labels: Annotated[Path | None, "label file to read or create (default: beside --out)"] = None
    max_new_tokens: Annotated[int, "length limit of an answer"] = 224
    mismatches_per_task: Annotated[
        int | None, "limit of tried mismatches, a seeded sample; all: every one", _count_or_all
    ] = 16
    least_mismatches: Annotated[int, "with fewer, training is refused"] = 200
    least_calibration_tasks: Annotated[int, "with fewer, training is refused: no threshold could be chosen"] = 80
    batch: Annotated[int, "texts generated at once"] = 96
    relabelling: Annotated[str, "how importance is smoothed, sum or max; none: the same labels on every link"] = (
        Smoothing.SUM.value
    )
    least_repair_share: Annotated[float, "of the critical mismatches, repaired on the worst link"] = 0.7
    links_per_answer: Annotated[int, "links that each answer is repeated under"] = 8
    hidden: Annotated[int, "units of the head"] = 64
    dropout: Annotated[float, "share of the units"] = 0.5
    learning_rate: Annotated[float, "of AdamW"] = 1e-4
    epochs: Annotated[int, "of a fit, upper limit"] = 100
    patience: Annotated[int, "stop after this many epochs without a lower validation loss"] = 6
    hidden_field: Annotated[str, "of drafters' hidden states on the link: fp32, fp16 or int8, as the service's"] = (
        FloatField.FP16.value
    )
    window_tokens: Annotated[int, "draft tokens per round when thresholds are compared"] = 24
    thresholds: Annotated[tuple[float, ...], "to compare, ascending from 0, separated by commas", numbers] = _THRESHOLDS
    most_drop: Annotated[float, "mean score that the chosen threshold may cost"] = 0.01

    def __post_init__(self) -> None:
        PairConfig.__post_init__(self)
        for field in ("learning_rate", "most_drop"):
            if not (value := getattr(self, field)) > 0:
                raise ParameterError(field, "a number > 0", value)
        for field, least, most in (("least_repair_share", 0.01, 1.0), ("dropout", 0.0, 0.99)):
            if not least <= (value := getattr(self, field)) <= most:
                raise ParameterError(field, f"a number in {least:g}..{most:g}", value)
        for field, allowed in _CHOICES.items():
            if (name := getattr(self, field)) not in allowed:
                raise ParameterError(field, f"one of {', '.join(allowed)}", name)
        rising = list(self.thresholds) == sorted(set(self.thresholds))
        if not rising or not self.thresholds or self.thresholds[0] != 0.0 or self.thresholds[-1] > 1.0:
            raise ParameterError("thresholds", "numbers that rise from 0 to at most 1", self.thresholds)

    @property
    def sampling(self) -> Sampling:
        return Sampling(self.mismatches_per_task, self.seed)

    @property
    def fitting(self) -> FitConfig:
        return FitConfig(
            hidden=self.hidden,
            dropout=self.dropout,
            learning_rate=self.learning_rate,
            epochs=self.epochs,
            patience=self.patience,
            seed=self.seed,
        )

    @property
    def label_file(self) -> Path:
        return self.out.with_suffix(".labels.jsonl") if self.labels is None else self.labels

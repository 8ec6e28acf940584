"""Configuration of an acceptance predictor's training."""

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from lab.training.pair_config import PairConfig
from lab.training.predictor.families import SearchEffort
from lab.training.predictor.mlp import EarlyStopping
from outrider.contracts.errors import ParameterError
from outrider.contracts.requests import SAMPLING_RANGES
from outrider.contracts.verifying import AcceptanceRule
from outrider.drafting.acceptance import PREDICTED_RULES

_GREEDY, _SAMPLED = (0.0,), (0.7, 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictorConfig(PairConfig):
    counts: ClassVar[tuple[str, ...]] = (
        "most_prompts",
        "max_new_tokens",
        "window_tokens",
        "batch",
        "least_tokens",
        "trials",
        "epochs",
        "patience",
        "latency_calls",
    )
    rule: str  # acceptance rule: greedy, shared_noise or ratio
    # Folders of device logs; or one file, *.safetensors, of tokens verified here: read if it exists, else written.
    rounds: tuple[Path, ...] = ()  # empty: a file beside ``out``
    prompts: Path | None = None  # text file, one prompt a line; None: the built-in ones no drafter was trained on
    most_prompts: int | None = None  # the first so many; None: all
    temperatures: tuple[float, ...] | None = None  # of requests; None: 0 if greedy, else 0.7 and 1
    max_new_tokens: int = 96  # length limit of a response
    window_tokens: int = 8  # draft tokens per round
    batch: int = 32  # responses generated at once
    least_tokens: int = 2000  # verified draft tokens; with fewer, training is refused
    trials: int = 12  # settings tried of each kind of model
    epochs: int = 60  # of the perceptron, upper limit
    patience: int = 6  # epochs without a lower validation loss
    latency_calls: int = 1000  # of each kind, timed one by one

    def __post_init__(self) -> None:
        PairConfig.__post_init__(self)
        if self.rule not in PREDICTED_RULES:
            raise ParameterError("rule", f"one of {', '.join(PREDICTED_RULES)}", self.rule)
        if self.logged:
            for name in ("prompts", "most_prompts", "temperatures"):
                if (value := getattr(self, name)) is not None:
                    raise ParameterError(name, "to be left out with logged rounds", value)
        asked = self.asked_temperatures
        if not asked or len(set(asked)) < len(asked):
            raise ParameterError("temperatures", "at least one, and each once", asked)
        for temperature in asked:
            SAMPLING_RANGES["temperature"].check("temperatures", temperature)
            if (temperature == 0.0) != (self.rule == AcceptanceRule.GREEDY):
                fitting = "0" if self.rule == AcceptanceRule.GREEDY else "numbers above 0"
                raise ParameterError("temperatures", f"{fitting} for the rule {self.rule}", temperature)

    @property
    def acceptance_rule(self) -> AcceptanceRule:
        """The rule that rounds are verified by."""
        return AcceptanceRule(self.rule)

    @property
    def asked_temperatures(self) -> tuple[float, ...]:
        """Temperatures that responses are generated at."""
        if self.temperatures is not None:
            return self.temperatures
        return _GREEDY if self.rule == AcceptanceRule.GREEDY else _SAMPLED

    @property
    def logged(self) -> bool:
        """Whether rounds were logged by devices."""
        return bool(self.rounds) and [file.suffix for file in self.rounds] != [".safetensors"]

    @property
    def effort(self) -> SearchEffort:
        return SearchEffort(self.trials, EarlyStopping(self.epochs, self.patience), self.seed)

    @property
    def rounds_file(self) -> Path:
        """File of the tokens verified here."""
        return self.rounds[0] if self.rounds else self.out.with_suffix(".rounds.safetensors")

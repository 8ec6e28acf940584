"""Configuration of an acceptance predictor's training."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from lab.training.pair_config import PairConfig, numbers
from lab.training.predictor.families import SearchEffort
from lab.training.predictor.mlp import EarlyStopping
from outrider.contracts.errors import ParameterError
from outrider.contracts.requests import SAMPLING_RANGES
from outrider.contracts.verifying import AcceptanceRule
from outrider.drafting.acceptance import PREDICTED_RULES

_GREEDY, _SAMPLED = (0.0,), (0.7, 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictorConfig(PairConfig):
    rule: Annotated[str, "acceptance rule: greedy, shared_noise or ratio"]
    rounds: Annotated[
        tuple[Path, ...],
        "folders of device logs; or one .safetensors file of examples to read or create (default: beside --out)",
    ] = ()
    prompts: Annotated[Path | None, "text file, one prompt a line (default: built-in ones unused in distillation)"] = (
        None
    )
    most_prompts: Annotated[int | None, "use only the first so many"] = None
    temperatures: Annotated[
        tuple[float, ...] | None, "separated by commas (default: 0 if greedy, else 0.7 and 1)", numbers
    ] = None
    max_new_tokens: Annotated[int, "length limit of a response"] = 96
    window_tokens: Annotated[int, "draft tokens per round"] = 8
    batch: Annotated[int, "responses generated at once"] = 32
    least_tokens: Annotated[int, "verified draft tokens; with fewer, training is refused"] = 2000
    trials: Annotated[int, "settings tried of each kind of model"] = 12
    epochs: Annotated[int, "of the perceptron, upper limit"] = 60
    patience: Annotated[int, "stop after this many epochs without a lower validation loss"] = 6
    latency_calls: Annotated[int, "of each kind, timed one by one"] = 1000

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
        return AcceptanceRule(self.rule)

    @property
    def asked_temperatures(self) -> tuple[float, ...]:
        if self.temperatures is not None:
            return self.temperatures
        return _GREEDY if self.rule == AcceptanceRule.GREEDY else _SAMPLED

    @property
    def logged(self) -> bool:
        return bool(self.rounds) and [file.suffix for file in self.rounds] != [".safetensors"]

    @property
    def effort(self) -> SearchEffort:
        return SearchEffort(self.trials, EarlyStopping(self.epochs, self.patience), self.seed)

    @property
    def rounds_file(self) -> Path:
        return self.rounds[0] if self.rounds else self.out.with_suffix(".rounds.safetensors")

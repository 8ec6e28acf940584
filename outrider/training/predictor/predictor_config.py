"""All that a predictor's training can be told."""

from dataclasses import asdict, dataclass
from pathlib import Path

from outrider.contracts.errors import ParameterError
from outrider.contracts.requests import SAMPLING_RANGES
from outrider.contracts.verifying import AcceptanceRule
from outrider.training.head.pair import PairSpec
from outrider.training.predictor.families import Effort
from outrider.training.predictor.mlp import Patience
from outrider.training.predictor.rounds import RULES

_COUNTS = (
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
_GREEDY, _SAMPLED = (0.0,), (0.7, 1.0)


@dataclass(frozen=True, slots=True)
class PredictorConfig:
    """One training of a predictor of acceptance."""

    target: str  # name or path
    drafter: str  # name, path, or a file made by ``outrider distill``
    rule: str  # of acceptance: greedy, shared_noise or ratio
    out: Path  # file to write, ``*.safetensors``. Rounds and the report lie beside it under its name
    rounds: Path | None = None  # tokens verified before, or to be kept there; None: beside ``out``
    prompts: Path | None = None  # text file, one prompt a line; None: the built-in ones no drafter was trained on
    most_prompts: int | None = None  # of these, in order; None: all
    temperatures: tuple[float, ...] | None = None  # of requests; None: 0 if greedy, else 0.7 and 1
    max_new_tokens: int = 96  # length limit of a response
    window_tokens: int = 8  # drafted a round
    batch: int = 32  # responses written at once
    least_tokens: int = 2000  # verified draft tokens, without which there is no training
    trials: int = 12  # settings tried of each kind of model
    epochs: int = 60  # of the perceptron, at most
    patience: int = 6  # epochs without a lower validation loss
    latency_calls: int = 1000  # of each kind, timed one by one
    seed: int = 0
    dtype: str = "auto"  # of the target
    drafter_dtype: str = "auto"
    device: str = "cpu"  # a torch device
    threads: int | None = None  # CPU threads of torch; None leaves them

    def __post_init__(self) -> None:
        """Refuse what cannot be run."""
        for field in _COUNTS:
            if (count := getattr(self, field)) is not None and count < 1:
                raise ParameterError(field, "an integer >= 1", count)
        if self.rule not in RULES:
            raise ParameterError("rule", f"one of {', '.join(RULES)}", self.rule)
        if self.out.suffix != ".safetensors":
            raise ParameterError("out", "a file name ending in .safetensors", str(self.out))
        asked = self.asked_temperatures
        if not asked or len(set(asked)) < len(asked):
            raise ParameterError("temperatures", "at least one, and each once", asked)
        for temperature in asked:
            SAMPLING_RANGES["temperature"].check("temperatures", temperature)
            if (temperature == 0.0) != (self.rule == AcceptanceRule.GREEDY):
                fitting = "0" if self.rule == AcceptanceRule.GREEDY else "numbers above 0"
                raise ParameterError("temperatures", f"{fitting} for the rule {self.rule}", temperature)

    @property
    def pair(self) -> PairSpec:
        """Which models."""
        return PairSpec(self.target, self.drafter, self.dtype, self.drafter_dtype, self.device)

    @property
    def acceptance_rule(self) -> AcceptanceRule:
        """By which rounds are verified."""
        return AcceptanceRule(self.rule)

    @property
    def asked_temperatures(self) -> tuple[float, ...]:
        """At which responses are written."""
        if self.temperatures is not None:
            return self.temperatures
        return _GREEDY if self.rule == AcceptanceRule.GREEDY else _SAMPLED

    @property
    def effort(self) -> Effort:
        """How much is tried."""
        return Effort(self.trials, Patience(self.epochs, self.patience), self.seed)

    @property
    def rounds_file(self) -> Path:
        """Where verified tokens are kept."""
        return self.out.with_suffix(".rounds.safetensors") if self.rounds is None else self.rounds

    def plain(self) -> dict[str, object]:
        """For reports."""
        return {name: str(value) if isinstance(value, Path) else value for name, value in asdict(self).items()}

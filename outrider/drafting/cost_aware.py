"""Drafting on while one more token is worth what it costs: the expected gain against a price that came with the order.

A token at depth k brings its survival, the probability that it is accepted with all before it. What it costs is another
matter than how sure the model is: a row of the verifier's step, and of the device a pass for the row behind it. A stop
on predicted rejection knows neither. It ends a draft on a token that is rejected more often than not where rows are
nearly free, and goes on with a good one whose row nobody can pay.

Two prices, as there are two things to decide at a position. Its row was computed already, so to send its token costs
the verifier's row alone; to go on behind it costs the device's next step as well. Survival only falls along a chain, so
what is not worth it now is worth it no more later: looking one token ahead is enough.
"""

from dataclasses import dataclass
from math import log2
from typing import ClassVar

from outrider.contracts.errors import ParameterError
from outrider.drafting.acceptance import AcceptancePredictor
from outrider.drafting.features import DraftFeatures
from outrider.drafting.stops import Step

PRICE_LEVELS = 32  # of one price in a message: 2^0, 2^-(1/4), ... and the last stands for free
PRICE_BITS = 10  # of both
_LEVELS_PER_OCTAVE = 4


@dataclass(frozen=True, slots=True)
class DraftPrice:
    """What a token of a draft has to bring at the present load, in expected tokens.

    Attributes:
        send_above: survival of a token above which its row at the verifier pays; at 1 none does, as nobody is surer.
        go_on_above: survival of a token above which drafting another one behind it pays.

    Raises:
        ParameterError: a price that is no probability.
    """

    send_above: float = 0.0
    go_on_above: float = 0.0

    def __post_init__(self) -> None:
        """Refuse what no survival can be compared with."""
        for name, value in (("send_above", self.send_above), ("go_on_above", self.go_on_above)):
            if not 0.0 <= value <= 1.0:
                raise ParameterError(name, "a probability in [0, 1]", value)

    @property
    def levels(self) -> tuple[int, int]:
        """As a message carries them, each in ``0 .. PRICE_LEVELS - 1``."""
        return _level(self.send_above), _level(self.go_on_above)

    @classmethod
    def at_levels(cls, send: int, go_on: int) -> "DraftPrice":
        """What a message says.

        Raises:
            ParameterError: a level there is none of.
        """
        return cls(_price("send", send), _price("go_on", go_on))


@dataclass(frozen=True, slots=True)
class WhileItPays:
    """Sends a token if its row pays, and drafts on behind it if another one would.

    Attributes:
        predictor: of acceptance.
        price: at the load as the order was made.
        survival: of all that was drafted so far.
    """

    predictor: AcceptancePredictor
    price: DraftPrice
    survival: float = 1.0
    asks: ClassVar[bool] = True

    def step(self, features: DraftFeatures) -> Step:
        """See ``StopRule``."""
        survival = self.survival * self.predictor.probability(features)
        if survival <= self.price.send_above:
            return Step.STOP
        return Step.DRAW if survival > self.price.go_on_above else Step.DRAW_LAST

    def behind(self, features: DraftFeatures) -> "WhileItPays":
        """See ``StopRule``."""
        return WhileItPays(self.predictor, self.price, self.survival * self.predictor.probability(features))


def _level(price: float) -> int:
    """The nearest, by ratio."""
    least = 2.0 ** (-PRICE_LEVELS / _LEVELS_PER_OCTAVE)
    return min(round(-_LEVELS_PER_OCTAVE * log2(max(price, least))), PRICE_LEVELS - 1)


def _price(name: str, level: int) -> float:
    if not 0 <= level < PRICE_LEVELS:
        raise ParameterError(name, f"a level in [0, {PRICE_LEVELS - 1}]", level)
    return 0.0 if level == PRICE_LEVELS - 1 else 2.0 ** (-level / _LEVELS_PER_OCTAVE)

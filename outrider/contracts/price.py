"""Price of a draft token at the present load; an order carries it in a few bits."""

from dataclasses import dataclass
from math import log2

PRICE_LEVELS = 32  # of one price in a message: 2^0, 2^-(1/4), ...; the last level is price 0
LEVEL_BITS = (PRICE_LEVELS - 1).bit_length()
PRICE_BITS = 2 * LEVEL_BITS  # of both prices together
_LEVELS_PER_OCTAVE = 4


@dataclass(frozen=True, slots=True)
class DraftPrice:
    """Price of a draft token at the present load, in expected tokens, 0..1."""

    # a token is sent if its survival exceeds this, as only then its row at the verifier pays. 1: none is
    send_above: float = 0.0
    go_on_above: float = 0.0  # another token is drafted if the last one's survival exceeds this

    @property
    def levels(self) -> tuple[int, int]:
        """Both prices as levels of a message, each in ``0 .. PRICE_LEVELS - 1``."""
        return _level(self.send_above), _level(self.go_on_above)

    @classmethod
    def at_levels(cls, send: int, go_on: int) -> "DraftPrice":
        return cls(_price(send), _price(go_on))


def _level(price: float) -> int:
    least = 2.0 ** (-PRICE_LEVELS / _LEVELS_PER_OCTAVE)
    return min(round(-_LEVELS_PER_OCTAVE * log2(max(price, least))), PRICE_LEVELS - 1)


def _price(level: int) -> float:
    return 0.0 if level == PRICE_LEVELS - 1 else 2.0 ** (-level / _LEVELS_PER_OCTAVE)

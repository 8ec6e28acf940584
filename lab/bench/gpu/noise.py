"""Shared noise: the device's bits against numpy's."""

from lab.bench.gpu.setting import Found, Setting
from lab.bench.noise.comparison import compare

_DRAWS, _FEW_DRAWS = 1_000_000, 20_000
_VOCAB = 49_152
_WORDS_A_COUNTER = 4


def run(setting: Setting) -> Found:
    """Compare at least a million draws."""
    counters = (_FEW_DRAWS if setting.small else _DRAWS) // _WORDS_A_COUNTER
    found = compare(setting.device, counters, _VOCAB)
    draws = found.counters * _WORDS_A_COUNTER
    faults = [] if found.equal else [f"{found.other_words} words and {found.other_noise} values differ from numpy's"]
    header = ("draws", "words that differ", "values that differ")
    figures = {"draws": draws, "other_words": found.other_words, "other_noise": found.other_noise}
    return Found(header, [(draws, found.other_words, found.other_noise)], figures, faults)

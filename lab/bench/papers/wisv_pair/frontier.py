"""Score cost and gain of acceptance rules (WISV's Figures 3 and 5), all on the same tasks; what judging costs.

Both models run in this process; a link matters only as an input of the head. See ``lab.training.head.sweep``.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median

import numpy as np

from lab.bench.harness.timing import Call, seconds_of
from lab.training.head.links import EVALUATED
from lab.training.head.mismatches import as_sent
from lab.training.head.paged_texts import PagedText
from lab.training.head.pair import EncodedTask, Pair
from lab.training.head.semantic_decoding import FLY, HEAD_FREE
from lab.training.head.sweep import STRICT, SweptRow, sweep
from outrider.contracts.exchanged import FloatField
from outrider.models.head_file import Head
from outrider.verification.decision_head import DecisionHead
from outrider.verification.semantic import MismatchQuestion

HEAD, UNAWARE = "head", "head, not told of links"  # the second is trained without relabelling


@dataclass(frozen=True, slots=True)
class Frontier:
    window: int
    tasks: int
    rows: tuple[SweptRow, ...]  # ``rule`` is HEAD, UNAWARE, STRICT or a rule without a head

    @property
    def strict(self) -> SweptRow:
        return next(row for row in self.rows if row.rule == STRICT)


def frontier(
    pair: Pair,
    asked: Sequence[EncodedTask],
    heads: Mapping[str, Head],
    window: int,
    thresholds: Sequence[float],
    *,
    batch: int,
    field: FloatField,
) -> Frontier:
    """Measure at one window; ``pair`` has KV for ``batch`` texts of prompt, answer and window."""
    rows: list[SweptRow] = []
    for name, head in heads.items():
        swept = sweep(
            pair,
            asked,
            head.decisions.weights,
            thresholds,
            EVALUATED,
            window_tokens=window,
            batch=batch,
            rounding=as_sent(field),
            others=None if rows else HEAD_FREE,
        )
        more = bool(rows)  # strict verification and rules without a head are kept once
        rows += [replace(row, rule=name) for row in swept if row.rule == HEAD]
        rows += [row for row in swept if row.rule != HEAD and not more]
    return Frontier(window, len(asked), tuple(rows))


def fly_frontier(pair: Pair, asked: Sequence[EncodedTask], head: Head, window: int, *, batch: int) -> Frontier:
    """FLy's rule for several entropies and lengths; apart, as it needs whole blocks, which take longer to compute."""
    weights, rounding = head.decisions.weights, as_sent(FloatField.FP16)
    rows = sweep(pair, asked, weights, (), {}, window_tokens=window, batch=batch, rounding=rounding, others=FLY)
    return Frontier(window, len(asked), tuple(rows))


BLOCKS, WINDOW = (1, 8, 32), 8
_REPEATS = 15


@dataclass(frozen=True, slots=True)
class JudgingTime:
    """Medians for a number of blocks of ``WINDOW`` tokens, half of them mismatches."""

    blocks: int
    mismatches: int
    pass_s: float  # of the target
    judge_s: float

    @property
    def share(self) -> float:
        return self.judge_s / self.pass_s


def judging_times(pair: Pair, asked: Sequence[EncodedTask], head: DecisionHead) -> list[JudgingTime]:
    """Measure each of ``BLOCKS``; ``pair`` needs KV for as many texts."""
    return [_judging_time(pair, asked, head, blocks) for blocks in BLOCKS]


def _judging_time(pair: Pair, asked: Sequence[EncodedTask], head: DecisionHead, blocks: int) -> JudgingTime:
    prompts = [asked[at % len(asked)].prompt_ids for at in range(blocks)]
    texts = [PagedText([*prompt, *prompt[-1:] * WINDOW]) for prompt in prompts]
    rows, own = [WINDOW + 1] * blocks, range(0, WINDOW, 2)
    first = pair.target.run(texts, rows, want_hidden=True)  # prompts are computed once
    pass_s = _median_s(lambda: pair.target.run(texts, rows, want_hidden=True))
    links = list(EVALUATED.values())
    drafted = np.random.default_rng(0).standard_normal((len(own), head.drafter_width)).astype(np.float32)
    questions = [MismatchQuestion(drafted, first.hidden_of(at, own), links[at % len(links)]) for at in range(blocks)]
    judge_s = _median_s(lambda: head.accepts(questions))
    for text in texts:
        pair.target.release(text)
    return JudgingTime(blocks, blocks * len(own), pass_s, judge_s)


def _median_s(call: Call) -> float:
    call()
    return median(seconds_of(call) for _ in range(_REPEATS))

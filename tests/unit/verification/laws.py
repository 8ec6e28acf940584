"""The law of what a protocol emits, computed and not sampled, from the functions the product uses.

Every draft is enumerated with its probability, goes through the encoded message, and is verified along every branch its
tests can take. Uniforms are integrated exactly at their breakpoints: a test is a comparison, whose threshold is asked
for; a draw has the intervals of its cumulative sum.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product
from typing import cast

import numpy as np
import torch

from outrider.contracts.drafting import Draft, DraftPlan
from outrider.contracts.exchanged import (
    Candidates,
    Deferral,
    DenseDraft,
    DraftDistribution,
    FloatRow,
    ScalarDraft,
    SparseDraft,
    TargetRow,
    WireFormat,
)
from outrider.contracts.requests import ProtocolName
from outrider.sampling.distributions import Probs, candidate_acceptance, draws, fixed_point, softmax, without
from outrider.sampling.rounding import round_floats, rounded_logits, truncated
from outrider.verification.correction import correction_probs
from outrider.verification.draft_rows import DraftRows
from outrider.verification.speculative import RatioBlock, verify_ratio
from outrider.verification.tree import Halt, walk
from tests.unit.verification.over_the_wire import GENERATION, PROMPT, ROUND, sent_correction, sent_draft

Model = Callable[[tuple[int, ...]], FloatRow]  # by the tokens behind the prefix

SCALARS = frozenset({"dssd", "dssd_candidates"})


@dataclass(frozen=True, slots=True)
class Case:
    """A protocol with its settings, and what drafter and target say.

    Attributes:
        expansion: children of every node by depth; a chain is all ones.
        draft_logits: the drafter's, adjusted.
        target_probs: the target's, as the engine hands them over.
        candidates: draws sent in place of a row (dssd_candidates).
    """

    protocol: ProtocolName
    wire: WireFormat
    expansion: tuple[int, ...]
    draft_logits: Model
    target_probs: Model
    candidates: int = 0

    @property
    def plan(self) -> DraftPlan:
        """What the drafter is asked for."""
        tree = self.protocol == "tslt_tree"
        return DraftPlan(self.protocol, len(self.expansion), self.expansion if tree else ())


def draw_law(probs: Probs) -> Probs:
    """The law of ``draw`` for a uniform of the unit interval: the lengths of its intervals, each one tried."""
    ends = np.cumsum(probs)
    ends /= ends[-1]
    law = np.diff(ends, prepend=0.0)
    possible = np.flatnonzero(law > 1e-12)
    assert draws(probs, (ends - law / 2)[possible]).tolist() == possible.tolist()
    return law


def output_law(case: Case) -> Probs:
    """``[vocab] * (L + 1)``: joint law of the next L + 1 tokens; the target goes on where the block ends early."""
    vocab, length = case.wire.vocab_size, len(case.expansion) + 1
    law = np.zeros((vocab,) * length)
    for weight, draft in drafts(case):
        for end in endings(case, draft):
            law[end.path] += weight * end.prob * _followed(end.after, case.target_probs, end.path, length)
    return law


def target_law(target_probs: Model, path: tuple[int, ...], length: int) -> Probs:
    """``[vocab] * length``: the target's own joint law of the tokens behind ``path``."""
    if length == 0:
        return np.ones(())
    row = target_probs(path).astype(np.float64)
    return _followed(row / row.sum(), target_probs, path, len(path) + length)


def _followed(law: Probs, target_probs: Model, path: tuple[int, ...], length: int) -> Probs:
    """A law of the token behind ``path``, and the target's own of those behind that, up to ``length`` in all."""
    tokens = range(len(law))
    return np.stack([law[token] * target_law(target_probs, (*path, token), length - len(path) - 1) for token in tokens])


def distance(case: Case) -> float:
    """Total variation between what is emitted and what the target would emit."""
    return 0.5 * float(np.abs(output_law(case) - target_law(case.target_probs, (), len(case.expansion) + 1)).sum())


@dataclass(frozen=True, slots=True)
class _Row:
    """What the drafter draws from: ``probs[i]`` of ``token_ids[i]``, told as logits or numerators."""

    token_ids: list[int]
    probs: Probs
    told: Probs


def _drawn_from(case: Case, path: tuple[int, ...]) -> _Row:
    logits, wire = case.draft_logits(path), case.wire
    if case.protocol in ("tslt", "tslt_tree"):
        token_ids, kept = truncated(logits, wire)
        return _Row(token_ids.tolist(), softmax(kept), kept.astype(np.float64))
    if case.protocol == "dsd":
        rounded = rounded_logits(logits, wire.logit_field)
        return _Row(list(range(wire.vocab_size)), softmax(rounded), rounded.astype(np.float64))
    numerators = fixed_point(softmax(logits), wire.scalar_bits)
    return _Row(list(range(wire.vocab_size)), numerators / 2.0**wire.scalar_bits, numerators.astype(np.float64))


def _sibling_law(probs: Probs, count: int, *, distinct: bool) -> Iterator[tuple[float, tuple[int, ...]]]:
    """Every way to draw siblings; without replacement fewer if nothing is left."""
    if count == 0 or not probs.any():
        yield 1.0, ()
        return
    law = draw_law(probs)
    for index in np.flatnonzero(law).tolist():
        rest = without(probs, index) if distinct else probs
        for prob, others in _sibling_law(rest, count - 1, distinct=distinct):
            yield float(law[index]) * prob, (index, *others)


def drafts(case: Case) -> Iterator[tuple[float, Draft]]:
    """Every draft with its probability, as the coordinator decodes it."""
    row = cache(lambda path: _drawn_from(case, path))
    distinct = case.protocol == "tslt_tree" and case.wire.distinct_siblings
    ways = cache(lambda path, count: list(_sibling_law(row(path).probs, count, distinct=distinct)))

    def grow(
        weight: float, paths: list[tuple[int, ...]], parents: list[int], layer: range, depth: int
    ) -> Iterator[tuple[float, list[tuple[int, ...]], list[int]]]:
        if depth == len(case.expansion):
            yield weight, paths, parents
            return
        above = [paths[node] if node >= 0 else () for node in layer]
        for chosen in product(*(ways(path, case.expansion[depth]) for path in above)):
            grown = [*paths], [*parents]
            for node, path, (_, siblings) in zip(layer, above, chosen, strict=True):
                grown[0].extend((*path, row(path).token_ids[index]) for index in siblings)
                grown[1].extend([node] * len(siblings))
            total = weight * float(np.prod([prob for prob, _ in chosen]))
            yield from grow(total, *grown, range(len(paths), len(grown[0])), depth + 1)

    for weight, paths, parents in grow(1.0, [], [], range(-1, 0), 0):
        tree = bool(case.plan.expansion)
        inner = [paths[node] if node >= 0 else () for node in sorted(set(parents))]
        token_ids = tuple(path[-1] for path in paths)
        told = _told(case, token_ids, [row(path) for path in inner])
        draft = Draft(
            GENERATION, ROUND, len(PROMPT), token_ids, parents=tuple(parents) if tree else None, distribution=told
        )
        yield weight, sent_draft(draft, case.plan, case.wire)


def _told(case: Case, token_ids: Sequence[int], rows: Sequence[_Row]) -> DraftDistribution:
    if case.protocol in SCALARS:
        drawn = [int(row.told[token]) for row, token in zip(rows, token_ids, strict=True)]
        return ScalarDraft(np.array(drawn, dtype=np.int64), case.wire.scalar_bits)
    if case.protocol == "dsd":
        return DenseDraft(np.stack([row.told.astype(np.float32) for row in rows]))
    return SparseDraft(
        tuple(np.array(row.token_ids) for row in rows), tuple(row.told.astype(np.float32) for row in rows)
    )


class _Forced(float):
    """A uniform whose comparison goes as told, and says where its breakpoint is."""

    below = True
    threshold: float | None = None

    def __lt__(self, other: float) -> bool:
        self.threshold = float(other)
        return self.below

    @property
    def prob(self) -> float:
        """Of its comparison's going so; 1 if there was none."""
        if self.threshold is None:
            return 1.0
        return self.threshold if self.below else 1.0 - self.threshold


class _Tests:
    """The uniforms of one walk: the first comparisons go as ``told``, the others succeed."""

    def __init__(self, told: tuple[bool, ...]) -> None:
        self.told = told
        self.made: list[_Forced] = []

    def uniforms(self, _depth: int, count: int) -> Probs:
        for _ in range(count):
            self.made.append(_Forced(0.5))
            self.made[-1].below = all(self.told[len(self.made) - 1 : len(self.made)])
        return cast("Probs", self.made[-count:])

    def turned(self) -> Iterator[tuple[bool, ...]]:
        """The same up to a comparison that was free to succeed, and fails."""
        for index in range(len(self.told), len(self.made)):
            if self.made[index].threshold is not None:
                yield (*(test.below for test in self.made[:index]), False)


def branches(run: Callable[[Callable[[int, int], Probs]], Halt]) -> Iterator[tuple[float, Halt]]:
    """Every way the tests of a walk can go, with its probability."""
    waiting: list[tuple[bool, ...]] = [()]
    while waiting:
        tests = _Tests(waiting.pop())
        halt = run(tests.uniforms)
        prob = float(np.prod([test.prob for test in tests.made]))
        if prob > 0:
            yield prob, halt
        waiting.extend(tests.turned())


@dataclass(frozen=True, slots=True)
class Ending:
    """One way the verification of a draft can go.

    Attributes:
        prob: of it.
        nodes: accepted, root first.
        path: their tokens.
        after: ``[vocab]``, law of the token behind them.
    """

    prob: float
    nodes: tuple[int, ...]
    path: tuple[int, ...]
    after: Probs


def endings(case: Case, draft: Draft) -> Iterator[Ending]:
    """Every way the verification of a draft can go."""
    vocab, sent = case.wire.vocab_size, draft.token_ids
    deferral = Deferral(case.wire.row_field) if case.protocol in SCALARS else None
    distinct = case.wire.distinct_siblings
    children = RatioBlock(sent, draft.parents, draft.distribution, distinct, True, deferral, 0, 0).shape.children
    above = draft.parents if draft.parents is not None else range(-1, len(sent) - 1)
    paths: list[tuple[int, ...]] = [()]
    for parent, token in zip(above, sent, strict=True):
        paths.append((*paths[1 + parent], token))
    rows = [case.target_probs(path) for path in paths]
    first_probs = np.array(
        [rows[1 + parent][token] for parent, token in zip(above, sent, strict=True)], dtype=np.float32
    )
    if deferral is not None:
        first_probs = round_floats(first_probs, deferral.row_field)
    draft_rows = DraftRows(draft.distribution, children, vocab)

    def run(uniforms_of: Callable[[int, int], Probs]) -> Halt:
        deferred = deferral is not None
        walking = walk(
            sent, children, first_probs.tolist(), draft_rows, uniforms_of, distinct=distinct, deferred=deferred
        )
        try:
            row = next(walking)
            while True:
                row = walking.send(rows[row])
        except StopIteration as done:
            return cast("Halt", done.value)

    for prob, halt in branches(run):
        path = paths[halt.row]
        assert path == tuple(sent[node] for node in halt.path)
        if not halt.rejected:
            after = draw_law(rows[halt.row].astype(np.float64))
        elif deferral is None:
            assert halt.remaining is not None
            after = draw_law(halt.remaining)
        else:
            after = _correction_law(case, deferral, path)
        yield Ending(prob, halt.path, path, after)


def _correction_law(case: Case, deferral: Deferral, path: tuple[int, ...]) -> Probs:
    """The law of a correction the device draws, from a row or from candidates and, if all fail, the row."""
    draft_probs, target_row = _drawn_from(case, path).probs, case.target_probs(path)
    asked = RatioBlock((), None, None, False, False, deferral, 0, 4)
    (decision,) = verify_ratio(torch.from_numpy(target_row[None]), [asked], [0])
    if decision.token_after is not None:
        one_hot = np.zeros(len(target_row))
        one_hot[decision.token_after] = 1.0
        return one_hot
    assert isinstance(decision.deferred, TargetRow)
    by_row = draw_law(correction_probs(cast("TargetRow", sent_correction(decision.deferred, case.wire)), draft_probs))
    if case.protocol == "dssd":
        return by_row
    rounded = round_floats(target_row, deferral.row_field)
    possible = np.flatnonzero(rounded)
    sent = cast("Candidates", sent_correction(Candidates(possible, rounded[possible]), case.wire))
    passed = np.zeros_like(by_row)
    passed[sent.token_ids] = candidate_acceptance(sent.probs.astype(np.float64), draft_probs[sent.token_ids])
    passed *= draw_law(rounded.astype(np.float64))
    all_fail = (1 - passed.sum()) ** case.candidates
    taken: Probs = passed * ((1 - all_fail) / passed.sum()) if passed.any() else passed
    law: Probs = taken + all_fail * by_row
    return law

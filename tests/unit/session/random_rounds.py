"""Random wire formats, plans, blocks and corrections, as a drafter and a verifier might make them."""

from random import Random

import numpy as np

from outrider.contracts.drafting import Draft, DraftPlan, DraftRequest
from outrider.contracts.exchanged import (
    Candidates,
    CorrectionSource,
    DenseDraft,
    DraftDistribution,
    FloatField,
    FloatRow,
    ScalarDraft,
    SparseDraft,
    TargetRow,
    WireFormat,
)
from outrider.contracts.requests import ProtocolName
from outrider.protocols.hidden_states import rounded_states
from outrider.sampling.distributions import fixed_point, softmax
from outrider.sampling.rounding import round_floats, rounded_logits, truncated
from outrider.wire.shapes import children_of

TREES = ("token_ids", "tslt_tree")
SCALARS = ("dssd", "dssd_candidates")


def random_wire(rng: Random, vocab_size: int) -> WireFormat:
    return WireFormat(
        vocab_size,
        logit_field=rng.choice(list(FloatField)),
        scalar_bits=rng.randint(8, 32),
        row_field=rng.choice([FloatField.FP32, FloatField.FP16, FloatField.BF16]),
        top_k=rng.choice([0, 1, 2, 5, 32]) if vocab_size < 1000 else rng.choice([1, 5, 32]),
        top_rho=rng.choice([1.0, 0.9]),
        hidden_field=rng.choice(list(FloatField)),
        hidden_width=rng.choice([1, 31, 32, 33, 70]),
    )


def random_plan(rng: Random, protocol: ProtocolName, window: int | None = None) -> DraftPlan:
    window = rng.randint(0, 4) if window is None else window
    if protocol == "token_ids" and window and rng.random() < 0.4:
        return DraftPlan(protocol, window, rows=rng.randint(window, 9))
    if protocol in TREES and window and rng.random() < 0.6:
        return DraftPlan(protocol, window, tuple(rng.randint(1, 3) for _ in range(window)))
    return DraftPlan(protocol, window)


def logits_row(rng: Random, vocab_size: int) -> FloatRow:
    """Logits of a model: a few removed, some far below the others."""
    numbers = np.random.default_rng(rng.getrandbits(32))
    row = (numbers.standard_normal(vocab_size) * rng.choice([0.5, 4.0, 30.0])).astype(np.float32)
    if rng.random() < 0.3:
        row[numbers.random(vocab_size) < 0.5] = -np.inf
        row[numbers.integers(vocab_size)] = 1.0
    return row


def random_parents(rng: Random, plan: DraftPlan) -> tuple[int, ...]:
    """A tree of the plan, often with fewer children than it allows."""
    parents: list[int] = []
    layer, full = [-1], rng.random() < 0.5
    if plan.rows:
        return grown_parents(rng, plan, plan.rows if full else rng.randint(0, plan.rows))
    for most in plan.expansion:
        following: list[int] = []
        for node in layer:
            for _ in range(most if full else rng.randint(0, most)):
                following.append(len(parents))
                parents.append(node)
        layer = following
    return tuple(parents)


def grown_parents(rng: Random, plan: DraftPlan, nodes: int) -> tuple[int, ...]:
    """A tree of so many nodes, breadth first."""
    parents, depths = list[int](), {-1: 0}
    for node in range(nodes):
        least = parents[-1] if parents else -1
        parents.append(rng.choice([other for other in range(least, node) if depths[other] < plan.window]))
        depths[node] = depths[parents[-1]] + 1
    return tuple(parents)


def random_draft(rng: Random, request: DraftRequest, wire: WireFormat) -> Draft:
    """An answer to a request, drawn from rows that are rounded as a drafter rounds them."""
    plan, vocab = request.plan, wire.vocab_size
    parents = random_parents(rng, plan) if plan.is_tree else None
    nodes = rng.choice([plan.window, rng.randint(0, plan.window)]) if parents is None else len(parents)
    token_ids = [rng.randrange(vocab) for _ in range(nodes)]
    distribution: DraftDistribution = None
    if plan.protocol == "dsd":
        rows = [rounded_logits(logits_row(rng, vocab), wire.logit_field) for _ in range(nodes)]
        token_ids = [int(rng.choice(np.flatnonzero(np.isfinite(row)).tolist())) for row in rows]
        distribution = DenseDraft(np.stack(rows) if rows else np.zeros((0, vocab), dtype=np.float32))
    elif plan.protocol in SCALARS:
        drawn = [fixed_point(softmax(logits_row(rng, vocab)), wire.scalar_bits).max() for _ in range(nodes)]
        distribution = ScalarDraft(np.array(drawn, dtype=np.int64), wire.scalar_bits)
    elif plan.protocol == "tslt" or (plan.protocol == "tslt_tree" and rng.random() < 0.8):
        groups = children_of(parents, nodes)
        sparse = [truncated(logits_row(rng, vocab), wire) for _ in groups]
        for group, (support, _) in zip(groups, sparse, strict=True):
            for node in group:
                token_ids[node] = int(rng.choice(support.tolist()))
        distribution = SparseDraft(tuple(ids for ids, _ in sparse), tuple(logits for _, logits in sparse))
    return Draft(
        request.generation,
        request.round,
        request.feedback_position + len(request.feedback),
        tuple(token_ids),
        correction=rng.randrange(vocab) if request.correction is not None else None,
        parents=parents,
        distribution=distribution,
        hidden=random_hidden(rng, nodes, wire) if plan.protocol == "wisv_full" else None,
    )


def random_hidden(rng: Random, count: int, wire: WireFormat) -> FloatRow:
    """``[count, d]`` as a message carries them, some numbers far larger than the others."""
    numbers = np.random.default_rng(rng.getrandbits(32))
    states = numbers.standard_normal((count, wire.hidden_width)).astype(np.float32)
    states[:, numbers.integers(wire.hidden_width)] *= 2.5e4
    return rounded_states(states, wire)


def random_correction(rng: Random, wire: WireFormat) -> CorrectionSource:
    """Candidates, or a row: whole, cut off and told sparse, or cut off and told dense."""
    row = logits_row(rng, wire.vocab_size)
    if rng.random() < 0.4:
        row[row < rng.choice(row[np.isfinite(row)].tolist())] = -np.inf
    probs = round_floats(softmax(row), wire.row_field)
    kept = np.flatnonzero(probs).astype(np.int64)
    kind = rng.randrange(3)
    if kind == 0:
        token_ids = np.array(rng.choices(kept.tolist(), k=rng.randint(1, 200)), dtype=np.int64)
        return Candidates(token_ids, probs[token_ids])
    return TargetRow(None, probs) if kind == 1 else TargetRow(kept, probs[kept])

"""What a request's tokens must be, in float64 and from the definitions alone: nothing here calls the code under test.

Only its data is shared: parameters, blocks, what crossed the link.
"""

from collections.abc import Sequence
from math import inf

import numpy as np
import numpy.typing as npt
import torch

from outrider.contracts.exchanged import (
    Candidates,
    Deferral,
    DenseDraft,
    FloatField,
    ScalarDraft,
    SparseDraft,
    TargetRow,
)
from outrider.contracts.requests import SamplingParams
from outrider.verification.decision import BlockDecision
from outrider.verification.ratio_block import RatioBlock
from tests.unit.engines.languages import allowed_by

Row = npt.NDArray[np.float64]

TARGET_TOKEN, DRAFT_TOKEN, ACCEPT, RESIDUAL, CANDIDATE, CANDIDATE_ACCEPT = range(
    6
)  # purposes, as the noise counts them


def uniforms(seed: int, position: int, purpose: int, count: int) -> Row:
    """Philox keyed by the seed and counted by position and purpose: odd multiples of 2**-53."""
    key, counter = np.array([seed, 0], dtype=np.uint64), np.array([0, position, purpose, 0], dtype=np.uint64)
    words = np.random.Philox(key=key, counter=counter).random_raw(count)
    return np.asarray(((words >> np.uint64(12)) + 0.5) * 2.0**-52, dtype=np.float64)


def gumbel(seed: int, position: int, vocab: int) -> Row:
    """The noise of a position's token."""
    return np.asarray(-np.log(-np.log(uniforms(seed, position, TARGET_TOKEN, vocab))), dtype=np.float64)


def adjusted(
    logits: npt.NDArray[np.floating], params: SamplingParams, prompt: Sequence[int], output: Sequence[int]
) -> Row:
    """One row by the documented order of edits, behind ``prompt`` and ``output``; greedy rows are not truncated."""
    row = logits.astype(np.float64)
    for token, bias in params.logit_bias:
        row[token] += bias
    for token in {*prompt, *output}:
        row[token] = (
            row[token] / params.repetition_penalty if row[token] > 0 else row[token] * params.repetition_penalty
        )
    for token in {*output}:
        row[token] -= params.presence_penalty + params.frequency_penalty * list(output).count(token)
    if len(prompt) + len(output) < params.withheld_until:
        row[[token for token in params.withheld_ids if token < row.size]] = -inf
    if params.grammar is not None:
        row[~allowed_by(params.grammar, output)] = -inf
    if params.greedy:
        return row
    row = np.asarray((row - row.max()) / params.temperature)
    for limit in limits(row, params):
        row[row < limit] = -inf
    return row


def limits(row: Row, params: SamplingParams) -> list[float]:
    """Of top-k, top-p and min-p in turn, each of what the one before it kept: the smallest logit that is kept."""
    found: list[float] = []
    kept = row.copy()
    if 0 < params.top_k < row.size:
        found.append(float(np.sort(kept)[-params.top_k]))
        kept[kept < found[-1]] = -inf
    if params.top_p < 1.0:
        order = np.sort(kept)[::-1]
        mass = np.cumsum(softmax(order))
        found.append(float(order[int((mass < params.top_p).sum())]))
        kept[kept < found[-1]] = -inf
    if params.min_p > 0.0:
        found.append(float(kept.max() + np.log(params.min_p)))
    return found


def softmax(row: npt.NDArray[np.floating]) -> Row:
    """Probabilities of one row."""
    weights = np.exp(row.astype(np.float64) - float(row.max()))
    return np.asarray(weights / weights.sum())


def probs(row: Row, params: SamplingParams) -> Row:
    """Of an adjusted row; one-hot at the first largest logit if greedy."""
    return (np.arange(row.size) == row.argmax()).astype(np.float64) if params.greedy else softmax(row)


def choice(row: Row, params: SamplingParams, position: int) -> int:
    """The target's own token at a position, from its adjusted row: the first largest."""
    return int((row if params.greedy else row + gumbel(params.seed, position, row.size)).argmax())


def draw(row: Row, number: float) -> int:
    """The first token at which the cumulative sum exceeds its share."""
    return int((np.cumsum(row) > number * row.sum()).argmax())


def rounded(row: npt.NDArray[np.floating], field: FloatField) -> Row:
    """Probabilities as the field carries them."""
    kind = {FloatField.FP32: torch.float32, FloatField.FP16: torch.float16, FloatField.BF16: torch.bfloat16}[field]
    numbers: Row = torch.from_numpy(row.astype(np.float32)).to(kind).double().numpy()
    return numbers


def matched(
    choices: Sequence[int], draft: Sequence[int], parents: Sequence[int] | None, *, bonus: bool
) -> BlockDecision:
    """Acceptance by equality: follow the target's choices as far as they were drafted."""
    path, row = list[int](), 0
    while found := [node for node in children(draft, parents, row) if draft[node] == choices[row]]:
        path.append(found[0])
        row = 1 + found[0]
    asked = bonus or bool(children(draft, parents, row))
    return BlockDecision(tuple(path), choices[row] if asked else None)


def children(draft: Sequence[int], parents: Sequence[int] | None, row: int) -> list[int]:
    """The nodes that row predicts: row 0 stands behind the prefix, 1 + n behind node n."""
    above = range(-1, len(draft) - 1) if parents is None else parents
    return [node for node, parent in enumerate(above) if parent == row - 1]


def ratio(block: RatioBlock, rows: Sequence[npt.NDArray[np.floating]], choices: Sequence[int]) -> BlockDecision:
    """Leviathan et al. 2023, algorithm 1, and TSLT algorithm 8 without its errata, candidate by candidate."""
    path, row = list[int](), 0
    while nodes := children(block.draft, block.parents, row):
        position = block.position + len(path)
        field = FloatField.FP32 if block.deferral is None else block.deferral.row_field
        left = rounded(rows[row], field)
        tests = uniforms(block.seed, position, ACCEPT, len(nodes))
        for i, node in enumerate(nodes):
            drawn_from = draft_row(block, nodes[:i], node, len(left))
            token = block.draft[node]
            if drawn_from[token] > 0 and tests[i] < left[token] / drawn_from[token]:
                path.append(node)
                row = 1 + node
                break
            left = np.maximum(left - drawn_from, 0)
            left /= left.sum() or 1.0
        else:
            if block.deferral is not None:
                return handed_over(block.deferral, rows[row], block.seed, position, tuple(path))
            return BlockDecision(tuple(path), draw(left, uniforms(block.seed, position, RESIDUAL, 1)[0]))
    if not block.draft and block.deferral is not None and not block.bonus:
        return handed_over(block.deferral, rows[0], block.seed, block.position, ())
    return BlockDecision(tuple(path), choices[row] if block.bonus else None)


def handed_over(
    deferral: Deferral, row: npt.NDArray[np.floating], seed: int, position: int, path: tuple[int, ...]
) -> BlockDecision:
    """What a device draws the correction from; a row is told whole."""
    target = rounded(row, deferral.row_field)
    possible = np.flatnonzero(target)
    if len(possible) == 1:
        return BlockDecision(path, int(possible[0]))
    if deferral.candidates == 0:
        return BlockDecision(path, None, TargetRow(None, target.astype(np.float32)))
    numbers = uniforms(seed, position, CANDIDATE, deferral.candidates)
    ids = np.array([draw(target, number) for number in numbers])
    return BlockDecision(path, None, Candidates(ids, target[ids].astype(np.float32)))


def draft_row(block: RatioBlock, rejected: list[int], node: int, vocab: int) -> Row:
    """What ``node`` was drawn from once its ``rejected`` siblings were; of scalars only the token itself is known."""
    sent, row = block.distribution, np.zeros(vocab)
    if isinstance(sent, ScalarDraft):
        row[block.draft[node]] = sent.numerators[node] / 2.0**sent.bits
    elif isinstance(sent, DenseDraft):
        row = softmax(sent.logits[node])
    else:
        assert isinstance(sent, SparseDraft)
        index = node if block.parents is None else sorted(set(block.parents)).index(block.parents[node])
        row[sent.token_ids[index]] = softmax(sent.logits[index])
        if block.distinct:
            row[[block.draft[sibling] for sibling in rejected]] = 0
            row /= row.sum() or 1.0
    return row

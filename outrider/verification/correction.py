"""Deferred corrections (DSSD): what is sent to the device, and how it draws from that.

A rejection needs a draw from ``norm(max(0, p - q))``, and only the device has all of q. It is sent either the target's
row p (DSSD algorithm 2), or m independent draws x from p, each with its p(x). The first of these that passes a test
with probability ``max(0, 1 - q(x) / p(x))`` is distributed as

    p(x) * max(0, 1 - q(x) / p(x)) / sum = norm(max(0, p - q))(x)

which is rejection sampling. If none passes, the row itself is fetched and drawn from with separate noise. Given that
all candidates failed, that draw has the same distribution, so the mixture of both cases has it, too.
"""

import numpy as np

from outrider.contracts.errors import ShapeError
from outrider.contracts.exchanged import Candidates, CorrectionSource, Deferral, FloatRow, TargetRow
from outrider.sampling.distributions import Probs, candidate_acceptance, draw, draws, residual
from outrider.sampling.floats import CODE_BITS
from outrider.sampling.noise import Purpose, uniforms


def correction_source(target_row: FloatRow, deferral: Deferral, seed: int, position: int) -> CorrectionSource:
    """Return what the device is sent; ``target_row``: ``[vocab]``, rounded by ``deferral.row_field``."""
    if deferral.candidates > 0:
        numbers = uniforms(seed, position, Purpose.CANDIDATE, deferral.candidates)
        token_ids = draws(target_row.astype(np.float64), numbers)
        return Candidates(token_ids, target_row[token_ids])
    kept = np.flatnonzero(target_row).astype(np.int64)
    id_bits = (len(target_row) - 1).bit_length()
    prob_bits = CODE_BITS[deferral.row_field]
    # Ids of the non-zero entries are sent only where that takes fewer bits than all probabilities.
    if len(kept) * (id_bits + prob_bits) < len(target_row) * prob_bits:
        return TargetRow(kept, target_row[kept])
    return TargetRow(None, target_row)


def draw_correction(source: CorrectionSource, draft_probs: Probs, seed: int, position: int) -> int | None:
    """Draw a correction on the device, from the residual of the target's row and its own.

    Args:
        source: received from the verifier.
        draft_probs: ``[vocab]``, the distribution that the rejected token was drawn from.
        seed: the request's.
        position: absolute position of the correction.

    Returns:
        The token; None if no candidate passes, and the row has to be fetched.

    Raises:
        ShapeError: the row is of another vocabulary.
        ParameterError: the row has no probability above 0.
    """
    if isinstance(source, Candidates):
        accept = candidate_acceptance(source.probs.astype(np.float64), draft_probs[source.token_ids])
        passed = uniforms(seed, position, Purpose.CANDIDATE_ACCEPT, len(accept)) < accept
        return int(source.token_ids[passed.argmax()]) if passed.any() else None
    rest = correction_probs(source, draft_probs)
    return draw(rest, float(uniforms(seed, position, Purpose.RESIDUAL, 1)[0]))


def correction_probs(source: TargetRow, draft_probs: Probs) -> Probs:
    """Return the ``[vocab]`` residual of a received target row and the device's own ``draft_probs``."""
    if source.token_ids is None and len(source.probs) != len(draft_probs):
        raise ShapeError(
            f"a target row needs the drafter's vocabulary of {len(draft_probs)}, found {len(source.probs)} entries; "
            "check that both models share a token map"
        )
    target = np.zeros_like(draft_probs)
    target[slice(None) if source.token_ids is None else source.token_ids] = source.probs
    return residual(target, draft_probs)

"""What every rule of the form "accept iff the draft is the token the target chooses" has in common.

The target chooses a token at each row whether or not anybody drafted; the draft only decides how many of these
choices one forward pass commits. So the output cannot depend on the drafter.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from torch import Tensor

from outrider.errors import ShapeError
from outrider.sampling import RowGroup, choose_tokens


@dataclass(frozen=True, slots=True)
class ChainDecision:
    """What one chain of draft tokens came to."""

    accepted_len: int  # 0..K
    token_after: int | None  # correction or bonus token; None: all accepted and no bonus row was computed


def verify_chains(logits: Tensor, groups: Sequence[RowGroup], drafts: Sequence[tuple[int, ...]]) -> list[ChainDecision]:
    """Choose the target's token at each row and match the drafts against these choices.

    Greedy and sampled groups may share a batch: each follows its own parameters.

    Args:
        logits: ``[R, vocab]``, rows in the order of ``groups``.
        groups: one per draft, ``path`` the draft itself, ``rows`` K, or K + 1 if a bonus token is wanted.
        drafts: draft tokens of each chain; K may be 0.

    Returns:
        One decision per draft.

    Raises:
        ShapeError: rows, groups and drafts disagree.
    """
    if len(groups) != len(drafts):
        raise ShapeError(f"verification needs one row group per draft, found {len(groups)} and {len(drafts)}")
    for group, draft in zip(groups, drafts, strict=True):
        if group.path != draft:
            raise ShapeError(f"a row group's path needs to be its draft {draft}, found {group.path}")
    choices = choose_tokens(logits, groups).tolist()
    ends = accumulate(group.rows for group in groups)
    per_chain = [choices[end - group.rows : end] for group, end in zip(groups, ends, strict=True)]
    return match_chains(per_chain, drafts)


def match_chains(choices: Sequence[Sequence[int]], drafts: Sequence[tuple[int, ...]]) -> list[ChainDecision]:
    """Accept each draft up to its first token that is not the target's choice.

    Args:
        choices: the target's token at each row of a chain, K or K + 1 of them.
        drafts: K draft tokens of each chain.

    Raises:
        ShapeError: a chain has another number of choices.
    """
    return [_match(chosen, draft) for chosen, draft in zip(choices, drafts, strict=True)]


def _match(chosen: Sequence[int], draft: tuple[int, ...]) -> ChainDecision:
    if len(chosen) - len(draft) not in (0, 1):
        raise ShapeError(
            f"a draft of {len(draft)} tokens needs {len(draft)} rows, or {len(draft) + 1} with a bonus token; "
            f"found {len(chosen)}"
        )
    pairs = enumerate(zip(chosen, draft, strict=False))
    accepted = next((i for i, (target, drafted) in pairs if target != drafted), len(draft))
    return ChainDecision(accepted, chosen[accepted] if accepted < len(chosen) else None)

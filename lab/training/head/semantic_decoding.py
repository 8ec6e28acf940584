"""Decode tasks speculatively by several acceptance rules at once, with both models in this process.

Drafts are greedy chains of one window; ``verification.semantic`` decides mismatches, as in service. Rules that have
committed the same tokens of a task share its rounds and part where their decisions first differ. A block is drafted
and verified in slices of ``_MOST_DRAFTED`` tokens, and no further than some rule accepts; whole, if a rule reads what
follows a mismatch.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import numpy.typing as npt
import torch
from tqdm import tqdm

from lab.training.head.mismatches import Rounding, as_computed
from lab.training.head.paged_texts import PagedText, TextRows
from lab.training.head.pair import EncodedTask, Pair
from outrider.contracts.exchanged import FloatRow
from outrider.contracts.link import Csi
from outrider.verification.decision import BlockDecision
from outrider.verification.decision_head import DecisionHead, HeadWeights, csi_features
from outrider.verification.semantic import mismatches, semantic_decision


@dataclass(frozen=True, slots=True, eq=False)
class RoundFacts:
    """Rows of a drafter and its target behind one prefix; K draft tokens, M mismatches."""

    draft: Sequence[int]  # K tokens
    choices: Sequence[int]  # ``[K + 1]``, the target's argmax at each row
    found: Sequence[int]  # ``[M]``, the mismatching rows
    drafter_hidden: FloatRow  # ``[M, d_drafter]``, as decoded from the link
    target_hidden: FloatRow  # ``[M, d_target]``
    draft_probs: npt.NDArray[np.float64]  # ``[M]``, the target's probability of the draft token, at temperature 1
    draft_ranks: npt.NDArray[np.int64]  # ``[M]``, number of tokens that the target prefers to it
    entropies: npt.NDArray[np.float64]  # ``[M]``, of the target's three most probable tokens, in nats, not normalised


class MismatchRule(Protocol):
    def accepts(self, facts: RoundFacts) -> Sequence[bool]:
        """``[M]``, M >= 1."""
        ...


@dataclass(frozen=True, slots=True)
class StrictRule:
    def accepts(self, facts: RoundFacts) -> Sequence[bool]:
        return [False] * len(facts.found)


@dataclass(slots=True, eq=False)
class LinkedHead:
    """A head on a link, for any threshold; caches its last result, as all thresholds ask for the same rows."""

    weights: HeadWeights
    link: Csi
    _last: tuple[RoundFacts, npt.NDArray[np.float64]] | None = None

    def rejection_probs(self, facts: RoundFacts) -> npt.NDArray[np.float64]:
        """``[M]``."""
        if self._last is None or self._last[0] is not facts:
            states = (facts.drafter_hidden.astype(np.float64), facts.target_hidden.astype(np.float64))
            csi = np.repeat(csi_features(self.link)[None], len(facts.found), axis=0)
            self._last = facts, DecisionHead(self.weights, 0.0).rejection_probs(*states, csi)
        return self._last[1]


@dataclass(frozen=True, slots=True)
class HeadRule:
    linked: LinkedHead
    threshold: float

    def accepts(self, facts: RoundFacts) -> Sequence[bool]:
        passes = DecisionHead(self.linked.weights, self.threshold).passes(self.linked.rejection_probs(facts))
        return [bool(one) for one in passes]


@dataclass(frozen=True, slots=True)
class ProbabilityRule:
    least_prob: float

    def accepts(self, facts: RoundFacts) -> Sequence[bool]:
        return [bool(prob >= self.least_prob) for prob in facts.draft_probs]


@dataclass(frozen=True, slots=True)
class RankRule:
    """Accept draft tokens among the target's ``most`` most probable."""

    most: int

    def accepts(self, facts: RoundFacts) -> Sequence[bool]:
        return [bool(rank < self.most) for rank in facts.draft_ranks]


@dataclass(frozen=True, slots=True)
class FlyRule:
    """Accept where the target hesitates and agrees with the next ``agreeing`` draft tokens (FLy, arXiv 2511.22972).

    What hesitates has ``least_entropy``; a mismatch with fewer draft tokens behind it is rejected.
    """

    least_entropy: float
    agreeing: int

    def accepts(self, facts: RoundFacts) -> Sequence[bool]:
        behind = (*facts.found[1:], len(facts.draft))  # where the draft ends it cannot be seen to agree
        return [
            bool(entropy >= self.least_entropy and following - place > self.agreeing)
            for place, following, entropy in zip(facts.found, behind, facts.entropies, strict=True)
        ]


HEAD_FREE: Mapping[str, MismatchRule] = {
    **{f"probability >= {least}": ProbabilityRule(least) for least in (0.5, 0.4, 0.3, 0.2, 0.1, 0.05)},
    **{f"rank <= {most}": RankRule(most) for most in (2, 3)},
}
FLY: Mapping[str, MismatchRule] = {
    f"FLy {least} nats, {agreeing} agree": FlyRule(least, agreeing) for agreeing in (6, 4, 2) for least in (0.3, 0.6)
}


_MOST_DRAFTED = 3  # tokens of a slice
_BEGUN = 2  # tasks started per pass beside the running ones: each grows into many texts


@dataclass(frozen=True, slots=True)
class AnswerCounts:
    rounds: int = 0
    accepted: int = 0  # draft tokens
    judged: int = 0  # mismatches decided: those that passed, and the rejection that ended a block
    overrides: int = 0  # mismatches that passed


@dataclass(frozen=True, slots=True)
class Decoded:
    answer_ids: tuple[int, ...]
    score: float
    counts: AnswerCounts


@dataclass(slots=True, eq=False)
class _State:
    """One task's answer, as far as some rules have committed it alike."""

    number: int
    asked: EncodedTask
    rules: dict[str, AnswerCounts]
    target: PagedText
    drafter: PagedText
    left: int  # tokens that may still be drafted in this round

    @property
    def answer_ids(self) -> list[int]:
        return self.target.token_ids[len(self.asked.prompt_ids) :]


def decode(
    pair: Pair,
    tasks: Sequence[EncodedTask],
    rules: Mapping[str, MismatchRule],
    *,
    window_tokens: int,
    batch: int,
    rounding: Rounding = as_computed,
    progress: bool = True,
) -> dict[str, list[Decoded]]:
    """Decode every task by every rule; answers in the order of the tasks.

    ``pair`` has KV for ``batch`` texts of prompt, answer and window; ``rounding`` is what the link's encoding does to a
    drafter's hidden states. A round drafts ``window_tokens``, fewer at the end of an answer.
    """
    decoded: dict[str, dict[int, Decoded]] = {name: {} for name in rules}
    most = window_tokens if any(isinstance(rule, FlyRule) for rule in rules.values()) else _MOST_DRAFTED
    live: list[_State] = []
    coming = list(reversed(list(enumerate(tasks))))
    with tqdm(total=len(tasks) * len(rules), desc="decoding", unit="answer", disable=not progress) as bar:
        while live or coming:
            for _ in range(min(_BEGUN, len(coming), batch - len(live))):
                number, asked = coming.pop()
                start = list(asked.prompt_ids)
                texts, left = (PagedText(start), PagedText([*start])), min(window_tokens, asked.most_tokens - 1)
                live.append(_State(number, asked, dict.fromkeys(rules, AnswerCounts()), *texts, left))
            live.sort(key=lambda state: state.number)  # finish a task before others take its place
            chosen, live = live[:batch], live[batch:]
            _make_room(pair, chosen, live, most)
            facts = _compute_slice(pair, chosen, rounding, most)
            for state, fact in zip(chosen, facts, strict=True):
                for after in _parted(pair, state, fact, rules, window_tokens):
                    if not _complete(pair, after):
                        live.append(after)
                        continue
                    score = pair.score(after.asked.task, after.answer_ids)
                    for name, counts in after.rules.items():
                        decoded[name][after.number] = Decoded(tuple(after.answer_ids), score, counts)
                    _release(pair, after)
                    bar.update(len(after.rules))
    return {name: [own[number] for number in range(len(tasks))] for name, own in decoded.items()}


def _make_room(pair: Pair, chosen: Sequence[_State], others: Sequence[_State], most: int) -> None:
    """Evict KV of states outside this pass, the last ones first, until the pool is sure to hold the chosen ones."""
    for texts, side in ((pair.target, "target"), (pair.drafter, "drafter")):
        own = [getattr(state, side) for state in chosen]
        # One more each, as a text that writes into a shared block takes a block of its own for it.
        needed = sum(texts.blocks_for(len(text.token_ids) + most) - len(text.blocks) + 1 for text in own)
        for state in reversed(others):
            if texts.free_blocks >= needed:
                break
            texts.release(getattr(state, side))


def _compute_slice(pair: Pair, states: Sequence[_State], rounding: Rounding, most: int) -> list[RoundFacts]:
    """Draft up to ``most`` tokens of each, then verify all drafts in one pass."""
    drafts, hidden = _drafted(pair, states, most)
    for state, draft in zip(states, drafts, strict=True):
        state.target.extend(draft)
    counts = [len(draft) + 1 for draft in drafts]
    rows = pair.target.run([state.target for state in states], counts, want_hidden=True)
    facts = []
    for at, (draft, choices, own) in enumerate(zip(drafts, rows.choices(), hidden, strict=True)):
        found = mismatches(choices, draft)
        judged = _probs_ranks_entropies(rows, at, found, [draft[place] for place in found])
        states_there = rounding(own[list(found)]) if found else own[:0]
        facts.append(RoundFacts(draft, choices, found, states_there, rows.hidden_of(at, found), *judged))
    return facts


def _drafted(pair: Pair, states: Sequence[_State], most_tokens: int) -> tuple[list[list[int]], list[FloatRow]]:
    """Draft greedy chains; return them with ``[K, d]`` states that their tokens were chosen from.

    A chain ends with an end-of-sequence token; the last token that an answer may have is not drafted.
    """
    drafts: list[list[int]] = [[] for _ in states]
    hidden: list[list[FloatRow]] = [[] for _ in states]
    most = [min(most_tokens, state.left) for state in states]
    going = [at for at, limit in enumerate(most) if limit > 0]
    while going:
        rows = pair.drafter.run([states[at].drafter for at in going], [1] * len(going), want_hidden=True)
        for place, (at, (token_id,)) in enumerate(zip(going, rows.choices(), strict=True)):
            hidden[at].append(rows.hidden_of(place, [0]))
            drafts[at].append(token_id)
            states[at].drafter.extend([token_id])
        going = [at for at in going if len(drafts[at]) < most[at] and not pair.ends(drafts[at][-1])]
    nothing = np.empty((0, pair.drafter_width), np.float32)
    return drafts, [np.concatenate(own) if own else nothing for own in hidden]


def _probs_ranks_entropies(
    rows: TextRows, text: int, found: Sequence[int], token_ids: Sequence[int]
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int64], npt.NDArray[np.float64]]:
    """What ``RoundFacts`` tells of the target at some rows of a text; the first two are of one token of each."""
    if not found:
        return np.empty(0), np.empty(0, np.int64), np.empty(0)
    logits = rows.logits[[rows.starts[text] + place for place in found]].double()
    own = logits[torch.arange(len(found)), torch.tensor(token_ids, device=logits.device)]
    total = logits.logsumexp(-1)
    first = logits.topk(3, dim=-1).values - total[:, None]
    entropies = -(first.exp() * first).sum(-1)
    return (own - total).exp().cpu().numpy(), (logits > own[:, None]).sum(-1).cpu().numpy(), entropies.cpu().numpy()


def _parted(
    pair: Pair, state: _State, facts: RoundFacts, rules: Mapping[str, MismatchRule], window_tokens: int
) -> list[_State]:
    """Split a state into one per set of rules that commit the same tokens; consumes the state's texts."""
    left = state.left - len(facts.draft)
    last = left == 0 or pair.ends(facts.draft[-1])
    groups: dict[BlockDecision, dict[str, AnswerCounts]] = {}
    for name, counts in state.rules.items():
        accepted = rules[name].accepts(facts) if facts.found else ()
        decision = semantic_decision(facts.choices, facts.draft, accepted, bonus=last)
        groups.setdefault(decision, {})[name] = _counted(counts, facts, decision)
    before = len(state.target.token_ids) - len(facts.draft)
    parted = []
    for decision, own in groups.items():
        after = () if decision.token_after is None else (decision.token_after,)
        committed = _ended(pair, [*facts.draft[: decision.accepted_len], *after])
        target, drafter = (
            texts.fork(text, min(before + min(len(committed), decision.accepted_len), len(text.token_ids)))
            for texts, text in ((pair.target, state.target), (pair.drafter, state.drafter))
        )
        for text in (target, drafter):
            text.extend(committed[len(text.token_ids) - before :])
        room = state.asked.most_tokens - (before - len(state.asked.prompt_ids) + len(committed))
        parted.append(
            _State(state.number, state.asked, own, target, drafter, min(window_tokens, room - 1) if after else left)
        )
    _release(pair, state)
    return parted


def _ended(pair: Pair, token_ids: Sequence[int]) -> list[int]:
    """Cut behind the first end-of-sequence token."""
    kept: list[int] = []
    for token_id in token_ids:
        kept.append(token_id)
        if pair.ends(token_id):
            break
    return kept


def _counted(counts: AnswerCounts, facts: RoundFacts, decision: BlockDecision) -> AnswerCounts:
    rejected = decision.accepted_len < len(facts.draft)
    return replace(
        counts,
        rounds=counts.rounds + (decision.token_after is not None),
        accepted=counts.accepted + decision.accepted_len,
        judged=counts.judged + len(decision.overrides) + rejected,
        overrides=counts.overrides + len(decision.overrides),
    )


def _complete(pair: Pair, state: _State) -> bool:
    answer = state.answer_ids
    return len(answer) >= state.asked.most_tokens or pair.ends(answer[-1])


def _release(pair: Pair, state: _State) -> None:
    pair.target.release(state.target)
    pair.drafter.release(state.drafter)

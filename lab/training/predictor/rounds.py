"""Rounds of a pair in this process, and which of its draft tokens were accepted.

Acceptance of a draft token depends on the tokens before it, its row and the target's, with noise fixed by its
position; nothing drafted behind it matters. So both models advance one position at a time, batched over many texts,
and each token that a verification would reach is drafted and tested as it would be there. The result is that of whole
blocks (``test_rounds`` compares), without the tokens behind a rejection, which no training uses.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from lab.training.head.paged_texts import PagedText
from lab.training.head.pair import Pair
from lab.training.predictor.drafted import DraftedTokens, Floats, together
from outrider.contracts.errors import ParameterError
from outrider.contracts.exchanged import FloatRow, WireFormat
from outrider.contracts.requests import MAX_SEED, SamplingParams
from outrider.contracts.verifying import AcceptanceRule
from outrider.drafting.features import FEATURE_NAMES, DraftFeatures
from outrider.protocols.protocol import DraftProtocol, DrawnRow, Layer
from outrider.protocols.registry import PROTOCOLS
from outrider.sampling.choosing import choose_tokens, target_probs
from outrider.sampling.logits import adjust_logits
from outrider.sampling.row_groups import RowGroup
from outrider.verification.decision import BlockDecision
from outrider.verification.matching import match
from outrider.verification.ratio_block import RatioBlock
from outrider.verification.speculative import verify_ratio

_SEED_STRIDE = 0x9E3779B97F4A7C15


@dataclass(frozen=True, slots=True)
class Request:
    prompt: int  # index of its prompt
    prompt_ids: tuple[int, ...]  # the prompt's tokens
    params: SamplingParams  # of sampling, with a seed of its own
    most_tokens: int  # length limit of the response


def requests_of(
    prompts: Sequence[Sequence[int]], temperatures: Sequence[float], most_tokens: int, seed: int
) -> list[Request]:
    """Combine each prompt with each temperature, no two with the same noise."""
    pairs = [(index, temperature) for index in range(len(prompts)) for temperature in temperatures]
    return [
        Request(
            index,
            tuple(prompts[index]),
            SamplingParams(temperature=temperature, seed=(seed + number * _SEED_STRIDE) & MAX_SEED),
            most_tokens,
        )
        for number, (index, temperature) in enumerate(pairs)
    ]


def protocol_of(rule: AcceptanceRule, params: SamplingParams, wire: WireFormat) -> DraftProtocol:
    """The first protocol that verifies a request's chains by a rule, without a decision head.

    Raises:
        ParameterError: there is none at this temperature.
    """
    for protocol in PROTOCOLS.values():
        if protocol.chains and not protocol.judged and protocol.rule(params, wire) is rule:
            return protocol
    fitting = "above 0" if params.greedy else "0"
    raise ParameterError("temperatures", f"{fitting} for the rule {rule}", params.temperature)


class _ResponseInProgress:
    def __init__(self, number: int, request: Request, protocol: DraftProtocol, wire: WireFormat) -> None:
        self.number, self.depth = number, 0  # depth: accepted tokens of the present round
        self.target, self.drafter = (PagedText(list(request.prompt_ids)) for _ in range(2))
        self._request, self._protocol, self._wire = request, protocol, wire
        self._features: list[Floats] = []
        self._accepted: list[int] = []

    @property
    def room(self) -> int:
        """Tokens that may still be generated."""
        return self._request.most_tokens + len(self._request.prompt_ids) - len(self.target.token_ids)

    @property
    def group(self) -> RowGroup:
        """Sampling state of the next position, the same for both models."""
        return RowGroup(self._request.params, len(self.target.token_ids), None, (), 1)

    def draw(self, logits: FloatRow) -> DrawnRow:
        """Draw the next draft token from ``[1, vocab]`` adjusted logits."""
        layer = Layer(self._wire, self._request.params, len(self.target.token_ids), 1)
        known = self._protocol.rows(logits, layer)
        self._features.append(DraftFeatures(known[0].probs).vector)
        (drawn,) = self._protocol.draw(known, layer)
        return drawn

    def ratio_block(self, drawn: DrawnRow) -> RatioBlock:
        params = self._request.params
        distribution = self._protocol.distribution([drawn], self._wire, params)
        position = len(self.target.token_ids)
        return RatioBlock(drawn.token_ids, None, distribution, False, False, None, params.seed, position)

    def verified(self, token_id: int, verdict: BlockDecision) -> None:
        """Commit a draft token, or its correction."""
        self._accepted.append(verdict.accepted_len)
        self.depth = self.depth + 1 if verdict.accepted_len else 0
        self._commit(token_id if verdict.token_after is None else verdict.token_after)

    def bonus(self, token_id: int) -> None:
        """Commit a token that was not drafted."""
        self.depth = 0
        self._commit(token_id)

    def tokens(self) -> DraftedTokens:
        count = len(self._accepted)
        return DraftedTokens(
            features=np.array(self._features, np.float64).reshape(count, len(FEATURE_NAMES)),
            accepted=np.array(self._accepted, np.int64),
            temperature=np.full(count, self._request.params.temperature),
            prompt=np.full(count, self._request.prompt, np.int64),
        )

    def _commit(self, token_id: int) -> None:
        self.target.extend([token_id])
        self.drafter.extend([token_id])


def drafted_tokens(
    pair: Pair,
    requests: Sequence[Request],
    rule: AcceptanceRule,
    *,
    window_tokens: int,
    batch: int,
    on_written: Callable[[int], None] = lambda _tokens: None,
) -> DraftedTokens:
    """Decode speculatively; return which draft tokens were accepted.

    ``pair`` has KV for ``batch`` texts of prompt and response. A fully accepted block of ``window_tokens`` is followed
    by the target's token, undrafted.

    Raises:
        ParameterError: no protocol verifies a request by this rule.
    """
    wire = WireFormat(pair.models.target.vocab_size)
    coming = [
        _ResponseInProgress(number, request, protocol_of(rule, request.params, wire), wire)
        for number, request in enumerate(requests)
    ]
    coming.reverse()
    live: list[_ResponseInProgress] = []
    done: dict[int, DraftedTokens] = {}
    while live or coming:
        while coming and len(live) < batch:
            live.append(coming.pop())
        _write_next(pair, live, rule, window_tokens)
        on_written(len(live))
        for one in live:
            if one.room == 0 or pair.ends(one.target.token_ids[-1]):
                pair.target.release(one.target)
                pair.drafter.release(one.drafter)
                done[one.number] = one.tokens()
        live = [one for one in live if one.number not in done]
    return together([done[number] for number in range(len(requests))])


@torch.inference_mode()
def _write_next(pair: Pair, live: Sequence[_ResponseInProgress], rule: AcceptanceRule, window_tokens: int) -> None:
    """Commit one token of each response: drafted and verified, except behind a whole block and at the end."""
    logits = pair.target.run([one.target for one in live], [1] * len(live)).logits
    chosen = choose_tokens(logits, [one.group for one in live])
    choices = chosen.tolist()
    at = [index for index, one in enumerate(live) if one.depth < window_tokens and one.room > 1]
    drafting = [live[index] for index in at]
    drawn = _draw(pair, drafting)
    if rule is AcceptanceRule.RATIO:
        rows = torch.tensor(at, dtype=torch.int64, device=logits.device)
        verdicts = _verify_ratio(logits[rows], drafting, drawn, chosen[rows])
    else:
        verdicts = [match([choices[index]], row.token_ids, bonus=False) for index, row in zip(at, drawn, strict=True)]
    for one, row, verdict in zip(drafting, drawn, verdicts, strict=True):
        one.verified(row.token_ids[0], verdict)
    for index in sorted(set(range(len(live))) - set(at)):
        live[index].bonus(choices[index])


def _draw(pair: Pair, drafting: Sequence[_ResponseInProgress]) -> list[DrawnRow]:
    """Draw the next token of each draft; record the features of its row."""
    if not drafting:
        return []
    rows = pair.drafter.run([one.drafter for one in drafting], [1] * len(drafting))
    adjusted = adjust_logits(rows.logits, [one.group for one in drafting]).cpu().numpy()
    return [one.draw(adjusted[at : at + 1]) for at, one in enumerate(drafting)]


def _verify_ratio(
    logits: torch.Tensor, drafting: Sequence[_ResponseInProgress], drawn: Sequence[DrawnRow], choices: torch.Tensor
) -> list[BlockDecision]:
    if not drafting:
        return []
    probs = target_probs(logits, [one.group for one in drafting])
    return verify_ratio(probs, [one.ratio_block(row) for one, row in zip(drafting, drawn, strict=True)], choices)

"""The target's responses, which rounds commit whatever is drafted."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

import torch

from lab.training.head.paged_texts import PagedText, PagedTexts
from outrider.contracts.requests import SamplingParams
from outrider.sampling.choosing import choose_tokens
from outrider.sampling.row_groups import RowGroup


@dataclass(frozen=True, slots=True)
class Text:
    """A response of the target.

    Attributes:
        token_ids: of the response, with its end-of-sequence token if it has one.
    """

    prompt_ids: tuple[int, ...]
    params: SamplingParams
    token_ids: tuple[int, ...]


@torch.inference_mode()
def write_texts(
    target: PagedTexts,
    asked: Sequence[tuple[tuple[int, ...], SamplingParams]],
    most_tokens: int,
    end_ids: Collection[int],
    on_token: Callable[[int], object] = lambda _tokens: None,
) -> list[Text]:
    """Write responses to all prompts in one batch.

    Args:
        target: with KV for all of them.
        asked: prompts, with the sampling of each response.
        most_tokens: of a response.
        end_ids: tokens that end a response.
        on_token: called with the tokens of each pass.
    """
    written = [PagedText(list(prompt_ids)) for prompt_ids, _ in asked]
    live = list(range(len(asked)))
    for _ in range(most_tokens):
        texts = [written[i] for i in live]
        groups = [RowGroup(asked[i][1], len(written[i].token_ids), None, (), 1) for i in live]
        chosen = choose_tokens(target.run(texts, [1] * len(texts)).logits, groups).tolist()
        for text, token_id in zip(texts, chosen, strict=True):
            text.extend([token_id])
        on_token(len(live))
        live = [i for i in live if written[i].token_ids[-1] not in end_ids]
        if not live:
            break
    return [
        Text(prompt_ids, params, tuple(text.token_ids[len(prompt_ids) :]))
        for text, (prompt_ids, params) in zip(written, asked, strict=True)
    ]

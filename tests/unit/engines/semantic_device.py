"""The parts around a semantic round: a judge, a device's hidden states, and what the target alone makes of a block."""

import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from transformers import LlamaForCausalLM

from outrider.contracts.exchanged import FloatRow
from outrider.contracts.link import Csi
from outrider.contracts.verifying import AcceptanceRule, Block, Resolution
from outrider.verification.decision import BlockDecision
from outrider.verification.semantic import MismatchQuestion
from tests.unit.engines.conftest import VOCAB, tiny_llama
from tests.unit.engines.reference import Client

WIDTH = 3  # of the device's hidden states
BAD_LINK = Csi(20e6, 20e6, per_up=0.9, per_down=0.0, rtt_s=0.05)


@dataclass(frozen=True)
class ThresholdJudge:
    """Lets a mismatch pass by all it is shown: both hidden states and the link."""

    drafter_width: int = WIDTH

    def accepts(self, questions: Sequence[MismatchQuestion]) -> Sequence[Sequence[bool]]:
        return [self.answer(one.drafter_hidden, one.target_hidden, one.channel) for one in questions]

    def answer(self, drafter_hidden: FloatRow, target_hidden: FloatRow, channel: Csi | None) -> Sequence[bool]:
        assert len(drafter_hidden) == len(target_hidden) > 0
        lenience = 0.0 if channel is None else channel.per_up
        passes: list[bool] = (drafter_hidden[:, 0] + lenience > np.tanh(target_hidden[:, 0])).tolist()
        return passes


PASSES, FAILS = 5.0, -5.0  # first numbers of hidden states that this judge lets pass, or not, whatever the target's


def hidden_states(*first: float) -> FloatRow:
    """``[len(first), WIDTH]``."""
    rows = np.zeros((len(first), WIDTH), np.float32)
    rows[:, 0] = first
    return rows


@functools.cache
def _reference_model() -> LlamaForCausalLM:
    model = tiny_llama()
    model.set_attn_implementation("eager")
    return model


@functools.cache
@torch.inference_mode()
def plain_rows(token_ids: tuple[int, ...]) -> tuple[torch.Tensor, FloatRow]:
    """Logits ``[n, VOCAB]`` and final-norm hidden states ``[n, d]``: one plain forward pass."""
    model = _reference_model()
    hidden = model.model(input_ids=torch.tensor([token_ids]), use_cache=False).last_hidden_state[0]
    return model.lm_head(hidden)[:, :VOCAB], hidden.numpy()


def plain_choices(client: Client, block: Block) -> list[int]:
    """The greedy target's token at each of a chain's K + 1 rows."""
    context = [*client.tokens, *block.forced]
    logits, _ = plain_rows((*context, *block.draft))
    chosen: list[int] = logits[len(context) - 1 :].argmax(dim=-1).tolist()
    return chosen


def plain_mismatches(client: Client, block: Block) -> tuple[int, ...]:
    """Where a chain differs from the greedy target."""
    choices = plain_choices(client, block)
    return tuple(i for i, token_id in enumerate(block.draft) if choices[i] != token_id)


def plain_semantic(client: Client, block: Block, hidden: FloatRow, channel: Csi | None) -> BlockDecision:
    """What a semantic block comes to, if the device's states are ``hidden`` ``[K, WIDTH]``; token by token."""
    context, choices, path = [*client.tokens, *block.forced], plain_choices(client, block), list[int]()
    _, states = plain_rows((*context, *block.draft))
    for i, token_id in enumerate(block.draft):
        state = states[len(context) - 1 + i]
        if token_id != choices[i] and not ThresholdJudge().answer(hidden[i : i + 1], state[None], channel)[0]:
            return BlockDecision(tuple(path), choices[i])
        path.append(i)
    return BlockDecision(tuple(path), choices[-1] if block.bonus else None)


def semantic_block(
    client: Client,
    draft: Sequence[int],
    *,
    hidden: FloatRow | None = None,
    channel: Csi | None = None,
    bonus: bool = True,
    forced: Sequence[int] = (),
) -> Block:
    """A chain by the semantic rule; without ``hidden`` in two steps."""
    block = client.block(draft, rule=AcceptanceRule.SEMANTIC, bonus=bonus, forced=forced)
    return replace(block, hidden=hidden, channel=channel)


def draft_with(client: Client, wrong: Sequence[bool], forced: Sequence[int] = ()) -> list[int]:
    """A chain that differs from the greedy target exactly where it is told to."""
    draft: list[int] = []
    for differs in wrong:
        logits, _ = plain_rows((*client.tokens, *forced, *draft))
        draft.append((int(logits[-1].argmax()) + differs) % VOCAB)
    return draft


def resolution(block: Block, hidden: FloatRow) -> Resolution:
    """The second step of a block."""
    return Resolution(block.generation, block.round, hidden)

"""The prompts of ``vllm bench serve``: random tokens, and conversations of ShareGPT.

The same tokenizer, lengths and seed give the prompts and output lengths that vLLM 0.32 draws.
"""

import json
import math
import random
from pathlib import Path

import numpy as np
from transformers import PreTrainedTokenizerBase

from outrider.contracts.errors import ParameterError

_RETRIES = 10  # of re-encoding a random prompt to its length
_MIN_TOKENS, _MAX_PROMPT_TOKENS, _MAX_TOTAL_TOKENS = 4, 1024, 2048  # of a conversation that is used

Bodies = list[dict[str, object]]  # of completions: ``prompt`` and ``max_tokens``


def random_prompts(
    tokenizer: PreTrainedTokenizerBase, count: int, lengths: tuple[int, int], range_ratio: float, seed: int
) -> Bodies:
    """Texts of consecutive token ids from a random one on; they go on to their output's length whatever the model says.

    Args:
        tokenizer: of the served model.
        count: number of prompts.
        lengths: tokens of prompt and output; special tokens that the tokenizer adds count as the prompt's.
        range_ratio: lengths are uniform within this share of ``lengths``, in [0, 1).
        seed: of lengths and tokens.
    """
    rng = np.random.default_rng(seed)
    means = max(1, lengths[0] - tokenizer.num_special_tokens_to_add()), lengths[1]
    input_tokens, output_tokens = (
        rng.integers(max(1, math.floor(mean * (1 - range_ratio))), math.ceil(mean * (1 + range_ratio)) + 1, size=count)
        for mean in means
    )
    offsets = rng.integers(0, tokenizer.vocab_size, size=count)
    allowed = np.array(sorted(set(range(tokenizer.vocab_size)) - set(tokenizer.all_special_ids)))
    return [
        {
            "prompt": _text_of(tokenizer, allowed[(offsets[i] + i + np.arange(length)) % len(allowed)].tolist(), rng),
            "max_tokens": int(output_tokens[i]),
            "ignore_eos": True,
        }
        for i, length in enumerate(input_tokens)
    ]


def _text_of(tokenizer: PreTrainedTokenizerBase, ids: list[int], rng: np.random.Generator) -> str:
    """A text of as many tokens as ``ids``: encoding may merge or split them, so its end is changed until it fits."""
    length = len(ids)
    text = str(tokenizer.decode(ids))
    for _ in range(_RETRIES):
        ids = tokenizer.encode(text, add_special_tokens=False)
        if len(ids) == length:
            break
        ids = [*ids, *rng.integers(0, tokenizer.vocab_size, size=max(0, length - len(ids))).tolist()][:length]
        text = str(tokenizer.decode(ids))
    return text


def sharegpt_prompts(
    tokenizer: PreTrainedTokenizerBase, count: int, file: Path, output_tokens: int | None, seed: int
) -> Bodies:
    """First turns of shuffled conversations of at least two; some occur again where too few are usable.

    Args:
        tokenizer: of the served model.
        count: number of prompts.
        file: JSON of ShareGPT: a list of ``{"conversations": [{"value": text}, ...]}``.
        output_tokens: of every answer; None: of the conversation's second turn.
        seed: of the order.

    Raises:
        ParameterError: the file is not of this form, or no conversation is usable: a prompt of 4 to 1,024 tokens, an
            answer of at least 4 (unless ``output_tokens`` is given), both at most 2,048.
    """
    entries = [turns for turns in _conversations(file) if len(turns) > 1]
    random.Random(seed).shuffle(entries)  # noqa: S311
    found: Bodies = []
    for prompt, answer in entries:
        if len(found) == count:
            return found
        prompt_tokens = len(tokenizer(prompt)["input_ids"])
        length = len(tokenizer(answer)["input_ids"]) if output_tokens is None else output_tokens
        if (
            _MIN_TOKENS <= prompt_tokens <= _MAX_PROMPT_TOKENS
            and prompt_tokens + length <= _MAX_TOTAL_TOKENS
            and (length >= _MIN_TOKENS or output_tokens is not None)
        ):
            found.append({"prompt": prompt, "max_tokens": length})
    if not found:
        raise ParameterError(str(file), "a conversation of usable length", f"none of {len(entries)}")
    again = random.Random(seed)  # noqa: S311
    return found + [again.choice(found) for _ in range(count - len(found))]


def _conversations(file: Path) -> list[list[str]]:
    """The first two turns of each conversation, or the one that there is."""
    needed = 'JSON of ShareGPT, [{"conversations": [{"value": "text"}, ...]}, ...]; name such a file by --dataset-path'
    try:
        entries = json.loads(file.read_text("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ParameterError(str(file), needed, str(error)) from error
    if not isinstance(entries, list):
        raise ParameterError(str(file), needed, f"a {type(entries).__name__}")
    found = []
    for number, entry in enumerate(entries, 1):
        turns = entry.get("conversations", []) if isinstance(entry, dict) else None
        if not isinstance(turns, list) or not all(map(_is_turn, turns[:2])):
            raise ParameterError(f"{file}, entry {number},", needed, entry)
        found.append([turn["value"] for turn in turns[:2]])
    return found


def _is_turn(turn: object) -> bool:
    return isinstance(turn, dict) and isinstance(turn.get("value"), str)

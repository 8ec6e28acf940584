"""A tiny target, a drafter that mostly agrees with it, and tasks whose right answers are from the target's own."""

from pathlib import Path

import torch

from lab.training.head.pair import LoadedPair, PairSpec, load_pair
from lab.training.tasks.task import Check, Task
from tests.unit.models.tiny_models import EOS, save_model, tiny_model

LIMIT = 14  # tokens of an answer


def save_pair(folder: Path, noise: float = 0.02) -> tuple[str, str]:
    """Folders of a target and of the same with noise on its weights."""
    model = tiny_model("llama", tied=False)
    target = save_model(folder / "target", model)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for values in model.parameters():
            values.add_(torch.randn(values.shape, generator=generator), alpha=noise)
    return str(target), str(save_model(folder / "drafter", model))


def load(spec: tuple[str, str]) -> LoadedPair:
    """In float32: the order of sums does not show in a choice."""
    return load_pair(PairSpec(*spec, dtype="float32", drafter_dtype="float32"))


@torch.inference_mode()
def greedy(models: LoadedPair, ids: list[int], stop: int) -> list[int]:
    """The target's plain greedy continuation, one whole forward pass a token, up to a length of ``stop``."""
    ids = list(ids)
    while len(ids) < stop and (not ids or ids[-1] != EOS):
        logits = models.target.model(input_ids=torch.tensor([ids]), use_cache=False).logits[0, -1]
        ids.append(int(logits[: models.target.vocab_size].argmax()))
    return ids


@torch.inference_mode()
def rows(models: LoadedPair, side: str, ids: list[int]) -> tuple[list[int], torch.Tensor]:
    """The argmax of each row of a text, and ``[N, d]`` its final-norm hidden states."""
    loaded = models.target if side == "target" else models.drafter
    inputs = torch.tensor([ids])
    logits = loaded.model(input_ids=inputs, use_cache=False).logits[0, :, : loaded.vocab_size]
    return logits.argmax(-1).tolist(), loaded.model.base_model(input_ids=inputs, use_cache=False).last_hidden_state[0]


def tasks(models: LoadedPair, count: int, limit: int = LIMIT) -> list[Task]:
    """Parts are words of the first half of the target's own answer, in order: what is replaced later is harmless."""
    made = []
    for number in range(count):
        prompt = f"w{number % 40} w{(number * 7 + number // 40) % 40} w{(number * number) % 40}"
        start = list(models.target.tokenizer(prompt)["input_ids"])
        answer = greedy(models, start, len(start) + limit)[len(start) :]
        words = str(models.target.tokenizer.decode(answer, skip_special_tokens=True)).split()
        made.append(Task(f"task-{number}", "tiny", prompt, tuple(words[1:7:2] or ["w0"]), Check.IN_ORDER))
    return made

"""Target and drafter in this process, computing as in service."""

from dataclasses import dataclass, replace

import torch

from lab.training.head.paged_texts import PagedTexts
from lab.training.tasks.task import Task
from outrider.contracts.errors import ParameterError
from outrider.engines.kinds import DrafterSpec
from outrider.engines.limits import EngineLimits
from outrider.engines.torch.kind import TORCH_VERIFIER, drafter_dtype, loaded_drafter
from outrider.engines.torch.served import draft_model, target_model
from outrider.models.loading import LoadedModel, load_target
from outrider.training.traces import prompt_ids

_BLOCK_TOKENS = 16


@dataclass(frozen=True, slots=True)
class PairSpec:
    """Models and data types; ``auto`` is what a service on this machine would use."""

    target: str  # name or path
    drafter: str  # name, path or a distilled file
    dtype: str = "auto"  # of the target
    drafter_dtype: str = "auto"
    device: str = "cpu"


@dataclass(frozen=True, slots=True)
class LoadedPair:
    """A loaded pair; ``paged`` consumes it."""

    spec: PairSpec  # with every ``auto`` resolved
    target: LoadedModel
    drafter: LoadedModel


@dataclass(frozen=True, slots=True)
class EncodedTask:
    task: Task
    prompt_ids: tuple[int, ...]
    most_tokens: int  # length limit of an answer


@dataclass(frozen=True, slots=True)
class Pair:
    models: LoadedPair
    target: PagedTexts
    drafter: PagedTexts

    @property
    def drafter_width(self) -> int:
        return int(self.models.drafter.model.config.get_text_config(decoder=True).hidden_size)

    def ends(self, token_id: int) -> bool:
        return token_id in self.models.target.eos_token_ids

    def score(self, task: Task, answer_ids: list[int]) -> float:
        return task.score(str(self.models.target.tokenizer.decode(answer_ids, skip_special_tokens=True)))


def load_pair(spec: PairSpec) -> LoadedPair:
    """Load both models.

    Raises:
        ModelUnavailableError: either cannot be loaded.
        VocabularyMismatchError: the models disagree on a token.
        ParameterError: a data type is unknown or not supported on this device.
    """
    dtype = TORCH_VERIFIER.settled_dtype(spec.dtype, spec.device, spec.target)
    asked = DrafterSpec("torch", spec.drafter, spec.target, spec.drafter_dtype, spec.device, 1, EngineLimits(None))
    settled = replace(spec, dtype=dtype, drafter_dtype=drafter_dtype(asked))
    target = load_target(spec.target, dtype=dtype, device=spec.device)
    return LoadedPair(settled, target, loaded_drafter(asked))


def paged(models: LoadedPair, texts: int, tokens: int) -> Pair:
    """Give each model KV for ``texts`` texts of ``tokens`` tokens; call once."""
    blocks = texts * -(-tokens // _BLOCK_TOKENS)
    parts = torch.get_num_threads()
    target = target_model(models.target.model, blocks, _BLOCK_TOKENS, parts)
    drafter = draft_model(models.drafter.model, blocks, _BLOCK_TOKENS)
    return Pair(models, PagedTexts(target, models.target.vocab_size), PagedTexts(drafter, models.drafter.vocab_size))


def ask(models: LoadedPair, tasks: list[Task], max_new_tokens: int) -> list[EncodedTask]:
    """Encode tasks for the target.

    Raises:
        ParameterError: a prompt leaves no room for an answer of ``max_new_tokens``.
    """
    most = min(models.target.max_context_tokens, models.drafter.max_context_tokens)
    asked = [
        EncodedTask(task, tuple(prompt_ids(models.target.tokenizer, task.prompt)), max_new_tokens) for task in tasks
    ]
    for one in asked:
        if len(one.prompt_ids) + max_new_tokens > most:
            raise ParameterError(
                "tasks",
                f"prompts of at most {most - max_new_tokens} tokens, as answers may have {max_new_tokens} and the "
                f"pair's context is {most}",
                f"{len(one.prompt_ids)} in task {one.task.key}",
            )
    return asked

"""Recorded responses and drafts of the real models, so that an emulated device drafts without computing.

A target's greedy response to a prompt is one sequence, whatever is drafted for it. So a drafter runs only once at every
point of that sequence, and a device looks its drafts up. Recordings are kept in the user's cache folder under a name
that includes the models.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from pydantic import TypeAdapter
from tqdm import tqdm
from transformers import PreTrainedTokenizerBase

from lab.bench.harness.prompts import PROMPTS
from lab.training.predictor.pair_names import pair_names
from outrider.contracts.drafting import Draft, DrafterEngine, DraftPlan, DraftRequest, DraftTerms
from outrider.contracts.exchanged import WireFormat
from outrider.contracts.prefix import EMPTY_PREFIX_HASH, extend_prefix_hash
from outrider.contracts.verifying import OpenGeneration, VerifierEngine
from outrider.costs.driver import GREEDY, GenerationDriver
from outrider.drafting.stopping import Stops, StopSetting
from outrider.engines.drafter.engine import TorchDrafter
from outrider.engines.limits import EngineLimits
from outrider.engines.registry import VERIFIERS
from outrider.engines.torch.verifier import TorchVerifier
from outrider.models.embedded import outrider_home
from outrider.models.folders import EMBEDDED
from outrider.models.loading import load_drafter, load_target
from outrider.models.predictors import load_predictors
from outrider.models.tokenizer import load_tokenizer
from outrider.training.builtin_prompts import builtin_prompts
from outrider.training.traces import is_held_out, prompt_ids

_LIMITS = EngineLimits(kv_budget_bytes=2**28, prefill_chunk_tokens=512)
_AT_ONCE = 16  # responses per batch


@dataclass(frozen=True, slots=True)
class RecordedResponse:
    """One response and the drafts along it.

    Attributes:
        drafts: for each number of committed output tokens, 0 to all but the last, the drafter's greedy draft behind
            them, of the longest window.
    """

    prompt_ids: tuple[int, ...]
    output_ids: tuple[int, ...]  # the target's greedy response, to its end or to the length limit
    drafts: tuple[tuple[int, ...], ...]

    def draft(self, committed: int, window: int) -> tuple[int, ...]:
        """The draft behind ``committed`` output tokens; () past the record's end."""
        return self.drafts[committed][:window] if committed < len(self.drafts) else ()


_RESPONSES = TypeAdapter(tuple[RecordedResponse, ...])


@dataclass(frozen=True, slots=True)
class RecordSettings:
    """Settings of a recording; part of the file's name."""

    target: str = EMBEDDED  # name or path; likewise ``drafter``
    drafter: str = EMBEDDED
    prompts: int = 64  # number of them
    tokens: int = 48  # of a response, upper limit
    k_max: int = 8  # the longest draft
    stopping: str = "never"  # rule that ends a draft before that, by the pair's predictor


def recorded_drafts(settings: RecordSettings) -> tuple[RecordedResponse, ...]:
    """Recorded responses of a pair of models; recorded now if they are not in the cache."""
    tokenizer = load_tokenizer(settings.target)
    prompts = distinct_prompts(tokenizer, settings.prompts)
    names = pair_names(settings.target, settings.drafter)
    dtype = VERIFIERS["torch"].settled_dtype("auto", "cpu", settings.target)  # a service's: so it answers as recorded
    made_of = {
        **asdict(settings),
        "dtype": dtype,
        "target": names.target_hash,
        "drafter": names.drafter_hash,
        "prompt_ids": prompts,
    }
    digest = hashlib.sha256(json.dumps(made_of).encode()).hexdigest()[:20]
    file = outrider_home() / "bench" / f"drafts-{digest}.json"
    if not file.is_file():
        torch.set_num_threads(1)
        write_responses(file, _made(settings, dtype, prompts))
    return read_responses(file)


def distinct_prompts(tokenizer: PreTrainedTokenizerBase, count: int) -> list[tuple[int, ...]]:
    """Token ids of chats that no drafter was trained on. Each differs from all others within its first few tokens.

    So no two share a KV block: the verifier cannot reuse the KV of another response.
    """
    held_out = (text for text in builtin_prompts() if is_held_out(prompt_ids(tokenizer, text)))
    texts = islice((text for texts in (PROMPTS, held_out) for text in texts), count)
    return [tuple(_chat_ids(tokenizer, number, text)) for number, text in enumerate(texts)]


def _chat_ids(tokenizer: PreTrainedTokenizerBase, number: int, text: str) -> list[int]:
    if not tokenizer.chat_template:
        return prompt_ids(tokenizer, f"{number}: {text}")
    messages = [
        {"role": "system", "content": f"{number}: You are a helpful assistant."},
        {"role": "user", "content": text},
    ]
    ids: Any = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=True, return_dict=False)
    return list(ids)


def _stops(settings: RecordSettings) -> StopSetting:
    names = pair_names(settings.target, settings.drafter)
    hashes = {"target_hash": names.target_hash, "drafter_hash": names.drafter_hash}
    return StopSetting(settings.stopping, load_predictors("auto", **hashes))


def _made(settings: RecordSettings, dtype: str, prompts: Sequence[tuple[int, ...]]) -> list[RecordedResponse]:
    target = load_target(settings.target, dtype=dtype, device="cpu")
    verifier = TorchVerifier(target, _LIMITS)
    drafter = recording_drafter(settings, _stops(settings))
    responses: list[RecordedResponse] = []
    with tqdm(total=len(prompts), desc="responses and drafts", disable=None) as bar:
        for start in range(0, len(prompts), _AT_ONCE):
            some = prompts[start : start + _AT_ONCE]
            outputs = greedy_responses(verifier, some, settings.tokens, target.eos_token_ids)
            drafts = greedy_drafts(drafter, some, outputs, settings.k_max, target.vocab_size)
            responses += map(RecordedResponse, some, outputs, drafts)
            bar.update(len(some))
    return responses


def recording_drafter(settings: RecordSettings, stops: Stops | None = None) -> TorchDrafter:
    """The engine whose drafts are recorded; ``stops`` as it takes them."""
    loaded = load_drafter(settings.drafter, settings.target, dtype="bfloat16", device="cpu")
    return TorchDrafter(loaded, _LIMITS, stops)


def greedy_responses(
    engine: VerifierEngine, prompts: Sequence[tuple[int, ...]], tokens: int, eos_token_ids: Sequence[int]
) -> list[tuple[int, ...]]:
    """The target's own responses of at most ``tokens`` tokens, the end-of-sequence token included."""
    driver = GenerationDriver(engine, GREEDY)
    for index, ids in enumerate(prompts):
        driver.open(f"response {index}", ids)
    lengths = dict(zip(driver.tokens, map(len, prompts), strict=True))
    while writing := [
        name
        for name, made in driver.tokens.items()
        if len(made) < lengths[name] + tokens and not (len(made) > lengths[name] and made[-1] in eos_token_ids)
    ]:
        driver.round(dict.fromkeys(writing, ()))
    outputs = [tuple(driver.tokens[name][length:]) for name, length in lengths.items()]
    driver.close(lengths)
    return outputs


def greedy_drafts(
    engine: DrafterEngine,
    prompts: Sequence[tuple[int, ...]],
    outputs: Sequence[tuple[int, ...]],
    k_max: int,
    vocab_size: int,
) -> list[tuple[tuple[int, ...], ...]]:
    """``RecordedResponse.drafts`` of each response."""
    drafts: list[list[tuple[int, ...]]] = [[] for _ in prompts]
    for index, ids in enumerate(prompts):
        engine.open(OpenGeneration(f"draft {index}", ids, GREEDY), DraftTerms(WireFormat(vocab_size)))
    for committed in range(max(map(len, outputs), default=0)):
        asked = [i for i in range(len(prompts)) if committed < len(outputs[i])]
        for index in asked:
            engine.submit(_draft_request(f"draft {index}", prompts[index], outputs[index][:committed], k_max))
        answers: dict[str, Draft] = {}
        while len(answers) < len(asked):
            answers |= {answer.generation: answer for answer in engine.step() if isinstance(answer, Draft)}
        for index in asked:
            drafts[index].append(answers[f"draft {index}"].token_ids)
    for index in range(len(prompts)):
        engine.close(f"draft {index}")
    return [tuple(along) for along in drafts]


def write_responses(file: Path, responses: Sequence[RecordedResponse]) -> None:
    """Write a file that appears complete or not at all."""
    file.parent.mkdir(parents=True, exist_ok=True)
    partial = file.with_name(f"partial-{file.name}")
    partial.write_bytes(_RESPONSES.dump_json(tuple(responses)))
    partial.replace(file)


def read_responses(file: Path) -> tuple[RecordedResponse, ...]:
    return _RESPONSES.validate_json(file.read_bytes())


def _draft_request(name: str, prompt: tuple[int, ...], output: Sequence[int], k_max: int) -> DraftRequest:
    known = max(0, len(output) - 1)  # all but the last are context
    return DraftRequest(
        generation=name,
        round=len(output),
        feedback_position=len(prompt) + known,
        feedback=tuple(output[known:]),
        prefix_hash=extend_prefix_hash(EMPTY_PREFIX_HASH, (*prompt, *output)),
        plan=DraftPlan("token_ids", k_max),
    )

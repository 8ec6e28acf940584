"""Make training data: a target's own responses to prompts, as token ids.

A trace is one prompt, one response and the temperature it was drawn at. Files are JSON lines, gzipped if their name
ends in ``.gz``: ``{"p": prompt ids, "o": output ids, "T": temperature}``, behind a header line that says how they were
made. Trace i is a pure function of the header and i, so a run can stop anywhere and be resumed.
"""

import gzip
import hashlib
import json
import zlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any, cast

import numpy as np
import torch
from tqdm import tqdm
from transformers import DynamicCache, PreTrainedTokenizerBase

from outrider.contracts.errors import ParameterError
from outrider.contracts.requests import MAX_SEED
from outrider.models.loading import LoadedModel
from outrider.sampling.noise import Purpose, uniforms

_HELD_OUT_SHARE = 16  # one prompt in this many
_MESSAGE_TOKENS, _MESSAGE_TEMPERATURE = 64, 0.9  # of a prompt written by the target
_MARK = "a-users-first-message"


@dataclass(frozen=True, slots=True)
class Trace:
    """One response; ``output_ids`` ends with an end-of-sequence token unless it was cut at the length limit."""

    prompt_ids: tuple[int, ...]
    output_ids: tuple[int, ...]
    temperature: float  # 0 is greedy


@dataclass(frozen=True, slots=True)
class TraceConfig:
    """How traces are made; with the prompts it determines every trace on one machine."""

    count: int  # traces to make; prompts are reused in order if there are fewer
    temperatures: tuple[float, ...] = (0.0, 0.7, 1.0)  # trace i takes the i-th, cyclically
    max_new_tokens: int = 96  # response length limit
    seed: int = 0  # of the draws, unsigned 64 bit
    batch: int = 16  # responses generated at once
    own_prompts: float = 0.0  # share of prompts that the target writes itself, as the user of a chat


def make_traces(
    target: LoadedModel, prompts: Sequence[str], file: Path, config: TraceConfig, *, progress: bool = True
) -> list[Trace]:
    """Generate traces into ``file``, resuming where an earlier run stopped.

    Returns:
        All ``config.count`` traces.

    Raises:
        ParameterError: no prompts, or ``file`` holds traces made in another way, or the target is to write prompts but
            has no chat template.
    """
    if not prompts:
        raise ParameterError("prompts", "at least one prompt", len(prompts))
    if config.own_prompts and not target.tokenizer.chat_template:
        raise ParameterError("own_prompts", f"0: {target.name} has no chat template", config.own_prompts)
    digest = hashlib.sha256("\0".join(prompts).encode()).hexdigest()
    header = {"target": target.model_hash, "dtype": str(target.model.dtype), "prompts": digest, **asdict(config)}
    header = json.loads(json.dumps({key: value for key, value in header.items() if key != "count"}))
    traces = _readable(file, header)
    if len(traces) >= config.count:
        return traces[: config.count]
    traces = traces[: len(traces) // config.batch * config.batch]
    _rewrite(file, header, traces)
    with tqdm(total=config.count, initial=len(traces), desc="target writes", unit="trace", disable=not progress) as bar:
        while len(traces) < config.count:
            # Always a whole batch: its composition, and so thus every bit, does not depend on where a run ends.
            indices = range(len(traces), len(traces) + config.batch)
            asked = [
                tuple(prompt_ids(target.tokenizer, prompt)) for prompt in _prompts(target, prompts, indices, config)
            ]
            temperatures = [config.temperatures[i % len(config.temperatures)] for i in indices]
            written = _generate(target, asked, indices, temperatures, config.seed, config.max_new_tokens)
            parts = zip(asked, map(tuple, written), temperatures, strict=True)
            made = [Trace(*part) for part in parts][: config.count - len(traces)]
            with _open(file, "at") as stream:
                stream.writelines(_line(trace) for trace in made)
            traces += made
            bar.update(len(made))
    return traces


def read_traces(file: Path) -> list[Trace]:
    try:
        with _open(file, "rt") as stream:
            records = [json.loads(line) for line in stream]
        return [_trace(record) for record in records if "header" not in record]
    except (OSError, EOFError, ValueError, KeyError, TypeError) as error:
        raise ParameterError("traces", "a complete JSON lines file of traces", f"{file}: {error}") from error


def split_traces(traces: Sequence[Trace]) -> tuple[list[Trace], list[Trace]]:
    """Split into training and held-out traces; whether a prompt is held out depends on its token ids alone."""
    parts: tuple[list[Trace], list[Trace]] = [], []
    for trace in traces:
        parts[is_held_out(trace.prompt_ids)].append(trace)
    return parts


def is_held_out(prompt_ids: Sequence[int]) -> bool:
    """Whether no drafter may be trained on this prompt: one in sixteen, by its hash."""
    return hashlib.sha256(np.asarray(prompt_ids, dtype="<i8").tobytes()).digest()[0] % _HELD_OUT_SHARE == 0


def prompt_ids(tokenizer: PreTrainedTokenizerBase, prompt: str) -> list[int]:
    """Token ids of a prompt, as one user message if the tokenizer has a chat template."""
    if tokenizer.chat_template:
        message = [{"role": "user", "content": prompt}]
        ids: Any = tokenizer.apply_chat_template(message, add_generation_prompt=True, tokenize=True, return_dict=False)
    else:
        ids = tokenizer(prompt)["input_ids"]
    return list(ids)


def _prompts(target: LoadedModel, prompts: Sequence[str], indices: Sequence[int], config: TraceConfig) -> list[str]:
    """Prompts of these traces: the given ones in order, some replaced by prompts that the target writes."""
    chosen = {i: prompts[i % len(prompts)] for i in indices}
    own = [i for i in indices if int((i + 1) * config.own_prompts) > int(i * config.own_prompts)]
    if own:
        before = [_before_a_message(target.tokenizer)] * len(own)
        temperatures = [_MESSAGE_TEMPERATURE] * len(own)
        messages = _generate(target, before, own, temperatures, config.seed, _MESSAGE_TOKENS)
        texts = [str(target.tokenizer.decode(ids, skip_special_tokens=True)).strip() for ids in messages]
        chosen |= {i: text for i, text in zip(own, texts, strict=True) if text}
    return list(chosen.values())


def _before_a_message(tokenizer: PreTrainedTokenizerBase) -> tuple[int, ...]:
    """Token ids before a user's first message."""
    chat: Any = tokenizer.apply_chat_template([{"role": "user", "content": _MARK}], tokenize=False)
    return tuple(tokenizer(chat.partition(_MARK)[0], add_special_tokens=False)["input_ids"])


@torch.inference_mode()
def _generate(
    target: LoadedModel,
    prompts: Sequence[tuple[int, ...]],
    indices: Sequence[int],
    temperatures: Sequence[float],
    seed: int,
    max_new_tokens: int,
) -> list[list[int]]:
    """Generate behind each prompt; noise depends on the trace's index. Rows leave the batch as they end."""
    model, device = target.model, target.model.device
    longest = max(map(len, prompts))
    tokens = torch.tensor([[0] * (longest - len(ids)) + list(ids) for ids in prompts], device=device)
    mask = torch.tensor([[0] * (longest - len(ids)) + [1] * len(ids) for ids in prompts], device=device)
    positions = (mask.cumsum(1) - 1).clamp(min=0)
    outputs: list[list[int]] = [[] for _ in prompts]
    rows = list(range(len(prompts)))  # still being written
    cache = DynamicCache(config=model.config)
    for step in range(max_new_tokens):
        logits = model(
            input_ids=tokens, attention_mask=mask, position_ids=positions, past_key_values=cache, logits_to_keep=1
        ).logits[:, -1, : target.vocab_size]
        for at, row in enumerate(rows):
            own_seed = (seed + indices[row] * 0x9E3779B97F4A7C15) & MAX_SEED
            outputs[row].append(_draw(logits[at], temperatures[row], own_seed, len(prompts[row]) + step))
        keep = [at for at, row in enumerate(rows) if outputs[row][-1] not in target.eos_token_ids]
        if not keep:
            break
        if len(keep) < len(rows):
            kept = torch.tensor(keep, device=device)
            cache.batch_select_indices(kept)
            mask, rows = mask[kept], [rows[at] for at in keep]
        tokens = torch.tensor([[outputs[row][-1]] for row in rows], device=device)
        positions = mask.sum(1, keepdim=True)
        mask = torch.cat([mask, mask.new_ones(len(rows), 1)], 1)
    return outputs


def _draw(logits: torch.Tensor, temperature: float, seed: int, position: int) -> int:
    """Argmax at temperature 0, else inverse transform sampling with the position's uniform."""
    if temperature == 0.0:
        return int(logits.argmax())
    cumulative = torch.softmax(logits.double() / temperature, -1).cumsum(-1)
    uniform = float(uniforms(seed, position, Purpose.TARGET_TOKEN, 1)[0])
    # Scaled and clamped, as rounding keeps the sum from being exactly 1.
    return int(torch.searchsorted(cumulative, uniform * cumulative[-1]).clamp(max=len(cumulative) - 1))


def _readable(file: Path, header: dict[str, Any]) -> list[Trace]:
    """Complete traces at the beginning of a file that may have been cut off anywhere."""
    records: list[dict[str, Any]] = []
    if file.exists():
        try:
            with _open(file, "rt") as stream:
                records.extend(json.loads(line) for line in stream if line.endswith("\n"))
        except (EOFError, ValueError, gzip.BadGzipFile, zlib.error):
            pass  # a line that a killed run left half-written is made again
    if records and records[0].get("header") != header:
        raise ParameterError(
            "traces",
            f"a new file, or one made with the same settings ({header})",
            f"{file}: {records[0].get('header')}",
        )
    return [_trace(record) for record in records[1:]]


def _rewrite(file: Path, header: dict[str, Any], traces: Sequence[Trace]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    partial = file.with_name(f"partial-{file.name}")
    with _open(partial, "wt") as stream:
        stream.write(json.dumps({"header": header}) + "\n")
        stream.writelines(_line(trace) for trace in traces)
    partial.replace(file)


def _open(file: Path, mode: str) -> IO[str]:
    if file.suffix == ".gz":
        return cast("IO[str]", gzip.open(file, mode, encoding="utf-8"))
    return cast("IO[str]", file.open(mode, encoding="utf-8"))


def _line(trace: Trace) -> str:
    return json.dumps({"p": trace.prompt_ids, "o": trace.output_ids, "T": trace.temperature}) + "\n"


def _trace(record: dict[str, Any]) -> Trace:
    return Trace(tuple(record["p"]), tuple(record["o"]), float(record["T"]))

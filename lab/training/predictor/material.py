"""Training data of a predictor: rounds made here from prompts, or logged by devices."""

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file
from tqdm import tqdm

from lab.training.head.pair import LoadedPair, load_pair, paged
from lab.training.predictor.drafted import DataSplit, DraftedTokens, split
from lab.training.predictor.logged import read_logs
from lab.training.predictor.pair_names import PairNames, pair_names
from lab.training.predictor.predictor_config import PredictorConfig
from lab.training.predictor.rounds import drafted_tokens, requests_of
from outrider.contracts.errors import ParameterError
from outrider.documents.text_file import MAX_DATA_BYTES, read_text
from outrider.drafting.features import FEATURE_NAMES
from outrider.training.builtin_prompts import builtin_prompts
from outrider.training.traces import is_held_out, prompt_ids

_FORMAT = 1
_METADATA_KEY = "outrider_rounds"
_COLUMNS = ("features", "accepted", "temperature", "prompt")


def header_of(models: LoadedPair, config: PredictorConfig, prompts: Sequence[Sequence[int]]) -> dict[str, Any]:
    """Return everything that decides which draft tokens are accepted."""
    reported = {
        "format": _FORMAT,
        "features": FEATURE_NAMES,
        "target": models.target.model_hash,
        "drafter": models.drafter.model_hash,
        "rule": config.rule,
        "temperatures": config.asked_temperatures,
        "dtype": models.spec.dtype,
        "drafter_dtype": models.spec.drafter_dtype,
        "max_new_tokens": config.max_new_tokens,
        "window_tokens": config.window_tokens,
        "seed": config.seed,
        "prompts": hashlib.sha256(json.dumps([list(ids) for ids in prompts]).encode()).hexdigest(),
    }
    plain: dict[str, Any] = json.loads(json.dumps(reported))
    return plain


def read_rounds(file: Path, header: dict[str, Any]) -> DraftedTokens | None:
    """Read saved tokens; None if there is no file.

    Raises:
        ParameterError: the file is not of this kind, or of another pair or rule, or made in another way.
    """
    if not file.exists():
        return None
    try:
        with safe_open(file, framework="np") as opened:
            found = json.loads((opened.metadata() or {}).get(_METADATA_KEY, "{}"))
            columns = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118
    except (OSError, SafetensorError) as error:
        raise ParameterError("rounds", "a file that `outrider train predictor` made", f"{file}: {error}") from error
    if differing := [key for key in {**header, **found} if header.get(key) != found.get(key)]:
        ours, theirs = (", ".join(f"{key} {one.get(key)}" for key in differing) for one in (header, found))
        needed = f"rounds of this pair and rule, made in this way ({ours}), or another file, or this one deleted"
        raise ParameterError("rounds", needed, f"{theirs} in {file}")
    return DraftedTokens(*(columns[name] for name in _COLUMNS))


def save_rounds(file: Path, tokens: DraftedTokens, header: dict[str, Any]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    partial = file.with_name(f".{file.name}.partial")
    columns = {name: np.ascontiguousarray(getattr(tokens, name)) for name in _COLUMNS}
    save_file(columns, partial, metadata={_METADATA_KEY: json.dumps(header)})
    partial.chmod(0o644)
    partial.replace(file)


_MOST_TEMPERATURES = 6  # reported one by one


@dataclass(frozen=True, slots=True)
class Material:
    pair: PairNames  # names of both models
    tokens: DraftedTokens  # all of them
    parts: DataSplit  # the same, split by prompt or by logged request
    temperatures: tuple[float, ...]  # of their requests, ascending

    @property
    def told_temperatures(self) -> tuple[float, ...]:
        """Temperatures that results are reported for: those of most tokens in the test part."""
        values, counts = np.unique(self.parts.test.temperature, return_counts=True)
        most = np.argsort(-counts, kind="stable")[:_MOST_TEMPERATURES]
        return tuple(sorted(values[most].tolist()))


def gather(config: PredictorConfig, *, progress: bool, on_stage: Callable[[str], None]) -> Material:
    """Make or read rounds, as configured; raises as ``train_predictor`` does."""
    return _logged(config, on_stage) if config.logged else _made(config, progress=progress, on_stage=on_stage)


def prompts_of(models: LoadedPair, config: PredictorConfig) -> list[tuple[int, ...]]:
    """Token ids of the distinct prompts to answer.

    Raises:
        ParameterError: a prompt leaves no room for a response.
    """
    if config.prompts is None:
        texts: Sequence[str] = builtin_prompts()
    else:
        texts = [
            line for line in read_text(config.prompts, "prompts", "text", MAX_DATA_BYTES).splitlines() if line.strip()
        ]
    every = dict.fromkeys(tuple(prompt_ids(models.target.tokenizer, text)) for text in texts)
    chosen = [ids for ids in every if config.prompts is not None or is_held_out(ids)][: config.most_prompts]
    room = min(models.target.max_context_tokens, models.drafter.max_context_tokens) - config.max_new_tokens
    for ids in chosen:
        if len(ids) > room:
            needed = f"at most {room} tokens each, as responses may have {config.max_new_tokens}"
            raise ParameterError("prompts", needed, len(ids))
    return chosen


def _logged(config: PredictorConfig, on_stage: Callable[[str], None]) -> Material:
    pair = pair_names(config.target, config.drafter)
    on_stage(f"rounds: {', '.join(map(str, config.rounds))}")
    found = read_logs(config.rounds, pair, config.acceptance_rule)
    found.check_enough(config.least_tokens)
    stops = ", ".join(f"{count} of devices that stop by {rule}" for rule, count in found.stops.items())
    on_stage(f"{found.rounds} rounds of {found.requests} requests in {found.files} files: {stops}")
    if len(found.texts) < found.requests:
        on_stage(f"{len(found.texts)} texts: what shares a row is kept on one side")
    if found.copies or found.unread_bytes:
        on_stage(f"left out: {found.copies} copies of files, {found.unread_bytes} bytes of damaged ends")
    parts = split(found.tokens, found.texts, config.least_tokens, "rounds")
    return Material(pair, found.tokens, parts, _temperatures(found.tokens))


def _made(config: PredictorConfig, *, progress: bool, on_stage: Callable[[str], None]) -> Material:
    models = load_pair(config.pair)
    prompts = prompts_of(models, config)
    on_stage(f"rounds: {config.rounds_file}")
    tokens = _kept_or_made(models, config, prompts, progress=progress)
    target, drafter = models.target, models.drafter
    pair = PairNames(target.name, target.model_hash, drafter.name, drafter.model_hash)
    return Material(pair, tokens, split(tokens, prompts, config.least_tokens), config.asked_temperatures)


def _temperatures(tokens: DraftedTokens) -> tuple[float, ...]:
    return tuple(np.unique(tokens.temperature).tolist())


def _kept_or_made(
    models: LoadedPair, config: PredictorConfig, prompts: Sequence[tuple[int, ...]], *, progress: bool
) -> DraftedTokens:
    header = header_of(models, config, prompts)
    if (kept := read_rounds(config.rounds_file, header)) is not None:
        return kept
    if not prompts:
        raise ParameterError("prompts", "at least one that is not empty", 0)
    requests = requests_of(prompts, config.asked_temperatures, config.max_new_tokens, config.seed)
    pair = paged(models, config.batch, max(map(len, prompts)) + config.max_new_tokens)
    most = len(requests) * config.max_new_tokens
    with tqdm(total=most, desc="rounds", unit="token", disable=not progress) as bar:
        tokens = drafted_tokens(
            pair,
            requests,
            config.acceptance_rule,
            window_tokens=config.window_tokens,
            batch=config.batch,
            on_written=bar.update,
        )
    save_rounds(config.rounds_file, tokens, header)
    return tokens

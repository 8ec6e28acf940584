"""Sampling defaults recommended by a model's ``generation_config.json``, with vLLM's semantics.

As with vLLM's ``--generation-config``: ``auto`` uses the model's own file, ``vllm`` (or ``none``) nothing, and a folder
that folder's file. Per parameter, a request's value precedes these defaults, and these precede neutral values. vLLM
ignores ``do_sample``, and so does this. The embedded target's file has no sampling parameters, as the package it is
made from lacks them: ``auto`` then uses the recommendation of its model card.
"""

import json
from collections.abc import Mapping
from math import isfinite
from pathlib import Path
from typing import Any

from outrider.contracts.errors import ModelUnavailableError, ParameterError
from outrider.contracts.requests import SAMPLING_RANGES
from outrider.contracts.sampling_defaults import SamplingDefaults
from outrider.models.embedded import CARD_SAMPLING, TARGET_NAME
from outrider.models.folders import AUTO, EMBEDDED, resolve_folder

NEUTRAL = ("vllm", "none")
MAX_NEW_TOKENS = "max_new_tokens"
FILE = "generation_config.json"
_TAKEN = (*SAMPLING_RANGES, MAX_NEW_TOKENS)
# Parameters that are not supported but would change which tokens are drawn, with their neutral values.
_IGNORED: Mapping[str, tuple[object, ...]] = {
    "do_sample": (True,),
    "num_beams": (1,),
    "num_beam_groups": (1,),
    "penalty_alpha": (0.0,),
    "typical_p": (1.0,),
    "epsilon_cutoff": (0.0,),
    "eta_cutoff": (0.0,),
    "top_h": (),
    "diversity_penalty": (0.0,),
    "length_penalty": (1.0,),
    "encoder_repetition_penalty": (1.0,),
    "no_repeat_ngram_size": (0,),
    "encoder_no_repeat_ngram_size": (0,),
    "min_length": (0,),
    "min_new_tokens": (0,),
    "bad_words_ids": ([],),
    "sequence_bias": ({}, []),
    "suppress_tokens": ([],),
    "begin_suppress_tokens": ([],),
    "forced_bos_token_id": (),
    "forced_eos_token_id": (),
    "exponential_decay_length_penalty": (),
    "guidance_scale": (1.0,),
    "stop_strings": ([],),
}


def read_sampling_defaults(source: str, target: str, override: Mapping[str, Any]) -> SamplingDefaults:
    """Return the defaults for sampling parameters that requests leave out.

    Args:
        source: ``auto``, ``vllm`` or ``none``, or a folder (or its ``generation_config.json``).
        target: name or path of the model.
        override: replaces single values of the source; null removes one. As ``--override-generation-config``.

    Raises:
        ModelUnavailableError: the file is missing, or a value in it is invalid.
        ParameterError: a value of ``override`` is invalid.
    """
    override = checked_override(override)
    if source in NEUTRAL:
        found: Mapping[str, Any] = {}
        where = ""
    elif source != AUTO:
        file = Path(source).expanduser()
        file = file / FILE if file.is_dir() else file
        found, where = _read(file), str(file)
    elif target in (EMBEDDED, TARGET_NAME):
        found, where = CARD_SAMPLING, "the model's card"
    else:
        file = resolve_folder(target) / FILE
        found, where = (_read(file), str(file)) if file.is_file() else ({}, "")
    taken = {name: found[name] for name in _TAKEN if name not in override and found.get(name) is not None}
    try:
        own = {name: _checked(name, value) for name, value in taken.items()}
    except ParameterError as error:
        needed = f"needs {error.needed} as {error.field} in {where}, found {error.found!r}"
        mend = f"fix it, or set model.override_generation_config: {{{error.field}: null}}"
        raise ModelUnavailableError(f"{needed}; {mend}") from error
    values = own | {name: value for name, value in override.items() if value is not None}
    max_tokens = None if (most := values.pop(MAX_NEW_TOKENS, None)) is None else int(most)
    # A value that the operator names is a limit for requests, not only a default.
    named = override.get(MAX_NEW_TOKENS) is not None or source not in (AUTO, *NEUTRAL)
    return SamplingDefaults(
        params=values,
        max_tokens=max_tokens,
        most_tokens=max_tokens if named else None,
        source=" and ".join(filter(None, (where, "override_generation_config" if override else ""))),
        ignored=tuple(name for name, neutral in _IGNORED.items() if found.get(name) not in (None, *neutral)),
    )


def checked_override(override: Mapping[str, Any]) -> dict[str, float | None]:
    """Return the override as numbers; an unsupported name or an invalid value is a ``ParameterError``."""
    for name in override:
        if name not in _TAKEN:
            raise ParameterError("override_generation_config", f"names among {', '.join(_TAKEN)}", name)
    return {name: None if value is None else _checked(name, value) for name, value in override.items()}


def _checked(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value):
        raise ParameterError(name, "a finite number", value)
    if name in (MAX_NEW_TOKENS, "top_k"):
        if value != int(value):
            raise ParameterError(name, "an integer", value)
        value = int(value)
    if name == MAX_NEW_TOKENS:
        if value < 1:
            raise ParameterError(name, "an integer >= 1", value)
        return value
    value = 0 if name == "top_k" and value == -1 else value  # vLLM's value for all tokens
    SAMPLING_RANGES[name].check(name, value)
    return value


def _read(file: Path) -> dict[str, Any]:
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ModelUnavailableError(
            f"needs {FILE}, a JSON object, at {file}, found: {error}; fix it, or set model.generation_config to vllm"
        ) from error
    if not isinstance(found, dict):
        raise ModelUnavailableError(f"needs a JSON object in {file}, found a {type(found).__name__}; fix it")
    return found

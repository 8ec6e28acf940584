"""Conversion of a parsed request body to generations: one for each choice of each prompt.

Parameters are checked against the model's limits here.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from itertools import accumulate
from operator import mul
from types import MappingProxyType
from typing import Any

from outrider.contracts.accounts import Account
from outrider.contracts.errors import ParameterError
from outrider.contracts.requests import (
    DEFAULT_LOOKUP_TOKENS,
    MAX_LOOKUP_TOKENS,
    SAMPLING_RANGES,
    GenerationId,
    GenerationRequest,
    Grammar,
    ProtocolName,
    SamplingParams,
)
from outrider.protocols.registry import (
    growing_protocols,
    judged_protocols,
    reproducible_protocols,
    tree_protocols,
    untrusted_safe_protocols,
)
from serve_app.api.openai.bodies import LOOKUP_NEEDED, ChatBody, CompletionBody
from serve_app.api.openai.cost import check_cost
from serve_app.api.openai.fields.lengths import output_tokens
from serve_app.api.openai.promises import Promises, read_promises
from serve_app.api.openai.prompts import Prompt
from serve_app.api.openai.reasoning.request import grammar_behind, tag_ids
from serve_app.api.openai.structured import begun_by
from serve_app.api.service import RequestLimits

_INT64 = range(-(2**63), 2**63)


@dataclass(frozen=True, slots=True)
class Choice:
    """One choice of a response, and the generation that makes it."""

    index: int  # OpenAI's: choice i of prompt j has ``j * n + i``
    request: GenerationRequest  # sent to a coordinator
    first_of_prompt: bool = True  # whether it is choice 0 of its prompt; ``usage`` counts a prompt once
    echo: str | None = None  # the prompt's text, if the choice's text begins with it
    shows_output: bool = True  # False for ``max_tokens: 0``, which only echoes: one token is made and not shown


@dataclass(frozen=True, slots=True)
class ResponseIdentity:
    """Which response is made."""

    name: GenerationId  # unique; generations are named by it and their index
    request_id: str  # of the HTTP request
    default_seed: int  # unsigned 64 bit, for a request without one


def to_choices(
    body: CompletionBody | ChatBody,
    prompts: Sequence[Prompt],
    limits: RequestLimits,
    identity: ResponseIdentity,
    *,
    headers: Mapping[str, str] = MappingProxyType({}),
    grammar: Grammar | None = None,
) -> list[Choice]:
    """Return the choices in the order of their indices; names of ``headers`` are in lower case.

    Raises:
        ParameterError: a value is out of range, or all choices together cost too much.
        PromptTooLongError: prompt and ``max_tokens`` together exceed the context.
    """
    params = _params(body, limits, identity.default_seed)
    promises = read_promises(body.outrider.slo_class, headers, limits, body.service_tier)
    echo = isinstance(body, CompletionBody) and body.echo
    choices: list[Choice] = []
    lengths = [
        (len(prompt.token_ids) if echo else 0, output_tokens(body, len(prompt.token_ids), limits, len(prompts)))
        for prompt in prompts
    ]
    check_cost(body, body.n * sum(map(sum, lengths)), body.n * len(prompts))
    for prompt, (_, max_tokens) in zip(prompts, lengths, strict=True):
        begun = None if grammar is None else _begun(grammar, body, prompt, limits)
        request = _request(body, prompt, replace(params, grammar=begun), limits, max_tokens, promises)
        for i in range(body.n):
            own = replace(
                request,
                generation=f"{identity.name}-{len(choices)}",
                params=replace(request.params, seed=choice_seed(params.seed, i)),
                prompt_logprobs=echo and body.alternatives is not None,
                request_id=identity.request_id,
            )
            text = prompt.text if echo else None
            choices.append(Choice(len(choices), own, i == 0, text, shows_output=max_tokens > 0))
    return choices


def _begun(grammar: Grammar, body: CompletionBody | ChatBody, prompt: Prompt, limits: RequestLimits) -> Grammar:
    """Let a grammar begin behind the model's reasoning, if there may be any."""
    if isinstance(body, ChatBody) and limits.thinking is not None:
        return grammar_behind(grammar, limits.thinking, prompt.text)
    return begun_by(grammar, prompt.token_ids, limits.structured)


def _request(
    body: CompletionBody | ChatBody,
    prompt: Prompt,
    params: SamplingParams,
    limits: RequestLimits,
    max_tokens: int,
    promises: Promises,
) -> GenerationRequest:
    """Make the request that all choices of a prompt have in common."""
    slo, *lower = promises.classes
    drafters = _drafters(body, limits)
    semantic = _semantic(body, params, limits, by_class=slo.semantic)
    return GenerationRequest(
        generation="",
        prompt_ids=prompt.token_ids,
        params=params,
        max_tokens=max(max_tokens, 1),
        stop=(body.stop,) if isinstance(body.stop, str) else tuple(body.stop),
        min_tokens=_min_tokens(body, max_tokens),
        ignore_eos=body.ignore_eos,
        stop_ids=_stop_ids(body, limits),
        special_text=not body.skip_special_tokens,
        keeps_stop=body.include_stop_str_in_output,
        priority=body.priority,
        affinity=_affinity(body, limits),
        logprobs=body.alternatives,
        window=_window(body, limits),
        protocol=_protocol(body, params, limits, drafters, semantic=semantic),
        drafters=drafters,
        semantic=semantic,
        expansion=_expansion(body, limits),
        rows=_rows(body, limits),
        lookup=_lookup(body),
        account=Account(limits.account, promises.fairness or _tenant(body, limits)),
        tenant=_tenant(body, limits),
        cache_salt=_cache_salt(body, limits),
        reproducible=body.seed is not None,
        explain=body.outrider.explain,
        details=body.outrider.details,
        slo=slo,
        lower=tuple(lower),
        token_map=limits.token_map,
        first_token_s=promises.first_token_s,
        tag_ids=tag_ids(body, limits),
    )


def choice_seed(seed: int, choice: int) -> int:
    """The seed of one of ``n`` choices: the request's own for choice 0.

    For the others BLAKE2b of seed and choice (unsigned, little endian, 8 bytes each), its first 8 bytes.
    """
    if choice == 0:
        return seed
    digest = blake2b(seed.to_bytes(8, "little") + choice.to_bytes(8, "little"), digest_size=8).digest()
    return int.from_bytes(digest, "little")


def _params(body: CompletionBody | ChatBody, limits: RequestLimits, default_seed: int) -> SamplingParams:
    seed = default_seed if body.seed is None else body.seed
    if body.seed is not None and body.seed not in _INT64:
        raise ParameterError("seed", f"an integer in {_INT64.start}..{_INT64.stop - 1}", body.seed)
    asked: dict[str, Any] = {**limits.defaults.params}
    asked |= {name: getattr(body, name) for name in SAMPLING_RANGES if name in body.model_fields_set}
    if asked.get("top_k", 0) == -1 or asked.get("top_k", 0) >= limits.vocab_size:  # -1 is vLLM's value for all
        asked["top_k"] = 0
    return SamplingParams(**asked, logit_bias=_logit_bias(body.logit_bias, limits.vocab_size), seed=seed % 2**64)


def _window(body: CompletionBody | ChatBody, limits: RequestLimits) -> int | None:
    window = body.outrider.window
    if window is not None and not 0 <= window <= limits.k_max:
        raise ParameterError("outrider.window", f"an integer in 0..{limits.k_max}", window)
    return window


def _lookup(body: CompletionBody | ChatBody) -> int | None:
    lookup = body.outrider.lookup
    if lookup is None or isinstance(lookup, bool):
        return None if lookup is None else DEFAULT_LOOKUP_TOKENS * lookup
    if not 0 <= lookup <= MAX_LOOKUP_TOKENS:
        raise ParameterError("outrider.lookup", LOOKUP_NEEDED, lookup)
    return lookup


def _tenant(body: CompletionBody | ChatBody, limits: RequestLimits) -> str:
    """Pseudonym of the end user, to tell users apart: their name goes no further than this."""
    named = body.safety_identifier or body.user
    if not named:
        return ""
    return _keyed(named, limits).hex()


def _cache_salt(body: CompletionBody | ChatBody, limits: RequestLimits) -> bytes:
    """Salt of its KV, which is shared among requests of one key and ``cache_salt``; neither leaves the ingress."""
    return _keyed(body.cache_salt or "", limits) if limits.tenant or body.cache_salt else b""


def _affinity(body: CompletionBody | ChatBody, limits: RequestLimits) -> bytes:
    """What requests with this ``prompt_cache_key`` are routed by, which differs where they share no KV."""
    key = body.prompt_cache_key
    return b"" if not key else _keyed(f"{body.cache_salt or ''}\0{key}", limits)


def _stop_ids(body: CompletionBody | ChatBody, limits: RequestLimits) -> tuple[int, ...]:
    for i, token_id in enumerate(body.stop_token_ids):
        if not 0 <= token_id < limits.vocab_size:
            raise ParameterError(f"stop_token_ids[{i}]", f"a token id in 0..{limits.vocab_size - 1}", token_id)
    return tuple(sorted(set(body.stop_token_ids)))


def _keyed(text: str, limits: RequestLimits) -> bytes:
    key = blake2b(limits.tenant.encode(), digest_size=32).digest() if limits.tenant else b""
    return blake2b(text.encode(), digest_size=16, key=key).digest()


def _semantic(
    body: CompletionBody | ChatBody, params: SamplingParams, limits: RequestLimits, *, by_class: bool
) -> bool:
    """Whether mismatches may be judged: if the request or its class allows it, and it is greedy."""
    asked = body.outrider.verification
    if asked is None:
        return limits.judges and params.greedy and by_class
    if asked == "semantic" and not limits.judges:
        needed = "lossless, as no trusted drafter here has a decision head"
        raise ParameterError("outrider.verification", needed, asked)
    if asked == "semantic" and not params.greedy:
        raise ParameterError("outrider.verification", "lossless, or temperature 0", asked)
    return asked == "semantic"


def _drafters(body: CompletionBody | ChatBody, limits: RequestLimits) -> tuple[str, ...] | None:
    """Drafter groups that may receive the prompt; None: all."""
    named = body.outrider.drafters
    for name in named or ():
        if name not in limits.drafters:
            known = ", ".join(limits.drafters) or "there are none"
            raise ParameterError("outrider.drafters", f"names of drafter groups ({known})", name)
    if named is None:
        return tuple(limits.drafters) if limits.restricted else None
    return tuple(dict.fromkeys(named))


def _protocol(
    body: CompletionBody | ChatBody,
    params: SamplingParams,
    limits: RequestLimits,
    drafters: tuple[str, ...] | None,
    *,
    semantic: bool,
) -> ProtocolName | None:
    name = body.outrider.protocol
    if name is not None and name not in limits.protocols:
        raise ParameterError("outrider.protocol", f"one of {', '.join(limits.protocols)}", name)
    groups = tuple(limits.drafters) if drafters is None else drafters
    if name is not None and groups and not any(limits.drafters[group] for group in groups):
        safe = untrusted_safe_protocols(limits.protocols, params)
        if name not in safe:
            needed = f"one of {', '.join(safe) or 'none'}, as none of its drafters is trusted"
            raise ParameterError("outrider.protocol", needed, name)
    if name in judged_protocols() and not semantic:
        needed = "a lossless one, or outrider.verification semantic"
        raise ParameterError("outrider.protocol", needed, name)
    same = reproducible_protocols()
    if name is not None and body.seed is not None and not params.greedy and name not in same:
        needed = f"{' or '.join(same)} with a seed, as other protocols do not reproduce its tokens"
        raise ParameterError("outrider.protocol", needed, name)
    return name


def _expansion(body: CompletionBody | ChatBody, limits: RequestLimits) -> tuple[int, ...]:
    options = body.outrider
    if not options.expansion:
        return ()
    if options.protocol not in tree_protocols():
        needed = f"outrider.protocol {' or '.join(tree_protocols())}"
        raise ParameterError("outrider.expansion", needed, options.protocol)
    if len(options.expansion) != options.window or min(options.expansion) < 1:
        needed = f"as many numbers >= 1 as outrider.window ({options.window})"
        raise ParameterError("outrider.expansion", needed, options.expansion)
    if (nodes := sum(accumulate(options.expansion, mul))) > limits.k_max:
        raise ParameterError("outrider.expansion", f"a tree of at most {limits.k_max} tokens", nodes)
    return tuple(options.expansion)


def _rows(body: CompletionBody | ChatBody, limits: RequestLimits) -> int:
    options = body.outrider
    if options.rows is None:
        return 0
    if options.protocol not in growing_protocols():
        raise ParameterError("outrider.rows", f"outrider.protocol {' or '.join(growing_protocols())}", options.protocol)
    if options.expansion:
        raise ParameterError("outrider.rows", "no outrider.expansion beside it", options.expansion)
    if not 1 <= (options.window or 0) <= options.rows <= limits.k_max:
        needed = f"an integer of outrider.window ({options.window}, at least 1) to {limits.k_max}"
        raise ParameterError("outrider.rows", needed, options.rows)
    return options.rows


def _min_tokens(body: CompletionBody | ChatBody, max_tokens: int) -> int:
    if not 0 <= body.min_tokens <= max_tokens:
        raise ParameterError("min_tokens", f"an integer in 0..{max_tokens} (max_tokens)", body.min_tokens)
    return body.min_tokens


def _logit_bias(biases: Mapping[str, float], vocab_size: int) -> tuple[tuple[int, float], ...]:
    bias_by_id = {}
    for key, bias in biases.items():
        token_id = int(key) if key.isascii() and key.isdigit() and len(key) <= len(str(vocab_size)) else vocab_size
        if token_id >= vocab_size or str(token_id) != key:
            raise ParameterError("logit_bias", f"token ids in 0..{vocab_size - 1} as keys", key)
        bias_by_id[token_id] = float(bias)
    return tuple(sorted(bias_by_id.items()))

"""Every internal of vLLM this engine touches, compared with the installed one. Introspection only: starts nothing.

A version number alone decides nothing: another vLLM with the same hooks serves, and one whose hooks differ is driven
through its public interface. What only a started engine shows is in ``live``.
"""

import importlib
import inspect
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import CodeType
from typing import Any

from outrider.engines.vllm.environment import prepare


class HooksDifferError(Exception):
    """vLLM's internals are not those this engine drives. The public interface may still serve."""

    def __init__(self, differences: tuple[str, ...]) -> None:
        """Keep what differs."""
        self.differences = differences
        super().__init__("; ".join(differences))


@dataclass(frozen=True, slots=True)
class Call:
    """Something we call: it takes these arguments by name, and needs no others."""

    module: str
    name: str  # dotted for a method, whose ``self`` is not named here
    arguments: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Reads:
    """A class whose methods use these names: attributes of its instances, which exist only once it runs."""

    module: str
    name: str
    attributes: tuple[str, ...]


_OUTPUT, _RUNNER = "vllm.v1.core.sched.output", "vllm.v1.worker.gpu_model_runner"
CALLS = (
    Call(_OUTPUT, "CachedRequestData.make_empty"),
    Call(
        _OUTPUT,
        "NewRequestData",
        (
            "req_id",
            "prompt_token_ids",
            "mm_features",
            "sampling_params",
            "pooling_params",
            "block_ids",
            "num_computed_tokens",
            "lora_request",
        ),
    ),
    Call(
        _OUTPUT,
        "SchedulerOutput",
        (
            "scheduled_new_reqs",
            "scheduled_cached_reqs",
            "num_scheduled_tokens",
            "total_num_scheduled_tokens",
            "scheduled_spec_decode_tokens",
            "scheduled_encoder_inputs",
            "finished_req_ids",
            "free_encoder_mm_hashes",
            "kv_cache_block_copies",
        ),
    ),
    Call("vllm.v1.core.kv_cache_utils", "KVCacheBlockCopy", ("src_block_id", "dst_block_id")),
    Call(
        "vllm.engine.arg_utils",
        "EngineArgs",
        (
            "model",
            "dtype",
            "max_model_len",
            "block_size",
            "kv_cache_memory_bytes",
            "max_num_seqs",
            "max_num_batched_tokens",
            "tensor_parallel_size",
            "distributed_executor_backend",
            "worker_extension_cls",
            "speculative_config",
            "async_scheduling",
            "enable_prefix_caching",
            "skip_tokenizer_init",
            "disable_log_stats",
            "seed",
            "use_tqdm_on_load",
            "disable_hybrid_kv_cache_manager",
            "enforce_eager",
        ),
    ),
    Call("vllm.engine.arg_utils", "EngineArgs.create_engine_config"),
    Call("vllm.v1.engine.core", "EngineCore", ("vllm_config", "executor_class", "log_stats")),
    Call("vllm.v1.engine.core", "EngineCore.collective_rpc", ("method", "timeout", "args", "kwargs")),
    Call("vllm.v1.engine.core", "EngineCore.shutdown"),
    Call("vllm.v1.executor", "Executor.get_class", ("vllm_config",)),
    Call("vllm.v1.worker.gpu_worker", "Worker.execute_model", ("scheduler_output",)),
    Call(_RUNNER, "ExecuteModelState", ("logits", "sample_hidden_states")),
)
READS = (
    Reads(
        _RUNNER,
        "GPUModelRunner",
        (
            "execute_model_state",
            "kv_connector_output",
            "input_batch",
            "req_ids",
            "requests",
            "kv_caches",
            "kv_cache_config",
            "kv_cache_groups",
            "kv_cache_block_copies",
            "scheduled_spec_decode_tokens",
            "is_pooling_model",
            "uses_mrope",
            "max_model_len",
        ),
    ),
    Reads("vllm.v1.engine.core", "EngineCore", ("cleanup_dist_env_and_memory",)),
)


def check_hooks() -> tuple[str, ...]:
    """What the installed vLLM lacks of what this engine calls and reads; empty when all is well."""
    prepare()
    return (*differences(CALLS, READS), *_proposer_differences())


def differences(calls: Sequence[Call], reads: Sequence[Reads]) -> tuple[str, ...]:
    """What the installed modules lack of these."""
    return (
        *(found for call in calls if (found := _call_difference(call)) is not None),
        *(found for read in reads if (found := _reads_difference(read)) is not None),
    )


def _load(module: str, name: str) -> Any:
    found: Any = importlib.import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    return found


def _call_difference(call: Call) -> str | None:
    label = f"{call.module}.{call.name}"
    try:
        signature = inspect.signature(_load(call.module, call.name))
    except (ImportError, AttributeError, TypeError, ValueError) as error:
        return f"{label} is not there: {error}"
    parameters = {name: p for name, p in signature.parameters.items() if name != "self"}
    if missing := [name for name in call.arguments if name not in parameters]:
        return f"{label} does not take {', '.join(missing)}"
    required = [
        name
        for name, parameter in parameters.items()
        if parameter.default is parameter.empty
        and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
        and name not in call.arguments
    ]
    # A state is only read, never made by us.
    if required and call.name != "ExecuteModelState":
        return f"{label} needs {', '.join(required)} besides"
    return None


def _reads_difference(reads: Reads) -> str | None:
    label = f"{reads.module}.{reads.name}"
    try:
        kind = _load(reads.module, reads.name)
    except (ImportError, AttributeError) as error:
        return f"{label} is not there: {error}"
    used = {name for base in inspect.getmro(kind) for name in _names(base)}
    missing = [name for name in reads.attributes if name not in used]
    return f"{label} does not use {', '.join(missing)}" if missing else None


def _names(kind: type) -> Iterator[str]:
    """Names that a class's own methods use, those of functions within them too."""
    for value in vars(kind).values():
        function = inspect.unwrap(getattr(value, "__func__", value))
        code = getattr(function, "__code__", None)
        if isinstance(code, CodeType):
            yield from _code_names(code)


def _code_names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _code_names(constant)


def _proposer_differences() -> Iterator[str]:
    """Whether a proposer of ours can be named."""
    try:
        methods = str(_load("vllm.config.speculative", "SpeculativeMethod"))
    except (ImportError, AttributeError) as error:
        yield f"vllm.config.speculative.SpeculativeMethod is not there: {error}"
        return
    if "custom_class" not in methods:
        yield "speculative_config does not take the method custom_class"

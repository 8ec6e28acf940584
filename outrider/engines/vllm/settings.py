"""What the vLLM engine is told. Free of vLLM and torch."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from outrider.contracts.errors import ParameterError

# Would change what a KV block or a pass is, or has no use here.
UNSUPPORTED_OPTIONS = frozenset(
    {
        "data_parallel_size",
        "decode_context_parallel_size",
        "ec_transfer_config",
        "enable_chunked_prefill",
        "enable_dbo",
        "enable_eplb",
        "enable_lora",
        "enable_prompt_embeds",
        "kv_offloading_size",
        "kv_sharing_fast_prefill",
        "kv_transfer_config",
        "logits_processors",
        "master_addr",
        "master_port",
        "nnodes",
        "node_rank",
        "num_gpu_blocks_override",
        "pipeline_parallel_size",
        "prefill_context_parallel_size",
        "runner",
        "scheduler_cls",
        "tokenizer",
        "worker_cls",
    }
)
# On a GPU, passes whose segments all have this many tokens plus one run as one CUDA graph; all others piecewise.
_UNIFORM_DRAFT_TOKENS = 4
_WORKER = "outrider.engines.vllm.worker"  # vLLM imports its classes by name, in processes of its own too


@dataclass(frozen=True, slots=True)
class VllmSettings:
    """One vLLM engine.

    Attributes:
        folder: the model in Hugging Face format.
        dtype: ``float32``, ``bfloat16`` or ``float16``.
        device: ``cpu`` or ``cuda``; the installed vLLM is made for one of them.
        vocab_size: real tokens. Logits rows may be wider; who reads them cuts them.
        max_context_tokens: positions of the longest sequence.
        kv_budget_bytes: KV memory, of each GPU under tensor parallelism.
        block_tokens: positions per KV block; a multiple of 32 on a CPU, of 16 on a GPU.
        max_pass_tokens: new tokens of the largest pass; longer ones are split.
        max_pass_segments: segments of the largest pass.
        threads: of torch on a CPU, in each worker.
        tensor_parallel_size: workers (GPUs) one model is spread over.
        options: more of vLLM's ``EngineArgs``, passed on.
    """

    folder: Path
    dtype: str
    device: str
    vocab_size: int
    max_context_tokens: int
    kv_budget_bytes: int
    block_tokens: int
    max_pass_tokens: int
    max_pass_segments: int = 256
    threads: int = 1
    tensor_parallel_size: int = 1
    options: Mapping[str, object] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Check what needs no vLLM.

        Raises:
            ParameterError: a value out of range, or an option this engine decides itself.
        """
        if self.device not in ("cpu", "cuda"):
            raise ParameterError("device", "cpu or cuda for the vLLM engine", self.device)
        step = 32 if self.device == "cpu" else 16
        if self.block_tokens < step or self.block_tokens % step:
            raise ParameterError(
                "kv_block_tokens", f"a multiple of {step} for vLLM on {self.device}", self.block_tokens
            )
        for name in ("max_context_tokens", "kv_budget_bytes", "max_pass_tokens", "max_pass_segments", "threads"):
            if getattr(self, name) < 1:
                raise ParameterError(name, "at least 1", getattr(self, name))
        if self.tensor_parallel_size < 1:
            raise ParameterError("tensor_parallel_size", "at least 1", self.tensor_parallel_size)
        if owned := sorted((UNSUPPORTED_OPTIONS | set(self.owned_arguments())) & set(self.options)):
            raise ParameterError("vllm_options", "no option this engine sets itself or cannot keep", ", ".join(owned))

    def owned_arguments(self) -> dict[str, object]:
        """Of vLLM's ``EngineArgs``, what the design decides or the fields above give."""
        return {
            "use_tqdm_on_load": False,
            "model": str(self.folder),
            "dtype": self.dtype,
            "max_model_len": self.max_context_tokens,
            "block_size": self.block_tokens,
            "kv_cache_memory_bytes": self.kv_budget_bytes,
            "max_num_seqs": min(self.max_pass_segments, self.max_pass_tokens),
            "max_num_batched_tokens": self.max_pass_tokens,
            "tensor_parallel_size": self.tensor_parallel_size,
            "distributed_executor_backend": "mp" if self.tensor_parallel_size > 1 else "uni",
            "worker_extension_cls": f"{_WORKER}.PassWorker",
            "speculative_config": {
                "method": "custom_class",
                "model": f"{_WORKER}.NoProposer",
                "num_speculative_tokens": _UNIFORM_DRAFT_TOKENS,
            },
            "async_scheduling": False,
            "enable_prefix_caching": False,
            "skip_tokenizer_init": True,
            "disable_log_stats": True,
            "seed": 0,
        }

    def engine_arguments(self) -> dict[str, object]:
        """All that ``EngineArgs`` is given; its other fields keep vLLM's defaults."""
        # On a CPU, compiling takes minutes and gains little. On a GPU, KV memory is given in bytes, but by default vLLM
        # would still insist that nearly all of the GPU is free.
        defaults = {"enforce_eager": True} if self.device == "cpu" else {"gpu_memory_utilization": 0.01}
        return {"disable_hybrid_kv_cache_manager": True} | defaults | dict(self.options) | self.owned_arguments()

"""Settings that the vLLM engine is started with. Free of vLLM and torch."""

from dataclasses import dataclass
from pathlib import Path

from outrider.contracts.errors import ParameterError
from outrider.engines.kinds import VerifierSpec

# Options that would change what a KV block or a pass is, or have no use here.
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
_GPU_USE = 0.85  # of its share of a GPU, for weights, passes and KV; the rest is for kept rows
# On a GPU, a pass whose segments all have this many tokens plus one runs as one CUDA graph; others run piecewise.
_UNIFORM_DRAFT_TOKENS = 4
# vLLM imports these by name, in other processes as well.
_WORKER = "outrider.engines.vllm.worker"
_LEADING = "outrider.engines.vllm.leading.LeadingExecutor"


@dataclass(frozen=True, slots=True)
class VllmSettings:
    spec: VerifierSpec  # with tensor parallelism its ``limits`` are those of each GPU
    folder: Path  # the model in Hugging Face format
    vocab_size: int  # real tokens; logits rows may be wider, and their readers cut them
    max_context_tokens: int  # positions of the longest sequence
    max_pass_segments: int = 256  # segments of the largest pass; larger ones are split

    def __post_init__(self) -> None:
        """Raise ``ParameterError`` for options that this engine sets itself."""
        if owned := sorted((UNSUPPORTED_OPTIONS | set(self.owned_arguments())) & set(self.spec.vllm_options)):
            raise ParameterError("vllm_options", "no option this engine sets itself or cannot keep", ", ".join(owned))

    def owned_arguments(self) -> dict[str, object]:
        spec = self.spec
        return {
            "use_tqdm_on_load": False,
            "model": str(self.folder),
            "dtype": spec.dtype,
            "max_model_len": self.max_context_tokens,
            "block_size": spec.limits.block_tokens,
            "kv_cache_memory_bytes": spec.limits.kv_budget_bytes,  # None: what it finds free
            "max_num_seqs": min(self.max_pass_segments, spec.max_pass_tokens),
            "max_num_batched_tokens": spec.max_pass_tokens,
            "tensor_parallel_size": spec.tensor_parallel_size,
            "distributed_executor_backend": _LEADING if spec.tensor_parallel_size > 1 else "uni",
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
        # On a CPU, compilation takes minutes and gains little.
        defaults = {"enforce_eager": True} if self.spec.device == "cpu" else {"gpu_memory_utilization": self._gpu_use()}
        return (
            {"disable_hybrid_kv_cache_manager": True} | defaults | dict(self.spec.vllm_options) | self.owned_arguments()
        )

    def _gpu_use(self) -> float:
        """Return the share of the GPU for vLLM. With KV memory in bytes it is small, as vLLM demands it to be free."""
        limits = self.spec.limits
        return 0.01 if limits.kv_budget_bytes is not None else _GPU_USE * limits.gpu_share

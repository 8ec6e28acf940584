"""The passes of a ``PagedVerifier`` made through vLLM's public interface, for a vLLM whose internals are not known.

A row is the next-token logits behind some tokens, so each wanted row is one short request: its tokens as the prompt,
one token to generate. vLLM's own scheduler batches the requests of a pass, and its own prefix cache holds what was
computed before, shared by content and evicted as vLLM likes; what it lost is computed again. So the block numbers of a
pass mean nothing here, block copies are void, and the blocks the verifier counts are vLLM's in number only.

Exact, but slow: a request computes its sequence from the last full cached block on, up to a block of tokens per row
where ``VllmForward`` computes one. One request with ``prompt_logprobs`` computes each token once, but vLLM makes Python
lists of rows for its whole prompt, which takes seconds. And there are no hidden states.
"""

import gc
from collections.abc import Mapping, Sequence
from dataclasses import fields
from itertools import count

from torch import Tensor

from outrider.contracts.errors import EngineUnavailableError, ParameterError, VerifierLostError
from outrider.engines.forward_model import BlockCopy, Move, PassResult, Segment, TreeLayout
from outrider.engines.vllm.environment import prepare, starting
from outrider.engines.vllm.process_groups import started, stopping
from outrider.engines.vllm.settings import VllmSettings, device_defaults

_DEADLINE_S = 300.0  # a worker process that died must raise, not hang; far beyond any pass
_names = count()  # of rows, never the same twice in this process: see ``row_tap``


class PublicForward:
    """A ``ForwardModel`` without hidden states: one ``vllm.LLM``. Use it in the thread that made it."""

    trees = TreeLayout.BRANCHES
    gives_hidden = False

    def __init__(self, settings: VllmSettings) -> None:
        """Start vLLM, and try it.

        Raises:
            EngineUnavailableError: vLLM does not start, for want of memory say, or does not hand over logits.
            ParameterError: an option that vLLM does not have, or that is decided here.
        """
        prepare()
        import vllm  # noqa: PLC0415 (optional, and seconds to import)

        from outrider.engines.vllm import row_tap  # noqa: PLC0415 (imports vLLM)

        if unknown := sorted(set(settings.options) - {field.name for field in fields(vllm.EngineArgs)}):
            raise ParameterError("vllm_options", "names of vLLM's EngineArgs", ", ".join(unknown))
        self._settings = settings
        self._vllm, self._tap = vllm, row_tap
        self._on_host = settings.tensor_parallel_size > 1
        try:
            with starting(settings.threads):
                self._llm = vllm.LLM(**_llm_options(settings), logits_processors=[row_tap.RowTap])
                started()
            self._total_blocks = int(self._llm.llm_engine.vllm_config.cache_config.num_gpu_blocks) - 1  # 0 is its own
            self._no_logits = self._self_test()
        except Exception as error:  # memory, an unknown architecture, another interface: vLLM has many kinds
            self.close()
            raise EngineUnavailableError(
                f"needs a vLLM that serves {settings.folder} through its public interface, found that it does not: "
                f"{type(error).__name__}: {error}"
            ) from error

    @property
    def total_blocks(self) -> int:
        """KV blocks."""
        return self._total_blocks

    @property
    def block_tokens(self) -> int:
        """Positions in one."""
        return self._settings.block_tokens

    @property
    def max_positions(self) -> int:
        """Of the longest sequence."""
        return self._settings.max_context_tokens

    @property
    def no_logits(self) -> Tensor:
        """``[0, vocab]`` float32, as wide as the model's head."""
        return self._no_logits

    def forward(
        self,
        segments: Sequence[Segment],
        copies: Sequence[BlockCopy] = (),  # noqa: ARG002 (vLLM shares by content)
        *,
        want_hidden: bool = False,
    ) -> PassResult:
        """See ``ForwardModel.forward``. A segment that wants no row is computed for vLLM's cache.

        Raises:
            VerifierLostError: a worker process died or does not answer.
        """
        if want_hidden:
            raise ValueError("vLLM's public interface gives no hidden states; ask gives_hidden first")
        prompts, names = [], []
        for segment in segments:
            tokens = [*segment.before, *segment.token_ids]
            if len(tokens) != segment.stop:
                raise ValueError(f"needs all {segment.start} tokens before a segment, found {len(segment.before)}")
            lengths = range(segment.stop - segment.logit_rows + 1, segment.stop + 1)
            prompts += [tokens[:length] for length in lengths or (segment.stop,)]
            names += [next(_names) if segment.logit_rows else None for _ in lengths or (segment.stop,)]
        wanted = [name for name in names if name is not None]
        try:
            self._generate(prompts, names)
            return PassResult(self._rows(wanted) if wanted else self._no_logits, None)
        except (TimeoutError, RuntimeError) as error:
            if not self._on_host:
                raise
            raise VerifierLostError(
                f"needs an answer of every vLLM worker, found: {error}; start the engine anew"
            ) from error

    def move(self, moves: Sequence[Move]) -> None:
        """Never called: paths of a tree lie in their own blocks."""
        raise NotImplementedError(f"branches need no moves, found {len(moves)}")

    def close(self) -> None:
        """Stop vLLM and free its memory. Repeatable."""
        if hasattr(self, "_llm"):
            with stopping():
                del self._llm
                gc.collect()  # vLLM shuts down with the last reference, and its objects refer to each other

    def _generate(self, prompts: Sequence[Sequence[int]], names: Sequence[int | None]) -> list[int]:
        """One request for each prompt; the greedy tokens."""
        params = [
            self._vllm.SamplingParams(
                temperature=0.0,
                max_tokens=1,
                ignore_eos=True,
                detokenize=False,
                extra_args=None if name is None else {self._tap.ROW: name},
            )
            for name in names
        ]
        outputs = self._llm.generate(
            [self._vllm.TokensPrompt(prompt_token_ids=list(prompt)) for prompt in prompts], params, use_tqdm=False
        )
        return [int(output.outputs[0].token_ids[0]) for output in outputs]

    def _rows(self, names: Sequence[int]) -> Tensor:
        replies = self._llm.collective_rpc(
            self._tap.take_rows, timeout=_DEADLINE_S, args=(list(names),), kwargs={"on_host": self._on_host}
        )
        rows: Tensor = replies[0]
        return rows

    def _self_test(self) -> Tensor:
        """Compare a row with the greedy token vLLM finds in it; returns no rows of that kind."""
        name = next(_names)
        token = self._generate([[0]], [name])[0]
        rows = self._rows([name])
        width = self._llm.model_config.get_vocab_size()
        if rows.shape != (1, width) or rows[0, token] != rows.max():
            raise RuntimeError(f"needs a row of {width} logits with its largest at {token}, found {tuple(rows.shape)}")
        return rows[:0].clone()


def _llm_options(settings: VllmSettings) -> Mapping[str, object]:
    """What ``vllm.LLM`` is started with.

    A row's request computes up to a block of tokens anew, so a step takes as many as its requests may need.
    """
    return (
        device_defaults(settings.device)
        | dict(settings.options)
        | {
            "model": str(settings.folder),
            "dtype": settings.dtype,
            "max_model_len": settings.max_context_tokens,
            "block_size": settings.block_tokens,
            "kv_cache_memory_bytes": settings.kv_budget_bytes,
            "max_num_seqs": settings.max_pass_segments,
            "max_num_batched_tokens": max(settings.max_pass_tokens, settings.max_pass_segments * settings.block_tokens),
            "tensor_parallel_size": settings.tensor_parallel_size,
            "distributed_executor_backend": "mp" if settings.tensor_parallel_size > 1 else "uni",
            "enable_chunked_prefill": True,
            "async_scheduling": False,
            "enable_prefix_caching": True,
            "skip_tokenizer_init": True,
            "use_tqdm_on_load": False,
            "disable_log_stats": True,
            "seed": 0,
        }
    )

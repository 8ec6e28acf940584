"""Drive a vLLM engine pass by pass. The one module that uses vLLM's classes.

Each pass opens new requests, which end with it. vLLM's runner caches the state of a request and expects deltas from its
scheduler; a request of one pass brings its whole state, so the runner need not know of rollback, eviction and restore.
It reads a request's token ids only from the first computed position on; those before it are placeholders here.
"""

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

import numpy as np
from torch import Tensor
from vllm import SamplingParams
from vllm.engine.arg_utils import EngineArgs
from vllm.v1.core.kv_cache_utils import KVCacheBlockCopy
from vllm.v1.core.sched.output import CachedRequestData, NewRequestData, SchedulerOutput
from vllm.v1.engine.core import EngineCore
from vllm.v1.executor import Executor

from outrider.contracts.errors import EngineUnavailableError, ParameterError
from outrider.engines.segments import BlockCopy, Segment
from outrider.engines.vllm.environment import starting
from outrider.engines.vllm.kv_layout import KvLayout
from outrider.engines.vllm.settings import VllmSettings

_GREEDY = SamplingParams(temperature=0.0)  # required by vLLM but unused: nothing is sampled


class Runner:
    """One ``EngineCore``, of which only the workers are used."""

    def __init__(self, settings: VllmSettings) -> None:
        """Start vLLM; for errors see ``VllmForward``."""
        arguments = settings.engine_arguments()
        if unknown := sorted(set(arguments) - {field.name for field in fields(EngineArgs)}):
            raise ParameterError("vllm_options", "names of vLLM's EngineArgs", ", ".join(unknown))
        self._passes = 0
        self._finished: set[str] = set()
        try:
            with starting(settings.spec.threads):
                config = EngineArgs(**arguments).create_engine_config()
                # Lets a budget be smaller than one sequence of the whole context; the block pool limits sequences then.
                config.model_config.original_max_model_len = -1
                self._core: Any = EngineCore(config, Executor.get_class(config), log_stats=False)
        except Exception as error:  # vLLM raises many types: for memory, architectures, values of options
            said = " ".join(str(error).split())
            raise EngineUnavailableError(
                f"needs a vLLM engine for {settings.folder}, found that it does not start "
                f"({type(error).__name__}): {said}"
            ) from error

    def describe(self) -> KvLayout:
        reports: list[KvLayout] = self._call("outrider_describe")
        return reports[0]

    def run(
        self, segments: Sequence[Segment], copies: Sequence[BlockCopy], *, want_hidden: bool
    ) -> tuple[Tensor, Tensor | None]:
        """Run one pass; return ``[R, vocab]`` logits and, if wanted, ``[R, d]`` hidden states of the wanted rows.

        A worker process that died or does not answer is a ``VerifierLostError``.
        """
        self._passes += 1
        names = [f"{self._passes}.{index}" for index in range(len(segments))]
        finished, self._finished = self._finished, set(names)
        scheduled = schedule(names, segments, copies, finished)
        rows = {name: segment.logit_rows for name, segment in zip(names, segments, strict=True)}
        replies = self._call("outrider_pass", scheduled, rows, want_hidden=want_hidden)
        logits, hidden = replies[0]
        return logits, hidden

    def close(self) -> None:
        """Stop the workers and free their memory. May be called repeatedly.

        ``EngineCore.shutdown`` would also end the process groups, which other engines of this process share.
        """
        if self._core is not None:
            self._core.model_executor.shutdown()
            self._core = None

    def _call(self, method: str, *args: object, **kwargs: object) -> list[Any]:
        return list(self._core.collective_rpc(method, args=args, kwargs=kwargs))


def schedule(
    names: Sequence[str], segments: Sequence[Segment], copies: Sequence[BlockCopy], finished: set[str]
) -> SchedulerOutput:
    """Return one pass as vLLM takes it: each segment a new request, the last pass's requests finished.

    The last tokens of a segment are scheduled as draft tokens, so that vLLM returns their logits rows.
    """
    requests: list[NewRequestData] = []
    counts: dict[str, int] = {}
    drafts: dict[str, list[int]] = {}
    for name, segment in zip(names, segments, strict=True):
        tokens, start = segment.token_ids, segment.start
        own = len(tokens) - max(0, segment.logit_rows - 1)
        prompt = np.zeros(start + own, dtype=np.int32)
        prompt[start:] = tokens[:own]
        requests.append(
            NewRequestData(
                req_id=name,
                prompt_token_ids=prompt,
                mm_features=[],
                sampling_params=_GREEDY,
                pooling_params=None,
                block_ids=([block + 1 for block in segment.blocks],),
                num_computed_tokens=start,
                lora_request=None,
            )
        )
        counts[name] = len(tokens)
        if own < len(tokens):
            drafts[name] = list(tokens[own:])
    return SchedulerOutput(
        scheduled_new_reqs=requests,
        scheduled_cached_reqs=CachedRequestData.make_empty(),
        num_scheduled_tokens=counts,
        total_num_scheduled_tokens=sum(counts.values()),
        scheduled_spec_decode_tokens=drafts,
        scheduled_encoder_inputs={},
        finished_req_ids=finished,
        free_encoder_mm_hashes=[],
        kv_cache_block_copies=[KVCacheBlockCopy(copy.source + 1, copy.target + 1) for copy in copies] or None,
    )

"""Executor for tensor parallelism with rank 0 in this process, so that logits stay on the device they are decided on.

vLLM's own executor keeps every rank in a process of its own, from which whole rows of logits would have to be copied.
This one makes vLLM's worker calls here as well, at the same time as the other ranks. vLLM imports it by name.
"""

import weakref
from collections.abc import Callable, Sequence
from functools import partial
from multiprocessing import Lock
from typing import Any

import torch
from vllm.config import VllmConfig
from vllm.distributed.parallel_state import destroy_distributed_environment, destroy_model_parallel
from vllm.platforms import current_platform
from vllm.utils.network_utils import get_file_store_init_method
from vllm.v1.executor.uniproc_executor import UniProcExecutor
from vllm.v1.serial_utils import run_method
from vllm.v1.worker.worker_base import WorkerWrapperBase

from outrider.engines.vllm.followers import Answer, Followers


class LeadingExecutor(UniProcExecutor):  # type: ignore[misc]  # vLLM is imported untyped
    """vLLM's workers: rank 0 in this process and thread, the others in processes of their own."""

    def _init_executor(self) -> None:
        if torch.distributed.is_initialized():
            raise RuntimeError("tensor parallelism needs a process without another vLLM engine, found one here")
        meeting = get_file_store_init_method()
        ranks = range(1, self.parallel_config.world_size)
        self._followers = Followers(_follower, [(self.vllm_config, rank, meeting) for rank in ranks])
        weakref.finalize(self, self._followers.close)  # if vLLM fails to start after this
        mine = partial(_worker, self.vllm_config, 0, meeting)
        self.driver_worker = self._followers.beside(mine, deadline_s=None)[0]

    def collective_rpc(
        self,
        method: str | Callable[..., object],
        timeout: float | None = None,  # noqa: ARG002 (vLLM's signature; followers have a deadline of their own)
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
        non_block: bool = False,  # noqa: FBT002 (vLLM's)
        single_value: bool = False,  # noqa: FBT002 (vLLM's)
    ) -> Any:
        assert isinstance(method, str), "only methods of workers are called"
        assert not non_block, "only vLLM's scheduler does not wait, and it is idle"
        self._followers.broadcast(method, args, kwargs or {})
        answers = self._followers.beside(lambda: run_method(self.driver_worker, method, args, kwargs or {}))
        return answers[0] if single_value else answers

    def shutdown(self) -> None:
        self._followers.close()
        super().shutdown()
        destroy_model_parallel()
        destroy_distributed_environment()


def _worker(config: VllmConfig, rank: int, meeting: str) -> WorkerWrapperBase:
    """Make one rank's worker in this process, and load its weights."""
    worker = WorkerWrapperBase(rpc_rank=rank)
    mine = {
        "vllm_config": config,
        "local_rank": rank,
        "rank": rank,
        "distributed_init_method": meeting,
        "is_driver_worker": rank == 0,
        "shared_worker_lock": Lock(),
    }
    worker.init_worker([mine if other == rank else {} for other in range(config.parallel_config.world_size)])
    worker.init_device()
    worker.load_model()
    current_platform.update_block_size_for_backend(config)
    return worker


def _follower(config: VllmConfig, rank: int, meeting: str) -> Answer:
    worker = _worker(config, rank, meeting)

    def answer(method: str, args: Sequence[Any], kwargs: dict[str, Any]) -> object:
        return run_method(worker, method, tuple(args), kwargs)

    return answer

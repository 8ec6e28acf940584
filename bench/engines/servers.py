"""The servers that ``outrider bench engines`` loads: Outrider's clusters, and what a user would pick instead.

Each is started as an operator would start it. vLLM's servers hold the pair centrally: one process group, no network
between drafter and target.
"""

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.harness.server import Arm, Server
from outrider.assembly.verifiers import process_variables
from outrider.engines.kinds import VerifierSpec
from outrider.engines.limits import EngineLimits

OUTRIDER, CENTRAL = "outrider", "vllm alone"


@dataclass(frozen=True, slots=True)
class ServingOptions:
    """What all servers have in common. ``context_tokens``, ``kv_mib``: vLLM needs them said."""

    target: str
    dtype: str
    threads: int
    central_threads: tuple[int, ...]
    draft_tokens: tuple[int, ...]
    windows: tuple[int | None, ...]
    context_tokens: int = 2048
    kv_mib: int = 1024


def outrider_arm(engine: str, window: int | None) -> str:
    """The name of Outrider's own choice, or of a window that every request asks for."""
    return f"{OUTRIDER}, {engine}" + ("" if window is None else f", window {window}")


def outrider_server(engine: str, options: ServingOptions) -> Server:
    """The whole cluster with drafters, on this machine."""
    assignments = (
        f"model.target={options.target}",
        f"model.dtype={options.dtype}",
        f"verifiers.engine={engine}",
        f"verifiers.threads={options.threads}",
        f"verifiers.kv_budget_mib={options.kv_mib}",
        "http.port={port}",
    )
    command = [sys.executable, "-m", "cluster.cli", "serve"]
    for assignment in assignments:
        command += ["--set", assignment]
    arms = tuple(
        Arm(outrider_arm(engine, window), {} if window is None else {"outrider": {"window": window}})
        for window in options.windows
    )
    return Server(f"outrider {engine}", tuple(command), "Ready:", {"RAY_USAGE_STATS_ENABLED": "0"}, arms)


def central_server(folder: Path, options: ServingOptions, threads: int, drafter: tuple[Path, int] | None) -> Server:
    """What vLLM itself serves: the target alone, or speculating.

    Args:
        folder: of the target.
        options: of all servers.
        threads: of computation.
        drafter: folder of the draft model, and tokens it drafts per step.
    """
    command = [
        *(sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", str(folder)),
        *("--host", "127.0.0.1", "--port", "{port}", "--dtype", options.dtype),
        *("--max-model-len", str(options.context_tokens), "--kv-cache-memory-bytes", str(options.kv_mib * 2**20)),
        *("--max-num-seqs", "32", "--enforce-eager"),
    ]
    name = CENTRAL
    if drafter is not None:
        model, draft_tokens = drafter
        name = f"vllm draft_model, {draft_tokens} tokens"
        speculative = {"method": "draft_model", "model": str(model), "num_speculative_tokens": draft_tokens}
        command += ["--speculative-config", json.dumps(speculative).replace("{", "{{").replace("}", "}}")]
    # As the service's verifiers are started: only engine, device and threads count.
    spec = VerifierSpec("vllm", "", "float32", "cpu", threads, EngineLimits(0))
    environment = {
        **process_variables(spec, Path(sys.prefix)),
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_LOGGING_LEVEL": "WARNING",
    }
    name = f"{name}, {threads} thread{'s' if threads > 1 else ''}"
    return Server(name, tuple(command), "Application startup complete", environment, (Arm(name),))


def all_servers(engines: Sequence[str], folder: Path, drafter: Path, options: ServingOptions) -> tuple[Server, ...]:
    """Every server of the comparison; ``drafter`` is the exported one (``bench.engines.exported_drafter``)."""
    drafters = [None, *((drafter, tokens) for tokens in options.draft_tokens)]
    central = [central_server(folder, options, threads, one) for threads in options.central_threads for one in drafters]
    return (*(outrider_server(engine, options) for engine in engines), *central)

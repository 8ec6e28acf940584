"""The servers that ``outrider bench engines`` loads: Outrider's clusters, and what a user would pick instead.

Each runs in processes of its own, started by its own command line as an operator would start it, and listens on
localhost. vLLM's servers hold the pair centrally: one process group, no network between drafter and target.
"""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from outrider.assembly.verifiers import VerifierSpec, process_variables
from outrider.contracts.errors import OutriderError
from outrider.engines.limits import EngineLimits

_START_DEADLINE_S = 240.0
_STOP_DEADLINE_S = 60.0
_POLL_S = 0.2
_LOG_CHARS = 400


class ServerFailedError(OutriderError):
    """A server did not come up."""


@dataclass(frozen=True, slots=True)
class Arm:
    """One way of asking a server: what stands in every request's body besides the chat."""

    name: str
    extra: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Server:
    """How a server is started.

    Attributes:
        command: ``{port}`` stands for the port it is to listen on.
        ready: what it prints once it can be asked.
        environment: set for it besides this process's own.
        arms: how it is asked.
    """

    name: str
    command: tuple[str, ...]
    ready: str
    environment: Mapping[str, str]
    arms: tuple[Arm, ...]


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
        Arm(f"outrider, {engine}", {})
        if window is None
        else Arm(f"outrider, {engine}, window {window}", {"outrider": {"window": window}})
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
    name = "vllm alone"
    if drafter is not None:
        model, draft_tokens = drafter
        name = f"vllm draft_model, {draft_tokens} tokens"
        speculative = {"method": "draft_model", "model": str(model), "num_speculative_tokens": draft_tokens}
        command += ["--speculative-config", json.dumps(speculative).replace("{", "{{").replace("}", "}}")]
    environment = {
        **vllm_process_variables(threads),
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_LOGGING_LEVEL": "WARNING",
    }
    name = f"{name}, {threads} thread{'s' if threads > 1 else ''}"
    return Server(name, tuple(command), "Application startup complete", environment, (Arm(name),))


def vllm_process_variables(threads: int) -> dict[str, str]:
    """What a process is started with in which vLLM computes on the CPU: the same as the service's verifiers get."""
    spec = VerifierSpec("vllm", "", "float32", "cpu", threads, EngineLimits(0))  # only engine, device and threads count
    return process_variables(spec, Path(sys.prefix))


def all_servers(folder: Path, drafter: Path, options: ServingOptions) -> tuple[Server, ...]:
    """Every server of the comparison; ``drafter`` is the exported one (see ``bench.engines_drafter``)."""
    drafters = [None, *((drafter, tokens) for tokens in options.draft_tokens)]
    central = [central_server(folder, options, threads, one) for threads in options.central_threads for one in drafters]
    return (*(outrider_server(engine, options) for engine in ("torch", "vllm")), *central)


@contextlib.contextmanager
def started(server: Server, log: Path) -> Iterator[str]:
    """Run a server while the block is open; gives its URL. ``log`` takes what it prints.

    Raises:
        ServerFailedError: it ended, or was not ready in time.
    """
    port = _free_port()
    with log.open("w") as output:
        process = subprocess.Popen(
            [part.format(port=port) for part in server.command],
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, **server.environment},
            start_new_session=True,
        )
        try:
            _await_ready(server, process, log)
            yield f"http://127.0.0.1:{port}"
        finally:
            _stop(process)


def _await_ready(server: Server, process: "subprocess.Popen[bytes]", log: Path) -> None:
    give_up_at_s = time.monotonic() + _START_DEADLINE_S
    while server.ready not in (said := log.read_text(errors="replace")):
        ended, late = process.poll() is not None, time.monotonic() > give_up_at_s
        if ended or late:
            found = f"exit status {process.returncode}" if ended else f"no sign of it after {_START_DEADLINE_S:g} s"
            raise ServerFailedError(f"needs {server.name} to print {server.ready!r}, found {found}: {_end_of(said)}")
        time.sleep(_POLL_S)


def _end_of(said: str) -> str:
    return said.strip()[-_LOG_CHARS:]


def _stop(process: "subprocess.Popen[bytes]") -> None:
    """Ask it to end; what is left of its process group then is killed."""
    process.send_signal(signal.SIGINT)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(_STOP_DEADLINE_S)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(_STOP_DEADLINE_S)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])

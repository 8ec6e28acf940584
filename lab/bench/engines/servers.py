"""The servers that ``outrider bench engines`` loads: Outrider's clusters, and their alternatives.

Each is started as an operator would start it. vLLM's servers hold the pair centrally: one process group, no network
between drafter and target.
"""

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from lab.bench.harness.server import Arm, Server
from outrider.assembly.verifiers import process_variables
from outrider.engines.kinds import VerifierSpec
from outrider.engines.limits import EngineLimits
from outrider.models.drafter_model import load_drafter_from_target_dir


def export_drafter(file: Path, target_folder: Path, out: Path) -> Path:
    """Write the drafter of ``file`` as a Hugging Face folder ``out`` in float32, with the target's tokenizer."""
    drafter: Any = load_drafter_from_target_dir(file, target_folder, dtype=torch.float32, device="cpu", whole_head=True)
    projection, head = drafter.lm_head
    alone: Any = AutoModelForCausalLM.from_config(drafter.config, dtype=torch.float32)
    alone.base_model.load_state_dict(drafter.base_model.state_dict())
    with torch.no_grad():
        alone.lm_head.weight.copy_(head.weight @ projection.weight)
    alone.save_pretrained(out)
    AutoTokenizer.from_pretrained(target_folder, local_files_only=True).save_pretrained(out)
    return out


OUTRIDER, VLLM, CENTRAL = "outrider", "vllm ", "vllm alone"
_SUFFIX_NEEDS = "arctic-inference==0.1.1"  # as vLLM 0.32 says
_NGRAM_LOOKUP = {"prompt_lookup_min": 2, "prompt_lookup_max": 4}


@dataclass(frozen=True, slots=True)
class ServingOptions:
    """Options common to all servers. vLLM needs ``context_tokens`` and ``kv_mib`` explicitly."""

    target: str
    dtype: str
    threads: int
    central_threads: tuple[int, ...]
    draft_tokens: tuple[int, ...]
    windows: tuple[int | None, ...]
    lookups: tuple[int, ...] = (0,)  # longest n-gram drafts; 0: no prompt lookup
    ngram_tokens: tuple[int, ...] = ()
    suffix_tokens: tuple[int, ...] = ()
    context_tokens: int = 2048
    kv_mib: int = 1024


@dataclass(frozen=True, slots=True)
class Speculation:
    """One of vLLM's own ways: its configuration, and what it lacks here."""

    name: str
    config: Mapping[str, object]
    lacks: str = ""


def outrider_arm(engine: str, window: int | None, lookup: int = 0) -> str:
    """Name of the arm that leaves the window to Outrider, or of one that fixes it in every request."""
    name = f"{OUTRIDER}, {engine}" + (f", lookup {lookup}" if lookup else "")
    return name + ("" if window is None else f", window {window}")


def outrider_server(engine: str, options: ServingOptions, lookup: int = 0) -> Server:
    """A whole cluster with drafters on this machine; with prompt lookup its only arm is its own choice."""
    assignments = (
        f"model.target={options.target}",
        f"model.dtype={options.dtype}",
        f"verifiers.engine={engine}",
        f"verifiers.threads={options.threads}",
        f"verifiers.kv_budget_mib={options.kv_mib}",
        f"speculation.lookup_window={lookup}",
        "http.port={port}",
    )
    command = [sys.executable, "-m", "cluster.cli", "serve"]
    for assignment in assignments:
        command += ["--set", assignment]
    arms = tuple(
        Arm(outrider_arm(engine, window, lookup), {} if window is None else {"outrider": {"window": window}})
        for window in ((None,) if lookup else options.windows)
    )
    name = f"outrider {engine}" + (f", lookup {lookup}" if lookup else "")
    return Server(name, tuple(command), "Ready:", {"RAY_USAGE_STATS_ENABLED": "0"}, arms)


def central_server(folder: Path, options: ServingOptions, threads: int, speculation: Speculation | None) -> Server:
    """A vLLM server of the target in ``folder``: alone, or speculating."""
    command = [
        *(sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", str(folder)),
        *("--host", "127.0.0.1", "--port", "{port}", "--dtype", options.dtype),
        *("--max-model-len", str(options.context_tokens), "--kv-cache-memory-bytes", str(options.kv_mib * 2**20)),
        *("--max-num-seqs", "32", "--enforce-eager"),
    ]
    name = CENTRAL
    if speculation is not None:
        name = f"{VLLM}{speculation.name}"
        config = json.dumps(speculation.config).replace("{", "{{").replace("}", "}}")
        command += ["--speculative-config", config]
    # Started like the service's verifiers: only engine, device and threads differ.
    spec = VerifierSpec("vllm", "", "float32", "cpu", threads, EngineLimits(0))
    environment = {
        **process_variables(spec, Path(sys.prefix)),
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_LOGGING_LEVEL": "WARNING",
    }
    name = f"{name}, {threads} thread{'s' if threads > 1 else ''}"
    # A request with a seed crashes vLLM's engine on a CPU ("CPU Generator does not use offset").
    arm = Arm(name, takes_seeds=False)
    lacks = "" if speculation is None else speculation.lacks
    return Server(name, tuple(command), "Application startup complete", environment, (arm,), lacks)


def speculations(drafter: Path, options: ServingOptions) -> tuple[Speculation, ...]:
    """The selected ways of vLLM; ``drafter`` is the exported one."""

    def one(method: str, tokens: int, more: Mapping[str, object], lacks: str = "") -> Speculation:
        config = {"method": method, "num_speculative_tokens": tokens, **more}
        return Speculation(f"{method}, {tokens} tokens", config, lacks)

    lacks = "" if find_spec("arctic_inference") else f"needs {_SUFFIX_NEEDS}, which is not installed"
    return (
        *(one("draft_model", tokens, {"model": str(drafter)}) for tokens in options.draft_tokens),
        *(one("ngram", tokens, _NGRAM_LOOKUP) for tokens in options.ngram_tokens),
        *(one("suffix", tokens, {}, lacks) for tokens in options.suffix_tokens),
    )


def all_servers(engines: Sequence[str], folder: Path, drafter: Path, options: ServingOptions) -> tuple[Server, ...]:
    """Every server of the comparison; ``drafter`` is the exported one (``lab.bench.engines.servers``)."""
    ways = [None, *speculations(drafter, options)]
    central = [central_server(folder, options, threads, one) for threads in options.central_threads for one in ways]
    own = [outrider_server(engine, options, lookup) for engine in engines for lookup in options.lookups]
    return (*own, *central)

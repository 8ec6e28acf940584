"""A whole run of ``outrider bench capacity``: its settings, the server all cells share, and its record on disk."""

import asyncio
import gzip
import logging
import os
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import ray
from pydantic import ConfigDict, TypeAdapter, ValidationError

from bench.capacity.cell import Server, Times, run_cell
from bench.capacity.emulated_devices import GROUP, DeviceSpec
from bench.capacity.log import Cell, CellLog
from bench.capacity.plan import cells, speed_classes, user_plans
from bench.harness.recorded_drafts import RecordedResponse, RecordSettings, recorded_drafts
from outrider.config.schema import (
    Config,
    DrafterGroupConfig,
    LimitsConfig,
    ModelConfig,
    SpeculationConfig,
    VerifierConfig,
)
from outrider.contracts.errors import ParameterError
from outrider.link.profiles import PROFILES, LinkProfile
from outrider.models.tokenizer import load_tokenizer
from outrider.text.tokens import token_texts
from serve_app.coordination.generations import Target
from serve_app.coordination.ray_ports import VerifierPort
from serve_app.coordination.settings import verifier_settings

_OBJECT_STORE_BYTES = 100 * 2**20
_WHOLE_PROMPTS_TOKENS = 4096  # no prefix is computed in pieces, nor any batch cut: policies alone decide

_RECORDED_WINDOW = 8  # at least: the same recording then serves most windows


@dataclass(frozen=True, slots=True)
class RunSettings:
    """What is measured."""

    policies: tuple[str, ...] = ("sled", "fcfs", "wisp", "slo_aware")
    users: tuple[int, ...] = (6, 12, 18)
    repeats: int = 2
    warmup_s: float = 5.0
    measured_s: float = 24.0
    speeds: tuple[float, ...] = (1.0, 2.0, 3.0, 4.0)  # promised, in tokens/s; users take turns
    window: int = 4  # drafted tokens of every round
    step_s: float = 0.02  # a device's, per drafted token; ``prefill_token_s`` per token of a prompt
    prefill_token_s: float = 0.002
    link: str = "wifi_20m"  # name of a profile; every device has such a link, with chances of its own
    pause_s: float = 1.0  # mean of a user's between two responses
    stagger_s: float = 2.0  # users begin within so long
    prompts: int = 64  # recorded; those with responses shorter than ``least_tokens`` are not used
    tokens: int = 48  # of a response at most
    least_tokens: int = 16
    grace_s: float = 5.0  # a user that waits longer for a first token is late from then on
    seed: int = 0
    target: str = "embedded"
    drafter: str = "embedded"

    @property
    def profile(self) -> LinkProfile:
        """Every device's link."""
        return PROFILES[self.link]

    @property
    def block_tokens(self) -> int:
        """Most tokens that a round can commit."""
        return self.window + 1

    @property
    def devices(self) -> tuple[DeviceSpec, ...]:
        """Of all users there can be."""
        return tuple(
            DeviceSpec(self.step_s, self.prefill_token_s, self.profile, seed=1000 * self.seed + 2 * user)
            for user in range(max(self.users))
        )

    @property
    def total_s(self) -> float:
        """What the cells take, at least."""
        return len(self.policies) * len(self.users) * self.repeats * (self.warmup_s + self.measured_s)


@dataclass(frozen=True, slots=True)
class Run:
    """A run that was made."""

    settings: RunSettings
    logs: tuple[CellLog, ...]

    def of(self, policy: str, users: int) -> tuple[CellLog, ...]:
        """All repeats of one measurement."""
        return tuple(log for log in self.logs if (log.cell.policy, log.cell.users) == (policy, users))


_RECORD = TypeAdapter(tuple[RunSettings, tuple[CellLog, ...]], config=ConfigDict(ser_json_inf_nan="constants"))


def write_run(file: Path, run: Run) -> None:
    """Write a run as gzipped JSON."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(gzip.compress(_RECORD.dump_json((run.settings, run.logs))))
    print(f"wrote {file}")


def read_run(file: Path) -> Run:
    """The same run."""
    try:
        return Run(*_RECORD.validate_json(gzip.decompress(file.read_bytes())))
    except (OSError, EOFError, ValidationError) as error:
        raise ParameterError(
            "record", "a file written by `outrider bench capacity --record`", f"{file}: {error}"
        ) from None


def measure(settings: RunSettings, on_cell: Callable[[CellLog], None]) -> Run:
    """Make a run on a private Ray cluster; ``on_cell`` is told of every cell."""
    record = RecordSettings(
        target=settings.target,
        drafter=settings.drafter,
        prompts=settings.prompts,
        tokens=settings.tokens,
        k_max=max(settings.window, _RECORDED_WINDOW),
    )
    responses = [one for one in recorded_drafts(record) if len(one.output_ids) >= settings.least_tokens]
    return asyncio.run(_measure(settings, responses, on_cell))


async def _measure(
    settings: RunSettings, responses: Sequence[RecordedResponse], on_cell: Callable[[CellLog], None]
) -> Run:
    classes, times, logs = (
        speed_classes(settings.speeds),
        Times(settings.warmup_s, settings.measured_s),
        list[CellLog](),
    )
    async with _server(configured(settings)) as server:
        await _warm_up(settings, responses, server)
        for cell in cells(settings.policies, settings.users, settings.repeats):
            users = user_plans(
                cell,
                classes,
                responses,
                seed=settings.seed,
                pause_s=settings.pause_s,
                stagger_s=settings.stagger_s,
            )
            logs.append(await run_cell(server, cell, users, settings.devices[: cell.users], times))
            on_cell(logs[-1])
    return Run(settings, tuple(logs))


async def _warm_up(settings: RunSettings, responses: Sequence[RecordedResponse], server: Server) -> None:
    """A short cell that does not count: a process's first batches are slower."""
    cell = Cell("fcfs", min(settings.users), -1)
    plan = replace(cell, repeat=0)
    users = user_plans(plan, speed_classes(settings.speeds), responses, seed=settings.seed, pause_s=0.0, stagger_s=0.0)
    await run_cell(server, cell, users, settings.devices[: cell.users], Times(0.0, min(5.0, settings.measured_s)))


def configured(settings: RunSettings) -> Config:
    """The service's configuration, policy aside."""
    most = max(settings.users)
    return Config(
        model=ModelConfig(target=settings.target),
        drafters=(DrafterGroupConfig(name=GROUP, trust="trusted", count=most),),
        verifiers=VerifierConfig(
            prefill_chunk_tokens=_WHOLE_PROMPTS_TOKENS,
            max_batch_tokens=_WHOLE_PROMPTS_TOKENS,
            max_batch_blocks=max(32, most),
        ),
        speculation=SpeculationConfig(
            policy="fixed",
            protocols=("token_ids",),
            k_max=max(settings.window, 1),
            window=settings.window,
            drafts_ahead=False,  # the papers' users wait for their devices, and the simulator's do
            lookup_window=0,
        ),
        limits=LimitsConfig(max_concurrent_generations=most, drafter_deadline_s=60.0, verifier_deadline_s=60.0),
    )


@asynccontextmanager
async def _server(config: Config) -> AsyncIterator[Server]:
    """A verifier as the service has it, on a Ray cluster of its own."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    ray.init(
        address="local",
        num_cpus=2,
        include_dashboard=False,
        object_store_memory=_OBJECT_STORE_BYTES,
        log_to_driver=False,
        logging_level=logging.ERROR,
    )
    try:
        verifier = VerifierPort(verifier_settings(config))
        tokenizer = load_tokenizer(config.model.target)
        card = await verifier.card()
        texts = token_texts(tokenizer.backend_tokenizer, card.vocab_size)
        yield Server(config, Target(card, tokenizer, texts), verifier)
    finally:
        ray.shutdown()

"""A whole run of ``outrider bench capacity``: its settings, and the server that all cells share."""

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

import ray

from lab.bench.capacity.cell import Server, Until, run_cell
from lab.bench.capacity.emulated_devices import GROUP, DeviceSpec
from lab.bench.capacity.log import CLOSED, OPEN, Cell, CellLog
from lab.bench.capacity.plan import BASELINE, POLICIES, Load, UserPlan, cells, speed_classes, user_plans
from lab.bench.harness.recorded_drafts import RecordedResponse, RecordSettings, recorded_drafts
from outrider.config.drafters import DrafterGroupConfig
from outrider.config.replicas import VerifierConfig
from outrider.config.schema import Config, LimitsConfig, ModelConfig, SpeculationConfig
from outrider.link.profiles import PROFILES, LinkProfile
from outrider.models.tokenizer import load_tokenizer
from outrider.text.tokens import token_texts
from serve_app.coordination.generations.generations import Target
from serve_app.coordination.ray_ports import VerifierPort
from serve_app.coordination.settings import verifier_settings

_OBJECT_STORE_BYTES = 100 * 2**20
_WHOLE_PROMPTS_TOKENS = 4096  # no prefix is computed in chunks, and no batch cut: only policies decide

_RECORDED_WINDOW = 8  # minimum; so one recording serves most windows
_ASKED_MORE = 3  # times the responses that have to end
_WARM_UP_USERS, _WARM_UP_S = 4, 5.0
_DEVICE_SEEDS = 1_000_000  # per seed; two per device
_PLACES = 256  # concurrent responses, too many to be a limit


@dataclass(frozen=True, slots=True)
class RunSettings:
    policies: tuple[str, ...] = ("fcfs", "wisp", "slo_aware", "slo_aware_admission")
    arrivals: tuple[str, ...] = (CLOSED, *OPEN)
    users: tuple[int, ...] = (18,)  # of closed loops
    rates: tuple[float, ...] = (3.0,)  # requests per second of open loops
    repeats: int = 3
    first_repeat: int = 0  # repeats may be measured in several runs
    warmup_s: float = 5.0
    responses: int = 300  # that have to end after the warm-up to complete a cell
    most_s: float = 300.0  # time limit of a cell
    speeds: tuple[float, ...] = (1.0, 2.0, 3.0, 4.0)  # promised, in tokens/s; users take turns
    window: int = 4  # draft tokens of every round
    step_s: float = 0.02  # a device's, per draft token; ``prefill_token_s`` per token of a prompt
    prefill_token_s: float = 0.002
    link: str = "wifi_20m"  # name of a profile; each device has its own link with its own random draws
    pause_s: float = 1.0  # mean of a user's pause between two responses
    stagger_s: float = 2.0  # users start within this time
    prompts: int = 64  # recorded; those with responses shorter than ``least_tokens`` are not used
    tokens: int = 16  # of a response, upper limit
    least_tokens: int = 12
    grace_s: float = 5.0  # a user that waits longer for a first token is late from then on
    seed: int = 0
    target: str = "embedded"
    drafter: str = "embedded"

    @property
    def profile(self) -> LinkProfile:
        return PROFILES[self.link]

    @property
    def block_tokens(self) -> int:
        """Most tokens that a round can commit."""
        return self.window + 1

    @property
    def loads(self) -> tuple[Load, ...]:
        """The loads; open ones have more users than should be needed, as some may be refused."""
        closed = [Load(users) for users in self.users if CLOSED in self.arrivals]
        most = _ASKED_MORE * self.responses
        opened = [Load(most, kind, rate) for kind in self.arrivals if kind != CLOSED for rate in self.rates]
        return (*closed, *opened)

    @property
    def most_users(self) -> int:
        return max(load.users for load in self.loads)

    def devices(self, users: int) -> tuple[DeviceSpec, ...]:
        return tuple(
            DeviceSpec(self.step_s, self.prefill_token_s, self.profile, seed=_DEVICE_SEEDS * self.seed + 2 * user)
            for user in range(users)
        )

    @property
    def cells(self) -> list[Cell]:
        return cells(self.policies, self.loads, range(self.first_repeat, self.first_repeat + self.repeats))


def measure(settings: RunSettings, on_cell: Callable[[CellLog], None]) -> list[CellLog]:
    """Measure a run on a private Ray cluster; ``on_cell`` gets every cell."""
    record = RecordSettings(
        target=settings.target,
        drafter=settings.drafter,
        prompts=settings.prompts,
        tokens=settings.tokens,
        k_max=max(settings.window, _RECORDED_WINDOW),
    )
    least = settings.least_tokens
    responses = {  # by the rule that ends their drafts
        rule: [one for one in recorded_drafts(replace(record, stopping=rule)) if len(one.output_ids) >= least]
        for rule in {POLICIES[policy].stopping for policy in (BASELINE, *settings.policies)}
    }
    return asyncio.run(_measure(settings, responses, on_cell))


async def _measure(
    settings: RunSettings, responses: Mapping[str, Sequence[RecordedResponse]], on_cell: Callable[[CellLog], None]
) -> list[CellLog]:
    until = Until(settings.warmup_s, settings.responses, settings.most_s)
    logs = list[CellLog]()
    async with _server(configured(settings)) as server:
        await _warm_up(settings, responses[POLICIES[BASELINE].stopping], server)
        for cell in settings.cells:
            users = _users(settings, cell, responses[POLICIES[cell.policy].stopping])
            logs.append(await run_cell(server, cell, users, settings.devices(cell.users), until))
            on_cell(logs[-1])
    return logs


async def _warm_up(settings: RunSettings, responses: Sequence[RecordedResponse], server: Server) -> None:
    """Run a short cell that does not count: a process's first batches are slower."""
    cell = Cell(BASELINE, _WARM_UP_USERS, 0)
    users = _users(replace(settings, pause_s=0.0, stagger_s=0.0), cell, responses)
    until = Until(0.0, settings.responses, _WARM_UP_S)
    await run_cell(server, cell, users, settings.devices(cell.users), until)


def _users(settings: RunSettings, cell: Cell, responses: Sequence[RecordedResponse]) -> list[UserPlan]:
    return user_plans(
        cell,
        speed_classes(settings.speeds),
        responses,
        seed=settings.seed,
        pause_s=settings.pause_s,
        stagger_s=settings.stagger_s,
    )


def configured(settings: RunSettings) -> Config:
    """The service's configuration, policy aside."""
    places = max(_PLACES, settings.most_users)
    return Config(
        model=ModelConfig(target=settings.target),
        drafters=(DrafterGroupConfig(name=GROUP, trust="trusted", count=places),),
        verifiers=VerifierConfig(prefill_chunk_tokens=_WHOLE_PROMPTS_TOKENS),
        speculation=SpeculationConfig(
            policy="fixed",
            protocols=("token_ids",),
            k_max=max(settings.window, 1),
            window=settings.window,
            drafts_ahead=False,  # users of the papers and of the simulator wait for their devices
            lookup_window=0,
        ),
        limits=LimitsConfig(max_concurrent_generations=places, drafter_deadline_s=60.0, verifier_deadline_s=60.0),
    )


@asynccontextmanager
async def _server(config: Config) -> AsyncIterator[Server]:
    """A verifier as in the service, on its own Ray cluster."""
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

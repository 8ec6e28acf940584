"""Splits the configuration into the settings of a coordinator's parts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from outrider.admission.rules import AdmissionRules
from outrider.assembly.verifiers import verifier_spec
from outrider.config.drafters import DrafterGroupConfig
from outrider.config.gateway import GatewayConfig
from outrider.config.replicas import VerifierConfig
from outrider.config.schema import Config, LimitsConfig, SchedulingConfig, SpeculationConfig, TracingConfig, WireConfig
from outrider.costs.profiles import CostProfile
from outrider.engines.kinds import VerifierSpec
from outrider.models.head_file import Head
from outrider.rounds.choice import Speculation
from outrider.rounds.rules import RunGrant
from outrider.scheduling.policy import BatchLimits
from outrider.selection.modes import MODES, SpeculationMode, within
from outrider.selection.registry import SELECTION
from outrider.selection.situation import SelectionPolicy
from serve_app.coordination.batching.batcher import Planning


@dataclass(frozen=True, slots=True)
class VerifierSettings:
    """The verifier actor's engine, what it claims of Ray, and its deadlines."""

    spec: VerifierSpec
    claims: VerifierConfig
    deadline_s: float
    start_deadline_s: float
    silence_s: float = 1.5  # without a step; then it is probed, and if it stands still its responses go on elsewhere
    lookup_store_tokens: int = 0  # of earlier responses, for prompt lookup
    emulated_reload_s: float = 0.0  # added to the load time of a restarted verifier


@dataclass(frozen=True, slots=True)
class DraftingSettings:
    """Settings of drafting; ``heads`` are decision heads by draft model."""

    speculation: SpeculationConfig
    wire: WireConfig
    drafters: tuple[DrafterGroupConfig, ...]
    heads: Mapping[str, Head] = field(default_factory=dict)

    @property
    def has_drafters(self) -> bool:
        return any(group.drafts for group in self.drafters)

    def choices(self, vocab_size: int) -> Speculation:
        """Return the plans to choose from; a fixed policy has one protocol, the first."""
        speculation = self.speculation
        fixed = speculation.policy == "fixed"
        return Speculation(
            protocols=speculation.protocols[:1] if fixed else speculation.protocols,
            k_max=speculation.k_max,
            window=speculation.window,
            wire=self.wire.format(vocab_size),
            has_drafters=self.has_drafters,
            drafts_ahead=speculation.drafts_ahead,
            lookup_window=speculation.lookup_window,
        )

    @property
    def modes(self) -> tuple[SpeculationMode, ...]:
        """Modes that the speculation tuner chooses between: the configured ones, reduced to what is available.

        With a fixed window devices draft under every mode, so the modes do not differ in that.
        """
        speculation = self.speculation
        drafts, uses_lookup = self.has_drafters and speculation.window is None, speculation.lookup_window > 0
        return tuple(
            dict.fromkeys(within(MODES[name], drafts=drafts, uses_lookup=uses_lookup) for name in speculation.modes)
        )

    @property
    def policy(self) -> SelectionPolicy:
        return SELECTION[self.speculation.policy].policy


@dataclass(frozen=True, slots=True)
class GenerationsSettings:
    limits: LimitsConfig
    planning: Planning
    scheduling: SchedulingConfig
    drafting: DraftingSettings
    profiles: tuple[CostProfile, ...] = ()  # cost profiles; the first that fits the verifier's machine is used
    admission: AdmissionRules = field(default_factory=AdmissionRules)
    grant: RunGrant = field(default_factory=RunGrant)

    def with_reloadable(self, config: Config) -> "GenerationsSettings":
        """Return these settings with the reloadable ones of ``config``, which must differ in nothing else."""
        built = generations_settings(config, self.profiles, self.drafting.heads)
        return replace(built, planning=self.planning, grant=self.grant)


@dataclass(frozen=True, slots=True)
class CoordinatorSettings:
    target: str
    namespace: str
    verifier: VerifierSettings
    generations: GenerationsSettings
    tracing: TracingConfig = field(default_factory=TracingConfig)
    draft_models: Mapping[str, str] = field(default_factory=dict)  # hashes by drafter group (``assembly.draft_models``)
    gateway: GatewayConfig = field(default_factory=GatewayConfig)


def coordinator_settings(
    config: Config,
    profiles: Sequence[CostProfile] = (),
    heads: Mapping[str, Head] | None = None,
    draft_models: Mapping[str, str] | None = None,
) -> CoordinatorSettings:
    """Return a coordinator's settings.

    ``profiles``, ``heads`` and ``draft_models`` are read by the caller, as their files need not be on every node.
    """
    return CoordinatorSettings(
        target=config.model.target,
        namespace=config.cluster.namespace,
        verifier=verifier_settings(config, heads),
        generations=generations_settings(config, profiles, heads),
        tracing=config.tracing,
        draft_models=draft_models or {},
        gateway=config.gateway,
    )


def verifier_settings(config: Config, heads: Mapping[str, Head] | None = None) -> VerifierSettings:
    return VerifierSettings(
        spec=verifier_spec(config.model, config.verifiers, heads),
        claims=config.verifiers,
        deadline_s=config.limits.verifier_deadline_s,
        start_deadline_s=config.limits.verifier_start_deadline_s,
        lookup_store_tokens=config.speculation.lookup_store_tokens,
    )


def generations_settings(
    config: Config, profiles: Sequence[CostProfile] = (), heads: Mapping[str, Head] | None = None
) -> GenerationsSettings:
    verifiers, policy = config.verifiers, config.scheduling.chosen.policy
    limits = BatchLimits(
        max_blocks=verifiers.batch.max_blocks,
        max_new_tokens=verifiers.batch.max_tokens,
        prefill_chunk_tokens=verifiers.batch.prefill_chunk_tokens,
    )
    return GenerationsSettings(
        limits=config.limits,
        planning=Planning(policy, limits, verifiers.block_tokens, config.limits.verifier_deadline_s),
        scheduling=config.scheduling,
        drafting=DraftingSettings(
            speculation=config.speculation,
            wire=config.wire,
            drafters=config.drafters,
            heads=heads or {},
        ),
        profiles=tuple(profiles),
        admission=admission_rules(config),
    )


def admission_rules(config: Config) -> AdmissionRules:
    admission, limits = config.admission, config.limits
    return AdmissionRules(
        weighs=admission.enabled,
        max_load=admission.max_load,
        max_active=limits.max_concurrent_generations,
        max_waiting=limits.max_queued_generations,
        max_wait_s=admission.max_wait_s,
        best_effort_max_wait_s=admission.best_effort_max_wait_s,
    )

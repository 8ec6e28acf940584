"""A coordinator's pieces of the configuration: each of its parts receives its own, and no more."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from outrider.admission.rules import AdmissionRules
from outrider.assembly.verifiers import verifier_spec
from outrider.config.schema import (
    Config,
    DrafterGroupConfig,
    LimitsConfig,
    SpeculationConfig,
    TracingConfig,
    WireConfig,
)
from outrider.costs.profiles import CostProfile
from outrider.drafting.stopping import GroupStopping
from outrider.engines.kinds import VerifierSpec
from outrider.models.head_file import Head
from outrider.rounds.choice import Speculation
from outrider.rounds.rules import RunGrant
from outrider.scheduling.ledger import DeadlineRule
from outrider.scheduling.policy import BatchLimits
from outrider.scheduling.registry import SCHEDULING
from outrider.selection.modes import MODES, SpeculationMode, within
from outrider.selection.registry import SELECTION
from outrider.selection.situation import SelectionPolicy
from serve_app.coordination.batcher import Planning


@dataclass(frozen=True, slots=True)
class VerifierSettings:
    """The verifier's actor: what it builds, what it claims of its node, how long it may take."""

    spec: VerifierSpec
    num_cpus: float
    num_gpus: float
    resources: Mapping[str, float]
    deadline_s: float
    silence_s: float  # after which it is asked whether it gets on
    start_deadline_s: float
    lookup_store_tokens: int = 0  # of earlier responses, to be looked through
    emulated_reload_s: float = 0.0  # that one which restarts takes longer


@dataclass(frozen=True, slots=True)
class DraftingSettings:
    """What drafters draft, and how that is written.

    Attributes:
        models: the draft model of each drafter group.
        has_drafters: whether any group has a drafter.
        heads: who judges mismatches, by draft model.
        stopping: how the devices of each drafter group stop.
        logging: groups whose devices log their rounds.
        trusted: groups on whose word an answer may hang.
    """

    speculation: SpeculationConfig
    wire: WireConfig
    models: Mapping[str, str]
    has_drafters: bool
    heads: Mapping[str, Head] = field(default_factory=dict)
    stopping: Mapping[str, GroupStopping] = field(default_factory=dict)
    logging: frozenset[str] = frozenset()
    trusted: frozenset[str] = frozenset()

    def choices(self, vocab_size: int) -> Speculation:
        """What there is to choose from; a fixed policy has one protocol, the first."""
        speculation = self.speculation
        fixed = speculation.policy == "fixed"
        return Speculation(
            protocols=speculation.protocols[:1] if fixed else speculation.protocols,
            k_max=speculation.k_max,
            window=speculation.window,
            expansion=speculation.expansion,
            wire=self.wire.format(vocab_size),
            has_drafters=self.has_drafters,
            drafts_ahead=speculation.drafts_ahead,
            lookup_window=speculation.lookup_window,
            rows=speculation.rows,
        )

    @property
    def modes(self) -> tuple[SpeculationMode, ...]:
        """Between which a verifier's speculation tuner chooses: what is left of those named by what there is.

        Where the window is fixed, devices draft under every mode alike.
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
    """What responses are made with.

    Attributes:
        profiles: of verification times, of which the first that fits the verifier's machine is used.
    """

    limits: LimitsConfig
    planning: Planning
    deadline_rule: DeadlineRule
    first_token_s: float
    drafting: DraftingSettings
    profiles: tuple[CostProfile, ...] = ()
    admission: AdmissionRules = field(default_factory=AdmissionRules)
    grant: RunGrant = field(default_factory=RunGrant)

    def with_reloadable(self, config: Config) -> "GenerationsSettings":
        """The same with the light settings of a configuration that differs in nothing else."""
        return replace(
            self,
            limits=config.limits,
            first_token_s=config.scheduling.first_token_s,
            drafting=replace(self.drafting, speculation=config.speculation),
            admission=admission_rules(config),
        )


@dataclass(frozen=True, slots=True)
class CoordinatorSettings:
    """All of a coordinator."""

    target: str
    namespace: str
    drafters: tuple[DrafterGroupConfig, ...]
    verifier: VerifierSettings
    generations: GenerationsSettings
    tracing: TracingConfig = field(default_factory=TracingConfig)
    draft_models: Mapping[str, str] = field(default_factory=dict)  # hashes by drafter group (``assembly.draft_models``)


def coordinator_settings(
    config: Config,
    profiles: Sequence[CostProfile] = (),
    heads: Mapping[str, Head] | None = None,
    draft_models: Mapping[str, str] | None = None,
) -> CoordinatorSettings:
    """Take a configuration to pieces.

    ``profiles``, ``heads`` and ``draft_models`` are its own, read already: the files need not be on every node.
    """
    return CoordinatorSettings(
        target=config.model.target,
        namespace=config.cluster.namespace,
        drafters=config.drafters,
        verifier=verifier_settings(config, heads),
        generations=generations_settings(config, profiles, heads),
        tracing=config.tracing,
        draft_models=draft_models or {},
    )


def verifier_settings(config: Config, heads: Mapping[str, Head] | None = None) -> VerifierSettings:
    verifiers, limits = config.verifiers, config.limits
    return VerifierSettings(
        spec=verifier_spec(config.model, verifiers, heads),
        num_cpus=verifiers.num_cpus,
        num_gpus=verifiers.num_gpus,
        resources=verifiers.resources,
        deadline_s=limits.verifier_deadline_s,
        silence_s=limits.verifier_silence_s,
        start_deadline_s=limits.verifier_start_deadline_s,
        lookup_store_tokens=config.speculation.lookup_store_tokens,
        emulated_reload_s=verifiers.emulated_reload_s,
    )


def generations_settings(
    config: Config, profiles: Sequence[CostProfile] = (), heads: Mapping[str, Head] | None = None
) -> GenerationsSettings:
    """The piece of those who make responses."""
    verifiers, scheduling = config.verifiers, SCHEDULING[config.scheduling.policy]
    limits = BatchLimits(
        max_blocks=verifiers.batch.max_blocks,
        max_new_tokens=verifiers.batch.max_tokens,
        prefill_chunk_tokens=verifiers.batch.prefill_chunk_tokens,
    )
    return GenerationsSettings(
        limits=config.limits,
        planning=Planning(scheduling.policy, limits, verifiers.block_tokens, config.limits.verifier_deadline_s),
        deadline_rule=scheduling.deadlines,
        first_token_s=config.scheduling.first_token_s,
        drafting=DraftingSettings(
            speculation=config.speculation,
            wire=config.wire,
            models={group.name: group.model for group in config.drafters},
            has_drafters=config.drafter_count > 0,
            heads=heads or {},
            stopping={
                group.name: GroupStopping(group.stopping.rule, group.stopping.drafting_weight)
                for group in config.drafters
            },
            logging=frozenset(group.name for group in config.drafters if group.round_log is not None),
            trusted=frozenset(group.name for group in config.drafters if group.trusted),
        ),
        profiles=tuple(profiles),
        admission=admission_rules(config),
    )


def admission_rules(config: Config) -> AdmissionRules:
    """Who is let in: what is set of admission, within the limits."""
    admission, limits = config.admission, config.limits
    return AdmissionRules(
        weighs=admission.enabled,
        max_load=admission.max_load,
        best_effort_floor=admission.best_effort_floor,
        max_active=limits.max_concurrent_generations,
        max_waiting=limits.max_queued_generations,
        max_wait_s=admission.max_wait_s,
        best_effort_max_wait_s=admission.best_effort_max_wait_s,
    )

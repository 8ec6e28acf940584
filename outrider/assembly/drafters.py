"""Build the drafter engine that a group's configuration describes."""

from dataclasses import replace

from outrider.config.drafters import DrafterGroupConfig, RoundLogConfig
from outrider.contracts.verifying import AcceptanceRule
from outrider.drafting.recalibration import OnVerdict
from outrider.drafting.round_log import LogHeader, RoundLogPlace
from outrider.drafting.stopping import StopSetting
from outrider.engines.emulated_speed import EmulatedSpeed, PassTimer, slowed_drafter
from outrider.engines.kinds import BuiltDrafter, DrafterSpec
from outrider.engines.limits import EngineLimits
from outrider.engines.registry import DRAFTERS


def drafter_spec(group: DrafterGroupConfig, target: str) -> DrafterSpec:
    return DrafterSpec(
        engine=group.engine_name,
        model=group.model,
        target=target,
        dtype=group.dtype,
        device=group.device,
        threads=group.threads,
        stopping=StopSetting(group.stopping.rule),
        predictor=group.stopping.predictor,
        log=None if group.round_log is None else _log_place(group.round_log, group.name),
        speed=EmulatedSpeed(group.emulated_step_ms / 1e3),
        limits=EngineLimits(kv_budget_bytes=group.kv_budget_mib * 2**20),
    )


def build_drafter(spec: DrafterSpec, on_verdict: OnVerdict | None = None) -> BuiltDrafter:
    """Load the draft model and build its engine, in the thread that will use it.

    Raises:
        VocabularyMismatchError: target and drafter disagree on a token id.
        ModelUnavailableError: a model or predictor cannot be found or loaded, or the models do not fit each other.
        PairMismatchError: the named predictor of acceptance is for another pair.
        ParameterError: a value that engine or model does not support.
    """
    built = DRAFTERS[spec.engine].build(spec, on_verdict)
    return replace(built, engine=slowed_drafter(built.engine, PassTimer(spec.speed))) if spec.speed else built


def log_header(spec: DrafterSpec, built: BuiltDrafter) -> LogHeader:
    """Return the header of this drafter's round logs; a file's own name and rule are filled in later."""
    from outrider.models.folders import resolve_folder, short_name  # noqa: PLC0415
    from outrider.models.target_folder import model_hash  # noqa: PLC0415

    return LogHeader(
        drafter=built.facts.name,
        drafter_hash=built.facts.model_hash,
        target=short_name(spec.target),
        target_hash=model_hash(resolve_folder(spec.target)),
        rule=AcceptanceRule.GREEDY,
        stops=spec.stopping.kind,
    )


def _log_place(config: RoundLogConfig, group: str) -> RoundLogPlace:
    return RoundLogPlace(config.folder, group, config.most_mib * 2**20)

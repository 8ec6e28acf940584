"""The drafter engine that a group's configuration describes."""

from dataclasses import replace

from outrider.config.schema import DrafterGroupConfig
from outrider.drafting.stopping import Stopping
from outrider.engines.kinds import BuiltDrafter, DrafterSpec
from outrider.engines.limits import EngineLimits
from outrider.engines.paced import Pace, PacedDrafter, Waiting
from outrider.engines.registry import DRAFTERS


def drafter_spec(group: DrafterGroupConfig, target: str) -> DrafterSpec:
    """What the configuration describes, for drafting for this target."""
    return DrafterSpec(
        engine=group.engine,
        model=group.model,
        target=target,
        dtype=group.dtype,
        device=group.device,
        threads=group.threads,
        stopping=Stopping(group.stopping.rule, group.stopping.least_acceptance),
        predictor=group.stopping.predictor,
        pace=Pace(group.emulated_step_ms / 1e3),
        limits=EngineLimits(kv_budget_bytes=group.kv_budget_mib * 2**20),
    )


def build_drafter(spec: DrafterSpec) -> BuiltDrafter:
    """Load the draft model and build its engine, in the thread that will use it.

    Raises:
        VocabularyMismatchError: target and drafter disagree on a token id.
        ModelUnavailableError: either can neither be found nor loaded, or they do not fit each other; or a predictor.
        PairMismatchError: a predictor of acceptance is named that is another pair's.
        ParameterError: a value that engine or model cannot take.
    """
    built = DRAFTERS[spec.engine](spec)
    return replace(built, engine=PacedDrafter(built.engine, Waiting(spec.pace))) if spec.pace else built

"""Read simulation files: YAML to one ``Scenario`` for each system, or to a ``FleetScenario``.

All problems of a file are reported together.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from importlib.resources import files
from math import inf
from pathlib import Path
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from lab.simulation.fleet.scenario import ConversationTraits, DrafterGroup, DrafterTraits, FleetScenario, Traffic
from lab.simulation.roofline import HARDWARE, MODELS, RooflineCostModel
from lab.simulation.scenario import DeviceGroup, Devices, Scenario, VerifierModel, host_memory
from lab.simulation.schema import (
    CostConfig,
    DeviceGroupConfig,
    FleetFile,
    ScenarioFile,
    ServerConfig,
    SimDrafterGroupConfig,
    TrafficConfig,
)
from outrider.assembly.links import link_source
from outrider.config.schema import SloClassConfig
from outrider.contracts.cost import CostModel, LinearCostModel
from outrider.contracts.errors import ConfigError
from outrider.contracts.slo import BEST_EFFORT, DEFAULT_CLASSES, SloClass
from outrider.costs.profiles import CostProfile, parse_profile, read_profile
from outrider.documents.problems import ConfigFileError, explain
from outrider.documents.text_file import read_text
from outrider.documents.yaml_text import parse_yaml
from outrider.scheduling.policy import BatchLimits
from outrider.scheduling.registry import SCHEDULING

_SCENARIO, _FLEET = TypeAdapter(ScenarioFile), TypeAdapter(FleetFile)
_SHIPPED = files("outrider.costs.shipped")
_FLEET_KEYS = frozenset({"verifiers", "drafters", "traffic"})
File = TypeVar("File")


@dataclass(frozen=True, slots=True)
class ReadFile:
    """What is known of the verifiers of any file."""

    cost_source: str  # where the verifiers' times come from, in words for the reader
    measured: bool  # whether they were measured on some machine, or follow from data sheets


@dataclass(frozen=True, slots=True)
class ReadScenario(ReadFile):
    name: str
    groups: tuple[DeviceGroup, ...]  # of devices
    verifier: VerifierModel  # what they share
    scenarios: tuple[Scenario, ...]  # one for each system to compare
    epsilon: float  # share of violations up to which a promise counts as kept


@dataclass(frozen=True, slots=True)
class ReadFleet(ReadFile):
    scenario: FleetScenario


def load_simulation(path: str | Path, seed: int | None = None) -> ReadScenario | ReadFleet:
    """Read a file of either kind; one with ``verifiers``, ``drafters`` or ``traffic`` describes a fleet.

    ``seed`` replaces the one it names.

    Raises:
        ConfigError: it cannot be read, or fields are unknown, of the wrong type or out of range.
    """
    text = read_text(path, "scenario", "YAML")
    content = parse_yaml(text, str(path))
    if isinstance(content, dict) and not _FLEET_KEYS.isdisjoint(content):
        return parse_fleet(text, str(path), seed)
    return parse_scenario(text, str(path), seed)


def load_scenario(path: str | Path, seed: int | None = None) -> ReadScenario:
    return parse_scenario(read_text(path, "scenario", "YAML"), str(path), seed)


def parse_scenario(text: str, source: str, seed: int | None = None) -> ReadScenario:
    """Read YAML text; ``source`` names it in messages."""
    file = _parsed(_SCENARIO, text, source)
    classes = _classes_of(file.slo_classes)
    groups = tuple(_group(config, index, classes) for index, config in enumerate(file.devices))
    verifier = _verifier_of(file.server)
    return ReadScenario(
        name=file.name,
        groups=groups,
        verifier=verifier,
        scenarios=tuple(
            Scenario(
                name=f"{file.name}: {system}",
                system=system,
                groups=groups,
                verifier=verifier,
                duration_s=file.duration_s,
                warmup_s=file.warmup_s,
                seed=file.seed if seed is None else seed,
                scheduling=SCHEDULING[file.policy] if file.policy else None,
            )
            for system in file.systems
        ),
        epsilon=file.epsilon,
        cost_source=_cost_source_of(file.server.cost),
        measured=_is_measured(file.server.cost),
    )


def parse_fleet(text: str, source: str, seed: int | None = None) -> ReadFleet:
    file = _parsed(_FLEET, text, source)
    classes = _classes_of(file.slo_classes)
    verifiers = file.verifiers
    scenario = FleetScenario(
        name=file.name,
        verifiers=verifiers.count,
        verifier=_verifier_of(verifiers.server),
        drafters=tuple(map(_drafters, file.drafters)),
        traffic=tuple(_traffic(config, index, classes) for index, config in enumerate(file.traffic)),
        duration_s=file.duration_s,
        seed=file.seed if seed is None else seed,
        warmup_s=file.warmup_s,
        router=file.router,
        scheduling=SCHEDULING[file.policy],
        admission=file.admission.rules,
        lost_every_s=inf if verifiers.lost_every_s is None else verifiers.lost_every_s,
        reload_s=verifiers.reload_s,
        coordinator_round_s=1e-6 * file.coordinator.round_us,
        coordinator_token_s=1e-6 * file.coordinator.token_us,
        plans_late=file.plans_late,
    )
    cost = verifiers.server.cost
    return ReadFleet(_cost_source_of(cost), _is_measured(cost), scenario)


def _parsed(adapter: TypeAdapter[File], text: str, source: str) -> File:
    try:
        return adapter.validate_python(parse_yaml(text, source) or {})
    except ValidationError as error:
        raise ConfigFileError(explain(error, adapter.json_schema()), source) from error


def _classes_of(configs: Sequence[SloClassConfig]) -> dict[str, SloClass]:
    """Return SLO classes by name, best effort included; the default ones if a file has none."""
    named = [SloClass(one.name, one.tokens_per_s) for one in configs] or DEFAULT_CLASSES
    return {one.name: one for one in (*named, BEST_EFFORT)}


def _verifier_of(config: ServerConfig) -> VerifierModel:
    cost_model = _cost_model_of(config.cost)
    kv_tokens = config.kv_tokens
    if kv_tokens is None and isinstance(cost_model, RooflineCostModel):
        kv_tokens = cost_model.kv_tokens()
        if kv_tokens < config.kv_block_tokens:
            needed = "a GPU whose memory holds the model's weights and some KV"
            raise ConfigError("server.cost.roofline.gpu", needed, cost_model.hardware.name)
    host = config.host
    return VerifierModel(
        cost_model=cost_model,
        limits=BatchLimits(
            config.max_blocks,
            config.max_new_tokens,
            config.prefill_chunk_tokens,
            None if kv_tokens is None else max(1, kv_tokens // config.kv_block_tokens),
        ),
        kv_block_tokens=config.kv_block_tokens,
        noise=config.noise,
        dispatch_s=config.dispatch_s,
        reply_s=config.reply_s,
        host=None
        if host is None
        else host_memory(cost_model, host.tokens, config.kv_block_tokens, host.kv_bytes_per_token, host.bytes_per_s),
    )


def shipped_profile(name: str) -> CostProfile:
    """Return a profile that is part of the package; a ``ConfigError`` lists those that exist."""
    known = sorted(file.name.removesuffix(".json") for file in _SHIPPED.iterdir() if file.name.endswith(".json"))
    if name not in known:
        raise ConfigError("cost profile", f"one of {', '.join(known)}", name)
    return parse_profile(_SHIPPED.joinpath(f"{name}.json").read_text(encoding="utf-8"), name)


def _cost_model_of(config: CostConfig) -> CostModel:
    if config.roofline is not None:
        return RooflineCostModel(MODELS[config.roofline.model], HARDWARE[config.roofline.gpu])
    if config.profile is not None:
        is_file = config.profile.endswith(".json")
        return (read_profile(config.profile) if is_file else shipped_profile(config.profile)).model
    assert config.coefficients is not None  # the schema has checked it
    four = config.coefficients
    return LinearCostModel(four.per_token_s, four.per_interaction_s, four.per_cached_token_s, four.per_batch_s)


def _cost_source_of(config: CostConfig) -> str:
    if config.roofline is not None:
        gpu = HARDWARE[config.roofline.gpu].name
        return f"a roofline of {config.roofline.model} on {gpu}, from data sheets: nothing of it was measured"
    if config.profile is not None:
        return f"the cost profile {config.profile}"
    return "coefficients given in the file"


def _is_measured(config: CostConfig) -> bool:
    return config.roofline is None


def _group(config: DeviceGroupConfig, index: int, classes: Mapping[str, SloClass]) -> DeviceGroup:
    return DeviceGroup(
        **_shared(config, Devices),
        step_s=1.0 / config.draft_tokens_per_s,
        slo=_class_of(config.slo, f"devices[{index}].slo", classes),
        link=link_source(config.link),
    )


def _drafters(config: SimDrafterGroupConfig) -> DrafterGroup:
    shared = _shared(config, DrafterTraits)
    return DrafterGroup(**shared, step_s=1.0 / config.draft_tokens_per_s, link=link_source(config.link))


def _traffic(config: TrafficConfig, index: int, classes: Mapping[str, SloClass]) -> Traffic:
    slo = _class_of(config.slo, f"traffic[{index}].slo", classes)
    return Traffic(**_shared(config, ConversationTraits), slo=slo)


def _shared(config: object, base: type[Devices | DrafterTraits | ConversationTraits]) -> dict[str, Any]:
    """Return the fields that a file and the simulation have in common: those of ``base``."""
    return {one.name: getattr(config, one.name) for one in fields(base)}


def _class_of(name: str, field: str, classes: Mapping[str, SloClass]) -> SloClass:
    if name not in classes:
        raise ConfigError(field, f"one of {', '.join(sorted(classes))}", name)
    return classes[name]

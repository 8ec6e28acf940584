"""Read fleet files: YAML to a ``FleetScenario``. All problems of a file are reported together."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from math import inf
from pathlib import Path

from pydantic import TypeAdapter

from lab.simulation.fleet.scenario import ConversationTraits, DrafterGroup, DrafterTraits, FleetScenario, Traffic
from lab.simulation.fleet.schema import FleetFile, SimDrafterGroupConfig, TrafficConfig
from lab.simulation.reading import classes_of, cost_source_of, parse_file, verifier_of
from outrider.assembly.links import link_source
from outrider.contracts.errors import ConfigError
from outrider.contracts.slo import SloClass
from outrider.documents.text_file import read_text
from outrider.documents.yaml_text import parse_yaml
from outrider.scheduling.registry import SCHEDULING

_ADAPTER = TypeAdapter(FleetFile)
_OWN_KEYS = frozenset({"verifiers", "drafters", "traffic"})


@dataclass(frozen=True, slots=True)
class ReadFleet:
    """The contents of a fleet file."""

    scenario: FleetScenario
    cost_source: str  # where the verifiers' times come from, in words for the reader
    measured: bool  # whether they were measured on some machine, or follow from data sheets


def is_fleet(path: str | Path) -> bool:
    """Return whether a file describes a fleet rather than one verifier.

    Raises:
        ConfigError: the file cannot be read, or is no YAML.
    """
    content = parse_yaml(read_text(path, "scenario", "YAML"), str(path))
    return isinstance(content, dict) and not _OWN_KEYS.isdisjoint(content)


def load_fleet(path: str | Path, seed: int | None = None) -> ReadFleet:
    """Read a file; ``seed`` replaces the one it names.

    Raises:
        ConfigError: it cannot be read, or fields are unknown, of the wrong type or out of range.
    """
    return parse_fleet(read_text(path, "scenario", "YAML"), str(path), seed)


def parse_fleet(text: str, source: str, seed: int | None = None) -> ReadFleet:
    """Read YAML text; ``source`` names it in messages."""
    file = parse_file(_ADAPTER, text, source)
    classes = classes_of(file.slo_classes)
    verifiers = file.verifiers
    scenario = FleetScenario(
        name=file.name,
        verifiers=verifiers.count,
        verifier=verifier_of(verifiers.server),
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
        scaling=None if file.scaling is None else file.scaling.scaling,
        plans_late=file.plans_late,
    )
    return ReadFleet(scenario, cost_source_of(verifiers.server.cost), verifiers.server.cost.roofline is None)


def _drafters(config: SimDrafterGroupConfig) -> DrafterGroup:
    shared = {one.name: getattr(config, one.name) for one in fields(DrafterTraits)}
    return DrafterGroup(**shared, step_s=1.0 / config.draft_tokens_per_s, link=link_source(config.link))


def _traffic(config: TrafficConfig, index: int, classes: Mapping[str, SloClass]) -> Traffic:
    if config.slo not in classes:
        raise ConfigError(f"traffic[{index}].slo", f"one of {', '.join(sorted(classes))}", config.slo)
    shared = {one.name: getattr(config, one.name) for one in fields(ConversationTraits)}
    return Traffic(**shared, slo=classes[config.slo])

"""Read the configuration file into the frozen dataclasses of ``outrider.config.schema``.

A file names only the fields it changes. All problems are found before anything starts and are reported together, each
as ``field needs RANGE, found VALUE (in FILE)``; the ranges in the messages come from the schema.
"""

from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml
from pydantic import TypeAdapter, ValidationError

from outrider.config.schema import Config
from outrider.contracts.errors import ConfigError
from outrider.documents.problems import ConfigFileError, explain
from outrider.documents.text_file import read_text
from outrider.documents.yaml_text import parse_yaml

_ADAPTER = TypeAdapter(Config)
GONE: Mapping[str, str] = {  # what holds now of keys that earlier versions had
    "drafters.head": "is decision_head now",
    "speculation.arms": "is modes now",
    "verifiers.parts": "is no setting any more: it is 2",
    "drafters.stopping.least_acceptance": "is no setting any more: it is 0.5",
    "drafters.stopping.drafting_weight": "is no setting any more: it is 1.0",
    "verifiers.autoscaling.cold_start_s": "is no setting any more: it is 60 s until a start was measured",
    "verifiers.autoscaling.trend_s": "is no setting any more: it is 1200 s",
    "verifiers.prefill_threads": "is no setting any more: it is 2",
    "verifiers.kv_block_tokens": "is no setting any more: it is 16, with vllm on a CPU 32",
    "verifiers.max_batch_tokens": "is no setting any more: it is 512 where device is cpu, 8192 where it is cuda, or "
    "prefill_chunk_tokens where that is more",
    "verifiers.max_batch_blocks": "is no setting any more: it is 32 where device is cpu, 256 where it is cuda",
    "verifiers.emulated_reload_s": "is no setting any more: it is 0 s",
    "speculation.expansion": "is no setting any more: the policy chooses, unless a request names it",
    "speculation.rows": "is no setting any more: the policy chooses, unless a request names it",
    "wire.logit_field": "is no setting any more: it is fp16",
    "wire.scalar_bits": "is no setting any more: it is 24",
    "wire.row_field": "is no setting any more: it is fp32",
    "wire.top_k": "is no setting any more: it is 32",
    "wire.top_rho": "is no setting any more: it is 1.0",
    "wire.distinct_siblings": "is no setting any more: it is true",
    "slo.least_first_token_ms": "is no setting any more: it is 100 ms",
    "admission.best_effort_floor": "is no setting any more: it is 0.05",
    "limits.body_deadline_s": "is no setting any more: it is 60 s",
    "limits.reader_deadline_s": "is no setting any more: it is 60 s",
    "limits.drafter_last_deadline_s": "is no setting any more: it is 120 s",
    "limits.drafter_open_deadline_s": "is no setting any more: it is 30 s",
    "limits.verifier_silence_s": "is no setting any more: it is 1.5 s",
    "limits.next_chunk_deadline_s": "is no setting any more: first_chunk_deadline_s holds for every chunk",
    "structured.max_schema_kib": "is no setting any more: it is 64 KiB",
    "structured.max_nesting": "is no setting any more: it is 64",
    "structured.max_compile_ms": "is no setting any more: it is 1000 ms",
    "ingress.autoscaling.down_after_s": "is no setting any more: it is 300 s",
    "ingress.autoscaling.cold_start_s": "is no setting any more: it is 20 s until a start was measured",
    "auth.reload_s": "is no setting any more: it is 5 s",
    "tracing.service_name": "is no setting any more: OTEL_SERVICE_NAME names the service, else it is outrider",
    "cluster.object_store_mib": "is no setting any more: it is 100 MiB",
}


def load_config(path: str | Path | None = None) -> Config:
    """Read a file; None reads the packaged ``default.yaml``.

    Raises:
        ConfigError: the file cannot be read or parsed, or fields are unknown, of the wrong type or out of range.
    """
    if path is None:
        return parse_config(
            files("outrider.config").joinpath("default.yaml").read_text(encoding="utf-8"), "default.yaml"
        )
    return parse_config(read_text(path, "configuration", "YAML"), str(path))


def parse_config(text: str, source: str) -> Config:
    """Parse YAML text; ``source`` names it in messages. Fields that are left out have their defaults."""
    data = parse_yaml(text, source)
    return build_config({} if data is None else data, source)


def override(config: Config, assignments: Sequence[str]) -> Config:
    """Apply assignments such as ``verifiers.threads=2`` or ``drafters.0.count=3`` (values are YAML).

    Raises:
        ConfigError: an assignment is malformed, its path does not exist, or the result is invalid.
    """
    if not assignments:
        return config
    data: Any = dumped(config)
    for assignment in assignments:
        path, equals, text = assignment.partition("=")
        if not equals:
            raise ConfigError("--set", "KEY=VALUE, such as verifiers.threads=2", assignment)
        *parents, last = path.split(".")
        node = data
        for key in parents:
            node = node[_key_of(node, key, path)]
        final_key = _key_of(node, last, path, new=True)
        try:
            node[final_key] = parse_yaml(text, "--set")
        except ConfigError as error:
            raise ConfigError(path, "a YAML value", text) from error
    return build_config(data, "--set")


def to_yaml(config: Config) -> str:
    """Return every field as YAML; ``parse_config`` of the result equals ``config``."""
    return yaml.safe_dump(dumped(config), sort_keys=False, allow_unicode=True)


def dumped(config: Config) -> dict[str, Any]:
    """Return every field in the form of JSON; ``build_config`` of the result equals ``config``."""
    data: dict[str, Any] = _ADAPTER.dump_python(config, mode="json")
    return data


def build_config(data: object, source: str) -> Config:
    """Validate parsed data; ``source`` names it in messages.

    Raises:
        ConfigError: fields are unknown, of the wrong type or out of range.
    """
    try:
        return _ADAPTER.validate_python(data)
    except ValidationError as error:
        raise ConfigFileError(explain(error, _ADAPTER.json_schema(), GONE), source) from error


def _key_of(node: Any, key: str, path: str, *, new: bool = False) -> str | int:
    """Return the key or index of ``key`` in ``node``; a ``new`` last key of a mapping need not exist."""
    if isinstance(node, dict) and (new or key in node):
        return key
    if isinstance(node, list) and key.isdecimal() and int(key) < len(node):
        return int(key)
    choices = list(node) if isinstance(node, dict) else range(len(node)) if isinstance(node, list) else ()
    known = ", ".join(map(str, choices)) or "nothing below it"
    raise ConfigError(f"--set {path}", f"a path to a field (here: {known})", key)

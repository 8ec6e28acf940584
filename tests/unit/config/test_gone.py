"""Settings of earlier versions: each is refused, and what is said of it holds."""

from typing import Any

import pytest

from cluster import local
from outrider.admission.rules import AdmissionRules
from outrider.assembly import verifiers as assembly
from outrider.config.assigning import override
from outrider.config.device_defaults import batch_size
from outrider.config.reading import build_config, gone
from outrider.config.schema import Config
from outrider.contracts.errors import ConfigError
from outrider.contracts.exchanged import WireFormat
from outrider.drafting.stopping import LEAST_ACCEPTANCE
from outrider.engines.registry import VERIFIERS
from outrider.rounds.rules import DRAFTER_OPEN_DEADLINE_S, MUST_USE_DRAFT_DEADLINE_S
from outrider.scaling.policy import ScalingRules
from serve_app import scaling
from serve_app.api.service import BODY_DEADLINE_S, KEYS_RELOAD_S, READER_DEADLINE_S, StructuredLimits
from serve_app.coordination.settings import verifier_settings
from serve_app.ingress import model_limits

GONE = gone()
RULES, LIMITS, WIRE = ScalingRules(1, 2), StructuredLimits(), WireFormat(2)
CPU, CUDA = batch_size("cpu"), batch_size("cuda")
HOLDS = {
    "drafters.stopping.least_acceptance": f"{LEAST_ACCEPTANCE}",
    "verifiers.autoscaling.cold_start_s": f"{RULES.cold_start_s:g} s",
    "verifiers.autoscaling.trend_s": f"{RULES.trend_s:g} s",
    "verifiers.parts": f"{assembly.PREFILL_THREADS}",
    "verifiers.prefill_threads": f"{assembly.PREFILL_THREADS}",
    "verifiers.kv_block_tokens": f"{VERIFIERS['torch'].block_tokens['cpu']}, with vllm on a CPU "
    f"{VERIFIERS['vllm'].block_tokens['cpu']}",
    "verifiers.max_batch_tokens": f"{CPU.max_tokens} where device is cpu, {CUDA.max_tokens} where it is cuda",
    "verifiers.max_batch_blocks": f"{CPU.max_blocks} where device is cpu, {CUDA.max_blocks} where it is cuda",
    "verifiers.emulated_reload_s": f"{verifier_settings(Config()).emulated_reload_s:g} s",
    "wire.logit_field": WIRE.logit_field.value,
    "wire.scalar_bits": f"{WIRE.scalar_bits}",
    "wire.row_field": WIRE.row_field.value,
    "wire.top_k": f"{WIRE.top_k}",
    "wire.top_rho": f"{WIRE.top_rho}",
    "wire.distinct_siblings": f"{WIRE.distinct_siblings}".lower(),
    "slo.least_first_token_ms": f"{model_limits.LEAST_FIRST_TOKEN_MS:g} ms",
    "admission.best_effort_floor": f"{AdmissionRules().best_effort_floor}",
    "limits.body_deadline_s": f"{BODY_DEADLINE_S:g} s",
    "limits.reader_deadline_s": f"{READER_DEADLINE_S:g} s",
    "limits.drafter_last_deadline_s": f"{MUST_USE_DRAFT_DEADLINE_S:g} s",
    "limits.drafter_open_deadline_s": f"{DRAFTER_OPEN_DEADLINE_S:g} s",
    "limits.verifier_silence_s": f"{verifier_settings(Config()).silence_s:g} s",
    "structured.max_schema_kib": f"{LIMITS.max_bytes // 1024} KiB",
    "structured.max_nesting": f"{LIMITS.max_nesting}",
    "structured.max_compile_ms": f"{LIMITS.max_compile_s * 1e3:g} ms",
    "ingress.autoscaling.down_after_s": f"{RULES.down_after_s:g} s",
    "ingress.autoscaling.cold_start_s": f"{scaling.INGRESS_START_S:g} s",
    "auth.reload_s": f"{KEYS_RELOAD_S:g} s",
    "cluster.object_store_mib": f"{local.OBJECT_STORE_BYTES // 2**20} MiB",
}
OTHERWISE = {  # no value of ours: another key, whoever asks, or the environment
    "drafters.head",
    "drafters.stopping.drafting_weight",
    "speculation.arms",
    "speculation.expansion",
    "speculation.rows",
    "limits.next_chunk_deadline_s",
    "tracing.service_name",
}


def nested(path: str) -> dict[str, Any]:
    """A configuration that sets only this."""
    *sections, name = path.split(".")
    found: dict[str, Any] = {name: 1}
    for section in reversed(sections):
        found = {"drafters": [{"name": "a", **found}]} if section == "drafters" else {section: found}
    return found


@pytest.mark.parametrize("path", GONE)
def test_it_is_refused_with_what_holds_now(path: str) -> None:
    name = path.rpartition(".")[2]
    with pytest.raises(ConfigError) as caught:
        build_config(nested(path), "my.yaml")
    assert f"{name} {GONE[path]}), found '{name}' (in my.yaml)" in str(caught.value)


def test_an_assignment_of_it_is_refused_too() -> None:
    with pytest.raises(ConfigError, match="body_deadline_s is no setting any more: it is 60 s"):
        override(Config(), ["limits.body_deadline_s=20"])


@pytest.mark.parametrize("path", HOLDS)
def test_what_is_said_of_it_holds(path: str) -> None:
    assert GONE[path].startswith(f"is no setting any more: it is {HOLDS[path]}")


def test_all_are_looked_at() -> None:
    assert HOLDS.keys() | OTHERWISE == GONE.keys()
    assert not HOLDS.keys() & OTHERWISE

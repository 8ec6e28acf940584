import pickle
import subprocess
import sys
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.config.access import HttpConfig
from outrider.config.assigning import override
from outrider.config.drafters import DrafterGroupConfig, LinkConfig, RoundLogConfig
from outrider.config.reading import load_config, parse_config, to_yaml
from outrider.config.replicas import VerifierConfig
from outrider.config.schema import (
    Config,
    LimitsConfig,
    ModelConfig,
    SchedulingConfig,
    SloClassConfig,
    SloConfig,
    SpeculationConfig,
)
from outrider.contracts.errors import ConfigError
from outrider.contracts.slo import DEFAULT_CLASSES, SloClass
from outrider.documents.problems import ConfigFileError
from outrider.link.profiles import PROFILES
from outrider.scheduling.ledger import DeadlineRule
from outrider.scheduling.registry import SCHEDULING
from outrider.scheduling.wisp import Wisp
from outrider.selection.registry import SELECTION

TEXTS = st.text(st.characters(exclude_categories=["C", "Zl", "Zp"]), min_size=1)
NAMES = st.from_regex(r"[a-z0-9][a-z0-9_-]{0,62}", fullmatch=True)
SHARES = st.floats(min_value=0, max_value=1024)
RESOURCES = st.dictionaries(TEXTS, st.floats(min_value=1e-6, max_value=1e6), max_size=3)
SECONDS = st.floats(min_value=0, max_value=86_400, exclude_min=True)
DTYPES = st.sampled_from(["float32", "bfloat16", "float16"])

LINKS = st.one_of(
    st.none(),
    st.builds(LinkConfig, profile=st.sampled_from(sorted(PROFILES))),
    st.builds(LinkConfig, trace=TEXTS),
    st.builds(
        LinkConfig,
        up_mbps=st.floats(0.001, 1e6),
        down_mbps=st.floats(0.001, 1e6),
        rtt_ms=st.floats(0, 60_000),
        per_up=st.none() | st.floats(0, 0.99),
        jitter_ms=st.none() | st.floats(0, 60_000),
    ),
)
GROUPS = st.builds(
    DrafterGroupConfig,
    name=NAMES,
    model=TEXTS,
    dtype=DTYPES | st.sampled_from(["auto", "int8"]),
    device=st.just("cuda"),
    count=st.integers(0, 100),
    resources=RESOURCES,
    num_cpus=SHARES,
    num_gpus=st.floats(min_value=0.001, max_value=1),
    link=LINKS,
    round_log=st.none() | st.builds(RoundLogConfig, folder=TEXTS.map("/{}".format), most_mib=st.integers(1, 1024)),
)
SLOS = st.lists(
    st.builds(SloClassConfig, name=NAMES, tokens_per_s=st.floats(0, 100_000)),
    unique_by=lambda known: known.name,
    min_size=1,
    max_size=4,
).flatmap(
    lambda known: st.builds(
        SloConfig, classes=st.just(tuple(known)), default=st.sampled_from([one.name for one in known])
    )
)
CONFIGS = st.builds(
    Config,
    model=st.builds(
        ModelConfig, target=TEXTS, served_name=st.none() | TEXTS, max_context_tokens=st.none() | st.integers(1, 10**6)
    ),
    drafters=st.lists(GROUPS, unique_by=lambda group: group.name, max_size=3).map(tuple),
    verifiers=st.builds(
        VerifierConfig,
        num_cpus=st.floats(0.001, 1024),
        resources=RESOURCES,
        kv_budget_mib=st.none() | st.integers(16, 2**20),
    ),
    speculation=st.integers(0, 64).map(lambda window: SpeculationConfig(k_max=max(window, 1), window=window)),
    slo=SLOS,
    scheduling=st.builds(
        SchedulingConfig,
        policy=st.sampled_from(sorted(SCHEDULING)),
        cost_profiles=st.lists(TEXTS, max_size=2).map(tuple),
    ),
    limits=st.builds(LimitsConfig, drafter_deadline_s=SECONDS, verifier_deadline_s=st.floats(0.1, 100)),
    http=st.builds(HttpConfig, host=TEXTS, port=st.integers(1, 65_535)),
)


@given(CONFIGS)
def test_what_is_written_reads_back_the_same(config: Config) -> None:
    assert parse_config(to_yaml(config), "written") == config


def test_the_packaged_file_states_every_default() -> None:
    assert load_config() == Config()
    assert parse_config("", "empty") == Config()


def test_every_field_stands_in_the_packaged_file() -> None:
    text = files("outrider.config").joinpath("default.yaml").read_text(encoding="utf-8")
    keys = [line.split(":")[0].strip(" -") for line in to_yaml(Config()).splitlines() if ":" in line]
    assert [key for key in keys if f"{key}:" not in text] == []


def test_every_link_profile_stands_in_the_packaged_file() -> None:
    text = files("outrider.config").joinpath("default.yaml").read_text(encoding="utf-8")
    assert [name for name in PROFILES if name not in text and not name.startswith("dssd_")] == []
    assert "dssd_<0|20|50>ms_<10|50|100>mbps" in text


def test_a_file_names_only_what_it_changes(tmp_path: Path) -> None:
    path = tmp_path / "my.yaml"
    path.write_text("verifiers: {threads: 2}\nmodel: {target: /models/large}\n", encoding="utf-8")
    config = load_config(path)
    assert config.verifiers == VerifierConfig(threads=2)
    assert config.drafters == Config().drafters
    assert config.model.public_name == "large"


def test_a_served_name_hides_the_target() -> None:
    assert parse_config("model: {target: /models/large, served_name: big}", "text").model.public_name == "big"


def test_the_papers_classes_are_the_defaults_best_effort_first() -> None:
    config = parse_config("", "empty")
    assert config.slo.slo_classes == (DEFAULT_CLASSES[-1], *DEFAULT_CLASSES[:-1])


def test_classes_are_the_operators_and_the_default_comes_first() -> None:
    text = (
        "slo: {default: b, classes: [{name: a, tokens_per_s: 20}, {name: b, tokens_per_s: 10.5}, {name: c}]}\n"
        "scheduling: {policy: wisp}"
    )
    config = parse_config(text, "text")
    assert config.slo.slo_classes == (SloClass("b", 10.5), SloClass("a", 20.0), SloClass("c"))


def test_the_configuration_loads_without_torch() -> None:
    program = "import sys, outrider.config.reading; sys.exit('torch' in sys.modules or 'vllm' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


@pytest.mark.parametrize(("section", "registry"), [("scheduling", SCHEDULING), ("speculation", SELECTION)])
def test_policies_are_named_as_in_their_registry(
    section: str, registry: Mapping[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(registry, "new", registry["slo_aware" if section == "scheduling" else "cheapest"])
    for name in registry:
        text = f"{section}: {{policy: {name}{', window: 3' if section == 'speculation' else ''}}}"
        assert getattr(parse_config(text, "text"), section).policy == name
    for mistake in ("lottery", "[fcfs]", "1"):
        with pytest.raises(ConfigError, match=f"{section}.policy needs one of {', '.join(registry)}, found "):
            parse_config(f"{section}: {{policy: {mistake}}}", "text")


@pytest.mark.parametrize(
    ("text", "block_tokens"),
    [
        ("{}", 16),
        ("{engine: vllm}", 32),
        ("{engine: vllm, device: cuda, num_gpus: 0.5}", 16),
        ("{engine: vllm, device: cuda, num_gpus: 4.0, tensor_parallel_size: 4}", 16),
    ],
)
def test_each_engine_has_its_own_block_size(text: str, block_tokens: int) -> None:
    assert parse_config(f"verifiers: {text}", "text").verifiers.block_tokens == block_tokens


def test_vllms_options_keep_their_types() -> None:
    text = "verifiers: {engine: vllm, vllm_options: {quantization: fp8, gpu_memory_utilization: 0.8, more: {a: [1]}}}"
    config = parse_config(text, "text")
    options = {"quantization": "fp8", "gpu_memory_utilization": 0.8, "more": {"a": [1]}}
    assert config.verifiers.vllm_options == options
    assert override(config, ["verifiers.vllm_options.enforce_eager=true"]).verifiers.vllm_options == options | {
        "enforce_eager": True
    }


def test_custom_resources_are_summed_over_groups_and_verifiers() -> None:
    config = parse_config(
        "drafters: [{name: a, count: 3}, {name: b, count: 2, resources: {jetson: 2, nvme: 1}}, {name: c, count: 0}]\n"
        "verifiers: {count: 2, resources: {nvme: 0.5}}",
        "text",
    )
    assert config.custom_resources == {"jetson": 7.0, "nvme": 3.0}


MISTAKES = [
    (
        "verifiers: {kv_budget_mib: lots}",
        "verifiers.kv_budget_mib needs an integer in [16, 1048576] or null, found 'lots'",
    ),
    ("verifiers: {kv_budget_mib: 8}", "verifiers.kv_budget_mib needs an integer in [16, 1048576] or null, found 8"),
    ("verifiers: {threads: true}", "verifiers.threads needs an integer in [1, 1024], found True"),
    ("verifiers: {threads: '2'}", "verifiers.threads needs an integer in [1, 1024], found '2'"),
    ("verifiers: {device: tpu}", "verifiers.device needs one of cpu, cuda, found 'tpu'"),
    ("verifiers: {device: cuda}", "verifiers.num_gpus needs a share above 0 where device is cuda, found 0.0"),
    ("verifiers: {engine: sglang}", "verifiers.engine needs one of torch, vllm, found 'sglang'"),
    ("drafters: [{name: a, engine: sglang}]", "drafters[0].engine needs one of torch, onnx, auto, found 'sglang'"),
    ("verifiers: {tensor_parallel_size: 2}", "verifiers.tensor_parallel_size needs 1 where engine is torch, found 2"),
    ("verifiers: {tensor_parallel_size: 0}", "verifiers.tensor_parallel_size needs an integer in [1, 64], found 0"),
    (
        "verifiers: {engine: vllm, device: cuda, num_gpus: 1.0, tensor_parallel_size: 2}",
        "verifiers.num_gpus needs at least tensor_parallel_size (2) where device is cuda, found 1.0",
    ),
    (
        "verifiers: {engine: vllm, swap_mib: 64}",
        "verifiers.swap_mib needs 0 where engine is vllm: only torch copies KV out, found 64",
    ),
    ("verifiers: {swap_mib: -1}", "verifiers.swap_mib needs an integer in [0, 16777216], found -1"),
    (
        "verifiers: {vllm_options: {quantization: fp8}}",
        "verifiers.vllm_options needs to be left out where engine is torch, found {'quantization': 'fp8'}",
    ),
    ("verifiers: {engine: vllm, vllm_options: fp8}", "verifiers.vllm_options needs a mapping, found 'fp8'"),
    (
        "verifiers: {prefill_chunk_tokens: 0}",
        "verifiers.prefill_chunk_tokens needs an integer in [1, 1000000] or null, found 0",
    ),
    ("verifiers: {resources: {fpga: 0}}", "verifiers.resources.fpga needs a number in (0, 1000000], found 0"),
    ("verifiers: {resources: {1: 1}}", "verifiers.resources needs keys that are non-empty text, found 1"),
    ("verifiers: {resources: 2}", "verifiers.resources needs a mapping, found 2"),
    (
        "scheduling: {policy: lottery}",
        "scheduling.policy needs one of slo_aware, wisp, wisp_alone, wisp_fair, fcfs, found 'lottery'",
    ),
    ("scheduling: {guard_s: 0.1}", "scheduling.guard_s needs null where policy is slo_aware, which has no guard time"),
    ("scheduling: {policy: wisp, guard_s: -1.0}", "scheduling.guard_s needs"),
    ("scheduling: {cost_profiles: [1]}", "scheduling.cost_profiles[0] needs non-empty text, found 1"),
    (
        "admission: {max_wait_s: 400.0}",
        "admission.max_wait_s needs less than limits.first_chunk_deadline_s (400), found 400.0",
    ),
    ("admission: {best_effort_max_wait_s: 500.0}", "admission.best_effort_max_wait_s needs less than"),
    ("admission: {max_load: 0.0}", "admission.max_load needs"),
    ("admission: {on: true}", "admission"),
    ("slo: {classes: []}", "slo.classes needs"),
    ("slo: {classes: [{name: a}, {name: a}], default: a}", "slo.classes needs a different name for each class, found"),
    ("slo: {classes: [{name: a}, {name: b}]}", "slo.default needs one of a, b, found 'best_effort'"),
    ("slo: {default: fast}", "slo.default needs one of speed_2, speed_4, speed_6, speed_8, best_effort, found 'fast'"),
    ("slo: {classes: [{name: A}], default: a}", "slo.classes[0].name needs a short name"),
    ("slo: {classes: [{tokens_per_s: 2.0}]}", "slo.classes[0].name needs a short name"),
    ("slo: {classes: [{name: a, tokens_per_s: -1}]}", "slo.classes[0].tokens_per_s needs a number in [0, 100000]"),
    ("slo: {classes: [{name: a, tokens_per_s: .inf}]}", "slo.classes[0].tokens_per_s needs a number in [0, 100000]"),
    ("slo: {classes: [{name: a, tokens_per_s: fast}]}", "slo.classes[0].tokens_per_s needs a number in [0, 100000]"),
    ("slo: {classes: [{name: a, speed: 2}]}", "slo.classes[0] needs known keys (name, tokens_per_s, verification)"),
    ("slo: {classes: [{name: a, verification: x}]}", "slo.classes[0].verification needs"),
    ("drafters: [{name: a, decision_head: 3}]", "drafters[0].decision_head needs"),
    ("drafters: [{name: a, head: auto}]", "head is decision_head now"),
    ("speculation: {arms: [none]}", "arms is modes now"),
    ("wire: {hidden_field: bf16}", "wire.hidden_field needs"),
    ("model: {max_context_tokens: 1.5}", "max_context_tokens needs an integer in [1, 1000000] or null, found 1.5"),
    ("model: {target: ''}", "model.target needs non-empty text, found ''"),
    ("limits: {drafter_deadline_s: .nan}", "limits.drafter_deadline_s needs a number in (0, 86400], found nan"),
    ("speculation: {k_max: 4, window: 5}", "speculation.window needs at most k_max (4), found 5"),
    ("verifiers: {num_cpus: 0}", "verifiers.num_cpus needs a share above 0 where neither num_gpus nor resources"),
    ("limits: {first_chunk_deadline_s: 9}", "limits.first_chunk_deadline_s needs at least verifier_deadline_s + veri"),
    (
        "limits: {first_chunk_deadline_s: 140, verifier_start_deadline_s: 100}",
        "limits.first_chunk_deadline_s needs at least verifier_deadline_s + the deadline of a must-use draft (150)",
    ),
    ("drafters: 3", "drafters needs a list, found 3"),
    ("drafters: [{name: a, trust: some}]", "drafters[0].trust needs"),
    ("drafters: [{name: A}]", "drafters[0].name needs a short name"),
    ("drafters: [{count: 2}]", "drafters[0].name needs a short name"),
    ("drafters: [{name: a}, {name: a}]", "drafters needs a different name for each group, found ['a', 'a']"),
    (
        "drafters: [{name: a, link: {profile: wifi}}]",
        "drafters[0].link.profile needs one of wifi_2m, wifi_20m, lte_20mbps, good_500mbps_5ms",
    ),
    (
        "drafters: [{name: a, link: {profile: wifi_2m, trace: x.csv}}]",
        "drafters[0].link.trace needs to be left out where profile is given, found 'x.csv'",
    ),
    (
        "drafters: [{name: a, link: {trace: x.csv, per_up: 0}}]",
        "drafters[0].link.per_up needs to be left out where trace is given, found 0.0",
    ),
    (
        "drafters: [{name: a, link: {up_mbps: 20, down_mbps: 20}}]",
        "drafters[0].link.rtt_ms needs a number where up_mbps is given, found None",
    ),
    ("drafters: [{name: a, link: {jitter_ms: 1}}]", "drafters[0].link.up_mbps needs a number where jitter_ms is given"),
    ("drafters: [{name: a, link: {}}]", "drafters[0].link.profile needs a name where neither trace nor up_mbps, down_"),
    ("drafters: [{name: a, link: {rtt: 1}}]", "drafters[0].link needs known keys (profile, trace, up_mbps, down_mbps"),
    ("drafters: [{name: a, link: {per_up: 1}}]", "drafters[0].link.per_up needs a number in [0, 0.99] or null, found"),
    (
        "drafters: [{name: a, round_log: {folder: rounds}}]",
        "drafters[0].round_log.folder needs an absolute path, or one that begins with ~, found 'rounds'",
    ),
    (
        "drafters: [{name: a, round_log: {folder: /rounds, most_mib: 0}}]",
        "drafters[0].round_log.most_mib needs an integer in [1, 1048576], found 0",
    ),
    ("drafters: [{name: a, round_log: {most_mib: 1}}]", "drafters[0].round_log.folder"),
    ("drafters: [{name: a, link: fast}]", "drafters[0].link needs a mapping of profile, trace, up_mbps, down_mbps"),
    ("speculation: {policy: fixed}", "speculation.window needs a number where policy is fixed, found None"),
    ("speculation: {protocols: []}", "speculation.protocols needs "),
    ("speculation: {protocols: [morse]}", "speculation.protocols[0] needs one of token_ids, dsd, tslt, tslt_tree"),
    ("http:", "http needs a mapping of host, port, keep_alive_s, "),
    ("http: {prt: 1}", "; did you mean port?), found 'prt'"),
    ("http: {trusted_proxies: [my.proxy]}", "http.trusted_proxies needs IP addresses or networks, such as 10.0.0.7 or"),
    ("tracing: {sample_ratio: 1.5}", "tracing.sample_ratio needs a number in [0, 1], found 1.5"),
    ("tracing: {enabled: maybe}", "tracing.enabled needs "),
    *(
        (
            f"tracing: {{endpoint: '{url}'}}",
            f"takes OTLP over HTTP, such as http://collector:4318, found '{url}'",
        )
        for url in ("collector:4318", "grpc://collector:4317", "http://", "http://collector:port", "http://collector:0")
    ),
    ("surprise: 1", "configuration needs known keys (model, drafters,"),
    ("1: 1", "configuration needs known keys (model, drafters,"),
    ("- model", "configuration needs a mapping of model, drafters,"),
    ("http: {port: 1, port: 2}", "configuration needs valid YAML, found 'line 1: port is given twice'"),
    ("? [a]\n: 1", "configuration needs valid YAML, found 'line 1: found unhashable key'"),
    ("http: [", 'configuration needs valid YAML, found "line 1: expected the node content'),
    ("http: \x00", "configuration needs valid YAML, found 'unacceptable character"),
]


@pytest.mark.parametrize(("text", "message"), MISTAKES, ids=[text for text, _ in MISTAKES])
def test_a_mistake_is_named_with_field_range_value_and_file(text: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_config(text, "my.yaml")
    assert message in str(caught.value)
    assert str(caught.value).endswith("(in my.yaml)")


def test_all_mistakes_are_reported_at_once() -> None:
    with pytest.raises(ConfigFileError) as caught:
        parse_config("http: {port: 0}\nverifiers: {count: 0}\nspeculation: {window: 60}", "my.yaml")
    assert [problem.field for problem in caught.value.problems] == [
        "verifiers.count",
        "speculation.window",
        "http.port",
    ]
    assert len(str(caught.value).splitlines()) == 3


def test_the_error_crosses_process_boundaries() -> None:
    with pytest.raises(ConfigFileError) as caught:
        parse_config("http: {port: 0}", "my.yaml")
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


def test_the_configuration_crosses_process_boundaries() -> None:
    assert pickle.loads(pickle.dumps(Config())) == Config()


@pytest.mark.parametrize("content", [None, b"\xff\xfe"], ids=["missing", "not UTF-8"])
def test_an_unreadable_file_is_named(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "my.yaml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigError, match=r"needs a readable YAML file, found '.*my\.yaml: "):
        load_config(path)


def test_overrides_are_typed_and_reach_lists_and_mappings() -> None:
    config = override(
        Config(),
        ["verifiers.threads=2", "drafters.0.resources.orin=1", "model.served_name=null", "model.target=a=b"],
    )
    assert config.verifiers.threads == 2
    assert config.drafters[0].resources == {"jetson": 1.0, "orin": 1.0}
    assert config.model == ModelConfig(target="a=b")


def test_no_override_changes_nothing() -> None:
    assert override(Config(), []) == Config()


BAD_OVERRIDES = [
    ("verifiers.threads", "--set needs KEY=VALUE, such as verifiers.threads=2, found 'verifiers.threads'"),
    ("verifiers.threads=many", "verifiers.threads needs an integer in [1, 1024], found 'many' (in --set)"),
    ("verifiers.treads=2", "did you mean threads?), found 'treads' (in --set)"),
    ("verifers.threads=2", "--set verifers.threads needs a path to a field (here: model, drafters,"),
    ("drafters.1.count=2", "--set drafters.1.count needs a path to a field (here: 0), found '1'"),
    ("http.port.x=2", "--set http.port.x needs a path to a field (here: nothing below it), found 'x'"),
    ("http.port=[", "http.port needs a YAML value, found '['"),
]


@pytest.mark.parametrize(("assignment", "message"), BAD_OVERRIDES, ids=[text for text, _ in BAD_OVERRIDES])
def test_a_bad_override_says_what_was_needed(assignment: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        override(Config(), [assignment])
    assert message in str(caught.value)


def test_nobody_is_trusted_but_by_word_or_on_the_services_own_host() -> None:
    config = parse_config("drafters: [{name: a}, {name: b, trust: trusted}, {name: c, trust: untrusted}]", "test")
    assert [group.trusted for group in config.drafters] == [False, True, False]
    assert [group.trusted for group in config.on_own_host().drafters] == [True, True, False]
    assert not any(group.trusted for group in Config().drafters)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("verifiers: {autoscaling: {min: 3, max: 2}}", "verifiers.autoscaling.max needs at least min (3), found 2"),
        (
            "verifiers: {autoscaling: {min: 2, max: 4}}",
            "verifiers.count needs autoscaling.min (2) to autoscaling.max (4), as so many start, found 1",
        ),
        ("verifiers: {autoscaling: {max: 4, target_load: 1.5}}", "verifiers.autoscaling.target_load needs"),
        (
            "ingress: {count: 3, autoscaling: {max: 2}}",
            "ingress.count needs autoscaling.min (1) to autoscaling.max (2)",
        ),
        ("ingress: {autoscaling: {max: 2, streams: 0}}", "ingress.autoscaling.streams needs"),
    ],
)
def test_scaling_that_nothing_can_follow_is_named(text: str, problem: str) -> None:
    with pytest.raises(ConfigError) as raised:
        parse_config(text, "my.yaml")
    assert problem in str(raised.value)


def test_claims_are_of_as_many_verifiers_as_there_may_be() -> None:
    text = "verifiers: {resources: {big: 1}, autoscaling: {max: 4}}\ndrafters: []"
    assert parse_config(text, "my.yaml").custom_resources == {"big": 4.0}


@pytest.mark.parametrize(
    ("guard_s", "policy"), [("null", Wisp()), ("0.25", Wisp(guard_s=0.25)), ("0.0", Wisp(guard_s=0.0))]
)
def test_wisps_guard_time_is_learned_or_given(guard_s: str, policy: Wisp) -> None:
    found = parse_config(f"scheduling: {{policy: wisp, guard_s: {guard_s}}}", "text").scheduling.chosen
    assert (found.policy, found.deadlines) == (policy, DeadlineRule.ROUND)

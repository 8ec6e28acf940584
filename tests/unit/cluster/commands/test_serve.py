import argparse
import json
import re
from pathlib import Path
from typing import Any

import pytest

from cluster.cli import main
from cluster.commands.serve import add_options, served_config
from cluster.unknown_flags import instead
from outrider.config.schema import Config
from outrider.contracts.errors import ConfigError

FLAGS = {
    "MODEL": ("model.target", "no"),
    "--drafter": ("drafters.0.model", "1e3"),
    "--host": ("http.host", "::1"),
    "--port": ("http.port", 8001),
    "--dtype": ("model.dtype", "float32"),
    "--max-model-len": ("model.max_context_tokens", 4096),
    "--served-model-name": ("model.served_name", "null"),
    "--tensor-parallel-size": ("verifiers.tensor_parallel_size", 2),
    "--gpu-memory-utilization": ("verifiers.vllm_options.gpu_memory_utilization", 0.8),
    "--engine": ("verifiers.engine", "vllm"),
    "--device": ("verifiers.device", "cpu"),
    "--quantization": ("verifiers.vllm_options.quantization", "fp8"),
    "--max-num-seqs": ("limits.max_concurrent_generations", 12),
    "--generation-config": ("model.generation_config", "vllm"),
    "--override-generation-config": ("model.override_generation_config", {"temperature": 0.5}),
    "--tool-call-parser": ("structured.tool_format", "hermes"),
    "--allowed-origins": ("http.cors_origins", ["https://my.page:8443"]),
}


def config_of(*arguments: str) -> Config:
    parser = argparse.ArgumentParser()
    add_options(parser)
    return served_config(parser.parse_args(arguments))


def as_given(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def test_each_flag_is_a_name_of_a_setting() -> None:
    words = [word for name, (_, value) in FLAGS.items() for word in (name, as_given(value))][1:]
    assignments = [word for path, value in FLAGS.values() for word in ("--set", f"{path}={json.dumps(value)}")]
    assert config_of(*words) == config_of(*assignments)


def test_help_groups_flags_and_names_their_settings(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["serve", "--help"])
    shown = " ".join(capsys.readouterr().out.split())
    assert [
        group
        for group in ("model:", "engine:", "HTTP:", "configuration:", "taken from vLLM's users:")
        if f" {group} " not in shown
    ] == []
    assert [path for path, _ in FLAGS.values() if f"({path})" not in shown] == []


def test_flags_come_before_the_environment_and_that_before_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "my.yaml"
    file.write_text("http: {port: 1001, host: 127.0.0.2, keep_alive_s: 3.0}")
    monkeypatch.setenv("OUTRIDER__HTTP__PORT", "1002")
    monkeypatch.setenv("OUTRIDER__HTTP__HOST", "127.0.0.3")
    for last in (("--port", "1003"), ("--set", "http.port=1003")):
        http = config_of("--config", str(file), *last).http
        assert (http.port, http.host, http.keep_alive_s) == (1003, "127.0.0.3", 3.0)


def test_another_model_has_no_drafter_unless_it_is_given_one(monkeypatch: pytest.MonkeyPatch) -> None:
    own = Config().drafters
    assert config_of().drafters == config_of("embedded").drafters == own
    assert config_of("other/model").drafters == ()
    assert [group.model for group in config_of("other/model", "--drafter", "other/small").drafters] == ["other/small"]
    monkeypatch.setenv("OUTRIDER__DRAFTERS__0__COUNT", "2")
    assert [group.count for group in config_of("other/model").drafters] == [2]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--port", "1", "--set", "http.port=2"), "--set http.port needs not to change http.port"),
        (("a", "--set", "model.target=b"), "--set model.target needs not to change model.target"),
        (("--port", "many"), r"http.port needs an integer .* \(in --port\)"),
        (("--gpu-memory-utilization", "0.5"), r"where engine is torch, .* \(in --gpu-memory-utilization\)"),
        (("--set", "drafters=[{name: a}, {name: b}]", "--drafter", "x"), "--drafter needs one drafter group"),
        (("--set", "drafters=[]", "--drafter", "x"), "--drafter needs a path to a field"),
    ],
    ids=["flag and set", "model and set", "value", "engine", "two groups", "no group"],
)
def test_what_cannot_be_is_refused_by_name(arguments: tuple[str, ...], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        config_of(*arguments)


@pytest.mark.parametrize(
    ("short", "long", "value"), [("-tp", "--tensor-parallel-size", "2"), ("-q", "--quantization", "fp8")]
)
def test_short_names_are_vllms(short: str, long: str, value: str) -> None:
    assert config_of("--engine", "vllm", short, value) == config_of("--engine", "vllm", long, value)


@pytest.mark.parametrize(
    "flag",
    [
        "--enable-prefix-caching",
        "--enable-chunked-prefill",
        "--enable-auto-tool-choice",
        "--enable-prompt-tokens-details",
        "--enable-request-id-headers",
        "--enable-server-load-tracking",
        "--disable-log-requests",
        "--no-enable-log-requests",
    ],
)
def test_what_holds_anyway_may_be_asked_for(flag: str) -> None:
    assert config_of(flag, "embedded") == config_of("embedded", flag) == config_of("embedded")


def test_a_gpu_is_asked_for_by_its_share_too() -> None:
    with pytest.raises(ConfigError, match=r"num_gpus needs a share above 0 where device is cuda.*\(in --device\)"):
        config_of("--device", "cuda")
    assert config_of("--set", "verifiers.num_gpus=1", "--device", "cuda").verifiers.device == "cuda"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--trust-remote-code", "model"), "--trust-remote-code is no flag of outrider serve: no code of a model"),
        (
            ("model", "--speculative-config", '{"method": "ngram"}'),
            "--speculative-config .*give a drafter by --drafter",
        ),
        (("--reasoning-parser=qwen3",), "--reasoning-parser .*structured.reasoning_end=TOKEN"),
        (("model", "--chat-template", "./x.jinja"), "--chat-template .*the chat template is the model's own"),
        (("--swap-space", "4"), "--swap-space .*verifiers.swap_mib=N, in MiB"),
        (("--enable-log-requests",), "--enable-log-requests .*never logged"),
        (("--no-enable-prefix-caching",), "--no-enable-prefix-caching .*prefixes are always cached"),
        (("--prt", "1"), "--prt .*did you mean --port\\?"),
        (("--max_model_len", "4096"), "--max_model_len .*did you mean --max-model-len\\?"),
        (("--kv-cache-dtype", "fp8"), "--kv-cache-dtype .*verifiers.vllm_options.kv_cache_dtype=VALUE"),
        (("-dp", "2"), "-dp .*verifiers.count=N"),
        (("--hub", "x", "--lora_modules", "a=b"), "--lora_modules .*adapters are not served"),
        (("model", "another"), "needs one MODEL"),
    ],
    ids=lambda value: value[-2] if isinstance(value, tuple) and len(value) > 1 else None,
)
def test_other_flags_are_refused_with_what_holds_here(
    arguments: tuple[str, ...], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["serve", *arguments]) == 2
    assert re.search(rf"^outrider: error: {told}", capsys.readouterr().err)


def test_the_value_of_a_refused_flag_is_not_told(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (["--hf-token=hf_secret"], ["--hf-token", "hf_secret"], ["--unheard-of=hf_secret"]):
        assert main(["serve", *arguments]) == 2
    assert "hf_secret" not in capsys.readouterr().err


def test_flags_that_are_refused_are_none_and_settings_named_instead_are_there() -> None:
    parser = argparse.ArgumentParser()
    add_options(parser)
    taken = {name for action in parser._actions for name in action.option_strings}  # noqa: SLF001 (argparse lists none)
    assert taken & set(instead()) == set()
    for advice in instead().values():
        for path in re.findall(r"--set ([a-z_.]+)=", advice):
            config: Any = Config()
            for name in path.split("."):
                config = getattr(config, name)
        assert [flag for flag in re.findall(r"--[a-z-]+", advice) if flag != "--set" and flag not in taken] == []


def test_other_commands_refuse_unknown_flags_as_usual(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["config", "show", "--enable-lora"])
    assert ended.value.code == 2
    assert "unrecognized arguments: --enable-lora" in capsys.readouterr().err

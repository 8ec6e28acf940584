import argparse
import json
from pathlib import Path

import pytest

from cluster.cli import main
from cluster.commands.serve import add_options, served_config
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
}


def config_of(*arguments: str) -> Config:
    parser = argparse.ArgumentParser()
    add_options(parser)
    return served_config(parser.parse_args(arguments))


def test_each_flag_is_a_name_of_a_setting() -> None:
    words = [word for name, (_, value) in FLAGS.items() for word in (name, str(value))][1:]
    assignments = [word for path, value in FLAGS.values() for word in ("--set", f"{path}={json.dumps(value)}")]
    assert config_of(*words) == config_of(*assignments)


def test_help_groups_flags_and_names_their_settings(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["serve", "--help"])
    shown = " ".join(capsys.readouterr().out.split())
    assert [group for group in ("model:", "engine:", "HTTP:", "configuration:") if f" {group} " not in shown] == []
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

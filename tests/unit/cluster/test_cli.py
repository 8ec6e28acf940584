import os
import re
import signal
import sys
from dataclasses import fields
from importlib.metadata import version
from pathlib import Path
from subprocess import PIPE, Popen, run

import pytest
from setuptools.config.pyprojecttoml import read_configuration

from cluster.cli import main
from cluster.version_text import commit_of
from outrider import __version__
from outrider.config.reading import parse_config, to_yaml
from outrider.config.schema import Config
from outrider.training.distillation.distill import DistillConfig

ROOT = Path(__file__).parents[3]
PRODUCT = ("outrider", "actors", "serve_app", "cluster", "edge")


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == 0
    first, second = capsys.readouterr().out.splitlines()
    assert re.fullmatch(rf"outrider {re.escape(__version__)}( \([0-9a-f]{{7,}}(-dirty)?\))?", first)
    assert f"torch {version('torch')}, " in second
    assert f"ray {version('ray')}, " in second


def test_the_commit_is_git_s_or_pip_s_or_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Git may be missing or refuse the folder, and the folder may lie in somebody else's repository."""
    git = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@b"]
    run([*git, "init", "-q"], check=True)
    run([*git, "commit", "-q", "--allow-empty", "-m", "First"], check=True)
    head = run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout
    found = commit_of(tmp_path)
    assert found is not None
    assert head.startswith(found)
    (tmp_path / "packages").mkdir()
    assert commit_of(tmp_path / "packages") is None
    monkeypatch.setenv("PATH", "")
    assert commit_of(tmp_path) is None


def test_show_prints_the_configuration_in_use(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "show"]) == 0
    assert capsys.readouterr().out == to_yaml(Config())


def test_flags_come_before_the_file_and_the_file_before_defaults(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "my.yaml"
    path.write_text("http: {port: 9000, host: 127.0.0.2}", encoding="utf-8")
    assert main(["config", "show", "--config", str(path), "--set", "http.port=9001", "--set", "verifiers.count=2"]) == 0
    config = parse_config(capsys.readouterr().out, "shown")
    assert (config.http.host, config.http.port, config.verifiers.count) == ("127.0.0.2", 9001, 2)


def test_the_environment_names_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "my.yaml"
    path.write_text("http: {port: 9000}", encoding="utf-8")
    monkeypatch.setenv("OUTRIDER_CONFIG", str(path))
    assert main(["config", "check"]) == 0
    assert capsys.readouterr().out == f"{path}: ok\n"


def test_a_mistake_is_one_message_and_status_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "my.yaml"
    path.write_text("http: {port: 0}", encoding="utf-8")
    assert main(["config", "check", "--config", str(path)]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err == f"outrider: error: http.port needs an integer in [1, 65535], found 0 (in {path})\n"


def test_a_keys_file_that_cannot_be_looked_up_is_a_mistake(capsys: pytest.CaptureFixture[str]) -> None:
    """One that is missing may be on another machine; a name that no file can have is on none."""
    assert main(["config", "check", "--set", "auth.keys_file=/nowhere/keys.yaml"]) == 0
    assert main(["config", "check", "--set", f"auth.keys_file=/{'a' * 100_000}"]) == 2
    told = capsys.readouterr().err
    assert "auth.keys_file needs a readable YAML file" in told
    assert told.endswith("...: File name too long'\n")
    assert len(told) < 2_000


def test_a_mistake_in_the_devices_file_is_found_before_anything_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "devices.yaml"
    file.write_text("keys: [{name: jetson-7}]", encoding="utf-8")
    assert main(["config", "check", "--set", f"gateway.devices_file={file}"]) == 2
    assert "gateway.devices_file needs a YAML file" in capsys.readouterr().err
    assert main(["config", "check", "--set", "gateway.devices_file=/nowhere/devices.yaml"]) == 0


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["config"],
        ["distill"],
        ["bench", "nothing"],
        ["config", "show", "--prt", "1"],
        ["deploy", "--address", "auto", "--remove", "--restart"],
        ["distill", "--out", "x", "--steps", "many"],
    ],
)
def test_a_malformed_command_exits_with_status_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert "usage: outrider" in capsys.readouterr().err


def test_every_field_of_a_distillation_is_a_flag(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["distill", "--help"])
    printed = capsys.readouterr().out
    flags = [f"--{field.name.replace('_', '-')} " for field in fields(DistillConfig) if field.name != "resume"]
    assert [flag for flag in [*flags, "--resume", "--no-resume"] if flag not in printed] == []


def test_flags_reach_the_distillation(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["distill", "--target", "none", "--out", "drafter.safetensors", "--steps", "0"]) == 2
    assert capsys.readouterr().err == "outrider: error: steps needs an integer >= 1, found 0\n"


def test_arguments_reach_a_benchmark(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["bench", "engine", "--help"])
    assert "usage: outrider bench engine" in capsys.readouterr().out


def test_help_loads_neither_models_nor_ray() -> None:
    program = (
        "import sys, cluster.cli\n"
        "try: cluster.cli.main(['--help'])\n"
        "except SystemExit: print({'ray', 'torch', 'transformers', 'pydantic'} & set(sys.modules))"
    )
    result = run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout.splitlines()[-1] == "set()"


_WAITING_COMMAND = """
import sys, time
import cluster.cli, cluster.commands.config
cluster.commands.config.run = lambda _: (print("waits", flush=True), time.sleep(60))
sys.exit(cluster.cli.main())
"""


def test_an_interrupt_exits_silently_with_status_130() -> None:
    arguments = [sys.executable, "-c", _WAITING_COMMAND, "config", "check"]
    with Popen(arguments, stdout=PIPE, stderr=PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"waits\n"
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate()
        assert (process.returncode, errors) == (130, b"")


def test_plots_without_their_extra_say_what_to_install() -> None:
    """In a process of its own, where matplotlib cannot be imported."""
    code = "import sys; sys.modules['matplotlib'] = None; from cluster.cli import main; sys.exit(main(sys.argv[1:]))"
    arguments = ["simulate", "capacity", "--plots", "figures"]
    ended = run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False)
    assert ended.returncode == 2
    assert ended.stderr == (
        "outrider: error: --plots needs matplotlib (pip install '.[bench]' in a checkout), found 'no such package'\n"
    )


def test_a_wheel_holds_every_package_but_the_lab() -> None:
    """As setuptools finds them for a build."""
    found = read_configuration(ROOT / "pyproject.toml")["tool"]["setuptools"]["packages"]
    folders = {path.parent.relative_to(ROOT) for name in PRODUCT for path in (ROOT / name).rglob("__init__.py")}
    assert set(found) == {".".join(folder.parts) for folder in folders}
    assert "cluster.commands" in found


@pytest.mark.parametrize(
    "asked", [["bench", "engine"], ["plan"], ["simulate", "capacity", "--plots", "x"], ["train", "head", "--help"]]
)
def test_an_installed_wheel_says_which_commands_need_a_checkout(tmp_path: Path, asked: list[str]) -> None:
    """With the wheel's packages alone, as ``site-packages`` would hold them."""
    for name in PRODUCT:
        (tmp_path / name).symlink_to(ROOT / name)
    command = [sys.executable, "-m", "cluster.cli", *asked]
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    ended = run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr.startswith(f"outrider: error: outrider {asked[0]} needs a source checkout")

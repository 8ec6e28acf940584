"""What starts replicas anew, by Serve's own word: never a reloadable setting, nor how many there are."""

from pathlib import Path
from typing import Any

import pytest
from ray.serve._private.config import DeploymentConfig
from ray.serve._private.version import DeploymentVersion

from outrider.config.assigning import override
from outrider.config.reading import load_config
from outrider.config.reloadable import with_reloadable
from outrider.config.schema import Config
from serve_app import versions
from serve_app.app import build_app
from serve_app.versions import fingerprint, version_of

LIGHT: dict[str, dict[str, object]] = {
    "limits": {"max_concurrent_generations": 3, "max_output_tokens": 7},
    "speculation": {"window": 2, "modes": ["none"]},
    "slo": {"default": "speed_2"},
    "http": {"cors_origins": ["*"]},
}


def deployed(config: Config, running: str = "") -> dict[str, Any]:
    """As Serve's controller takes what ``bring_up`` gives it."""
    version = version_of(fingerprint(config, ingress_listens=False), running)
    ingress = build_app(config, version=version)._bound_deployment  # noqa: SLF001 (there is no other way to them)
    coordinator = ingress.init_args[0]._bound_deployment  # noqa: SLF001 (likewise)
    found = dict[str, Any]()
    for one in (ingress, coordinator):
        sent, replica = one._deployment_config.to_proto_bytes(), one._replica_config  # noqa: SLF001 (likewise)
        found[one.name] = DeploymentVersion(
            one._version,  # noqa: SLF001 (likewise)
            DeploymentConfig.from_proto_bytes(sent),
            replica.ray_actor_options,
            replica.placement_group_bundles,
            replica.placement_group_strategy,
        )
    return found


def light(config: Config) -> Config:
    return with_reloadable(config, LIGHT)


def scaled(config: Config) -> Config:
    return override(
        config,
        ["verifiers.count=2", "verifiers.autoscaling={min: 1, max: 3}", "ingress.count=3", "limits.max_body_mib=3"],
    )


def test_light_settings_reach_replicas_that_run() -> None:
    config = load_config()
    before = deployed(config)
    code = before["Ingress"].code_version
    after = deployed(light(config), code)
    for name, version in after.items():
        assert not before[name].requires_actor_restart(version)
        assert before[name].requires_actor_reconfigure(version)
        assert version.deployment_config.user_config["limits"]["max_output_tokens"] == 7
    for name, version in deployed(config, code).items():
        assert version == before[name], "nothing has changed"


def test_more_and_fewer_leave_those_that_run_alone() -> None:
    config = load_config()
    before = deployed(config)
    for name, version in deployed(scaled(config), before["Ingress"].code_version).items():
        assert not before[name].requires_actor_restart(version)


@pytest.mark.parametrize(
    "assignment",
    [
        "model.served_name=other",
        "model.dtype=float32",
        "verifiers.threads=2",
        "limits.verifier_deadline_s=31.0",
        "speculation.lookup_store_tokens=100",
        "scheduling.policy=fcfs",
        "drafters.0.count=2",
        "wire.hidden_field=int8",
        "http.port=8001",
        "structured.tool_format=hermes",
        "auth.keys_file=/keys.yaml",
    ],
)
def test_anything_else_starts_all_of_them_anew(assignment: str) -> None:
    config = override(load_config(), ["drafters.0.decision_head=null"])  # a head would refuse another ``hidden_field``
    before = deployed(config)
    for name, version in deployed(light(override(config, [assignment])), before["Ingress"].code_version).items():
        assert before[name].requires_actor_restart(version)


def test_so_do_files_that_are_read_where_it_is_deployed_and_whoever_goes_on_with_nothing(tmp_path: Path) -> None:
    file = tmp_path / "profile.json"
    file.write_text("{}")
    config = override(load_config(), [f"scheduling.cost_profiles=[{file}]"])
    before = fingerprint(config, ingress_listens=False)
    assert fingerprint(config, ingress_listens=True) != before
    file.write_text("{ }")
    assert fingerprint(config, ingress_listens=False) != before
    assert version_of(before, "") != version_of(before, "")
    running = version_of(before, "")
    assert version_of(before, running) == running


@pytest.mark.parametrize("what", ["code", "packages"])
def test_so_does_other_code(what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = fingerprint(load_config(), ingress_listens=False)
    assert fingerprint(load_config(), ingress_listens=False) == before
    if what == "code":
        (tmp_path / "more.py").write_text("x = 1")
        found = list(versions._code())  # noqa: SLF001
        monkeypatch.setattr(versions, "_code", lambda: [*found, tmp_path / "more.py"])
    else:
        monkeypatch.setattr(versions, "distributions", list[Any])
    assert fingerprint(load_config(), ingress_listens=False) != before

"""Files for Serve and KubeRay are checked before they are applied, reloadable settings included."""

import pytest

from cluster.cli import main
from outrider.contracts.errors import ConfigError
from serve_app.serve_file import configs_in

SERVE = """
applications:
  - name: outrider
    import_path: serve_app.app:build
    args: {{config: {{limits: {{max_output_tokens: 100}}}}}}
    deployments:
      - {{name: Ingress, ray_actor_options: {{num_cpus: 0.5}}, user_config: &light {light}}}
      - {{name: Coordinator, user_config: {other}}}
"""


def served(light: str, other: str = "*light") -> str:
    return SERVE.format(light=light, other=other)


def in_kubernetes(text: str) -> str:
    indented = "".join(f"    {line}\n" for line in text.splitlines())
    return f"kind: Namespace\n---\nkind: RayService\nspec:\n  serveConfigV2: |\n{indented}"


@pytest.mark.parametrize("form", [str, in_kubernetes])
def test_light_settings_come_on_top_of_the_arguments(form: type[str]) -> None:
    (config,) = configs_in(form(served("{limits: {max_body_mib: 2}}")), "file").values()
    assert (config.limits.max_output_tokens, config.limits.max_body_mib) == (100, 2)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (served("{limits: {max_body_mib: 0}}"), r"limits\.max_body_mib needs an integer in \[1, 1024\], found 0"),
        (served("{limits: {verifier_deadline_s: 3.0}}"), r"user_config\.limits needs only reloadable settings"),
        (served("{}", "{limits: {max_body_mib: 2}}"), "needs the same user_config for Ingress and Coordinator"),
        (served("null"), "user_config needs a mapping of sections, found None"),
        ("applications: []", r"needs an application with import_path: serve_app\.app:build"),
        ("{", "needs valid YAML"),
        ("kind: RayService\nspec: {serveConfigV2: '['}", "needs valid YAML"),
    ],
)
def test_what_is_wrong_is_told(text: str, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        configs_in(text, "file")


def test_by_a_command(tmp_path_factory: pytest.TempPathFactory, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path_factory.mktemp("files") / "serve.yaml"
    file.write_text(served("{limits: {max_body_mib: 2}}"))
    assert main(["config", "check", "--serve", str(file)]) == 0
    assert capsys.readouterr().out == f"{file}: application outrider: ok\n"
    file.write_text(served("{limits: {max_body_mib: 0}}"))
    assert main(["config", "check", "--serve", str(file)]) == 2
    assert "limits.max_body_mib needs an integer" in capsys.readouterr().err

"""The reference of settings: every setting of the schema is on it, as operators read it in ``default.yaml``."""

import re
from collections.abc import Iterator
from typing import Any

from pydantic import TypeAdapter

from lab.docsite.settings_page import comments, settings, settings_page
from outrider.config.reading import dumped
from outrider.config.reloadable import COUNTS, RELOADABLE
from outrider.config.schema import Config

PAGE = settings_page()
OPEN = {
    "model.override_generation_config",
    "drafters[].resources",
    "gateway.resources",
    "verifiers.resources",
    "verifiers.vllm_options",
    "slo.objectives",
}


def leaves(data: dict[str, Any], prefix: str = "") -> Iterator[str]:
    """Dotted names of all settings; mappings of an operator's own keys are settings as a whole."""
    for name, value in data.items():
        path = f"{prefix}{name}"
        if isinstance(value, dict) and path not in OPEN:
            yield from leaves(value, f"{path}.")
        elif path == "drafters":
            yield from leaves(value[0], "drafters[].")
        else:
            yield path


def entry(name: str) -> str:
    (text,) = re.findall(rf"^### `{re.escape(name)}`\n(.*?)(?=^##|\Z)", PAGE, re.MULTILINE | re.DOTALL)
    return str(text)


def test_every_setting_has_one_entry() -> None:
    listed = re.findall(r"^### `(.+)`$", PAGE, re.MULTILINE)
    assert sorted(listed) == sorted(leaves(dumped(Config())))
    assert listed == [setting.name for setting in settings()]


def test_defaults_are_the_schemas() -> None:
    assert "default `4096`" in entry("limits.max_output_tokens")
    assert TypeAdapter(Config).dump_python(Config())["limits"]["max_output_tokens"] == 4096


def test_each_says_what_a_change_of_it_does() -> None:
    for known, says in ((RELOADABLE, "no restart"), (COUNTS, "replicas come or go")):
        named = {f"{section}.{field}" for section, fields in known.items() for field in fields}
        assert named == {setting.name for setting in settings() if f"a change: {says}\n" in entry(setting.name)}


def test_comments_are_of_their_settings() -> None:
    said = comments(
        [
            "# of the file",
            "one: # a section",
            "  list: # what is listed",
            "    - a # first",
            "    - {b: 1} # second",
            "  far: null # null: none. Else",
            "    #   {x: 1}  this",
            "    #           goes on",
            "    # and on",
            "many: # groups",
            "  - name: it # its name",
            "    plain: 1",
        ]
    )
    assert said == {
        "one": "a section",
        "one.list": "what is listed\n- `a`: first\n- `{b: 1}`: second",
        "one.far": "null: none. Else\n- {x: 1}  this goes on and on",
        "many": "groups",
        "many[].name": "its name",
        "many[].plain": "",
    }


def test_sections_inside_settings_list_their_fields() -> None:
    assert "| `down_after_s` | number from 0 to 86,400 | `300.0` |" in entry("verifiers.autoscaling")
    assert "| `folder` | string | needed |" in entry("drafters[].round_log")

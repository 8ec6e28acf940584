"""The references of the command line and the API have all there is."""

import re

import pytest

from cluster import cli
from lab.docsite.api_page import api_document, api_page
from lab.docsite.cli_page import cli_page, helps
from lab.docsite.schema_text import attributes, named_in, summary, type_of

COMMANDS = dict(helps())


def test_every_command_is_there_with_its_help(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUTRIDER_CONFIG", "mine.yaml")
    monkeypatch.setenv("COLUMNS", "40")
    listed = re.findall(r"^ {4}([a-z]+) ", COMMANDS[()].replace("\n              ", " "), re.MULTILINE)
    assert {command[0] for command in COMMANDS if command} == set(listed)
    assert {("config", "show"), ("models", "fetch"), ("train", "predictor")} <= COMMANDS.keys()
    page = cli_page()
    assert page.count("```text\n") == len(COMMANDS)
    assert all(text in page for text in COMMANDS.values())
    assert "mine.yaml" not in page


def test_a_help_text_is_what_the_command_prints(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "88")
    monkeypatch.delenv("OUTRIDER_CONFIG", raising=False)
    with pytest.raises(SystemExit):
        cli.main(["config", "check", "--help"])
    assert COMMANDS["config", "check"] == capsys.readouterr().out


def test_every_operation_schema_and_field_is_there() -> None:
    document, page = api_document(), api_page()
    for path, methods in document["paths"].items():
        assert all(f"## `{method.upper()} {path}`\n" in page for method in methods)
    schemas = document["components"]["schemas"]
    for name, schema in schemas.items():
        (section,) = re.findall(rf"^### {name}\n(.*?)(?=^###? |\Z)", page, re.MULTILINE | re.DOTALL)
        fields = schema.get("properties", {})
        refused = {field for field in fields if fields[field].get("description", "").startswith("Not supported yet")}
        assert re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE) == [
            field for field in fields if field not in refused
        ]
        if name.endswith("Body"):
            assert all(re.search(rf"^\| `{field}` \| .*`{name}`", page, re.MULTILINE) for field in refused)
    assert {"x-slo-ttft-ms", "x-slo-tpot-ms"} <= set(re.findall(r"^\| `(x-[\w-]+)` \|", page, re.MULTILINE))


def test_links_within_the_api_lead_somewhere() -> None:
    page = api_page()
    linked = set(re.findall(r"\]\(#(\w+)\)", page))
    assert linked
    assert linked <= {name.lower() for name in re.findall(r"^### (\w+)$", page, re.MULTILINE)}


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        ({"type": "integer", "minimum": 1, "maximum": 64}, "integer from 1 to 64"),
        ({"type": "number", "exclusiveMinimum": 0, "maximum": 86400}, "number above 0 to 86,400"),
        ({"type": "number", "minimum": 0}, "number from 0"),
        ({"anyOf": [{"enum": ["a", "b"]}, {"type": "null"}]}, "`a`, `b` or `null`"),
        ({"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}, "string or list of string"),
        ({"const": "text"}, "`text`"),
        ({"enum": [1, 1.0, None]}, "`1`, `1.0` or `null`"),
        ({"type": "boolean"}, "`true` or `false`"),
        ({"type": "object"}, "mapping"),
        ({"$ref": "#/$defs/Thing"}, "`Thing`"),
        ({}, "any value"),
    ],
)
def test_types_in_words(schema: dict[str, object], text: str) -> None:
    assert type_of(schema) == text


def test_schemas_that_a_value_follows() -> None:
    thing = {"$ref": "#/$defs/Thing"}
    assert named_in({"anyOf": [thing, {"type": "null"}]}) == "Thing"
    assert named_in({"type": "array", "items": thing}) == "Thing"
    assert named_in({"anyOf": [thing, {"$ref": "#/$defs/Other"}]}) is None
    assert named_in({"type": "string"}) is None


def test_what_a_description_says() -> None:
    said = "What it\nis, ``x``.\n\nAttributes:\n    a: first\n        and on\n    b: second; ``c``: third."
    assert summary({"description": said}) == "What it is, `x`."
    assert attributes({"description": said}) == {"a": "first and on", "b": "second; `c`: third."}

"""Some of what ``make hostile`` drives, to a service that runs; and that SECURITY.md promises what is driven."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from outrider.wire.replies import Answer, DrafterCard, DrafterHoldings, Reply, plain
from tests.hostile import (
    agents,
    bodies,
    connections,
    devices,
    dials,
    files,
    floods,
    grammars,
    heads,
    messages,
    responses,
    starts,
    thoughts,
)
from tests.hostile.measures import Noted, beside, read_notes
from tests.hostile.planted import sitecustomize
from tests.hostile.promises import PROMISES, Family, Figure, broken_promises
from tests.hostile.report import compared, promises_table, table
from tests.unit.serve_app.api.asking import ask
from tests.unit.serve_app.api.text_service import TextService

ROOT = Path(__file__).parents[2]
_WITHIN_S = 580
_MODULES = (agents, responses, messages, grammars, thoughts, heads, connections, floods, devices, dials, files, starts)
_DOCUMENT = {
    "paths": {
        "/v1/completions": {
            "post": {
                "requestBody": {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/Body"}}}}
            }
        }
    },
    "components": {
        "schemas": {
            "Body": {
                "properties": {
                    "prompt": {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "integer"}}]},
                    "inner": {"$ref": "#/components/schemas/Inner"},
                }
            },
            "Inner": {"properties": {"flag": {"type": "boolean"}}},
        }
    },
}


@pytest.mark.cluster
def test_one_key_costs_others_no_more_than_is_promised(tmp_path: Path) -> None:
    report = tmp_path / "hostile.json"
    command = [sys.executable, "-m", "tests.hostile", "--short", "--report", str(report)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=_WITHIN_S)
    assert done.returncode == 0, done.stdout[-12000:] + done.stderr[-4000:]
    results = json.loads(report.read_text())["results"]
    assert {row["family"] for row in results} == {str(family) for family in Family if family is not Family.KEYLESS}
    assert all(row["tokens_per_s"] > 0 for row in results if row["lasted_s"] > 10.0), "another key got on all the while"


def test_security_md_promises_what_is_driven() -> None:
    assert promises_table() in (ROOT / "SECURITY.md").read_text()


def test_fields_are_found_inside_objects_and_lists() -> None:
    found = {place.path for place in bodies.fields_of(_DOCUMENT)}
    assert found == {("prompt",), ("prompt", "0"), ("inner",), ("inner", "flag"), ("nobody knows it",)}


def test_every_field_of_the_api_is_filled() -> None:
    """By the document that the service itself makes of the models that read bodies."""
    document = ask(TextService(), "GET", "/openapi.json").json()
    found = {(place.route, place.path) for place in bodies.fields_of(document)}
    assert {route for route, _ in found} == set(document["paths"]) & {
        path for path, methods in document["paths"].items() if "requestBody" in methods.get("post", {})
    }
    assert {route for route, _ in found} == bodies.ROUTES, "else what is hostile stands beside a required field"
    for name in ("ChatBody", "CompletionBody"):
        route = "/v1/chat/completions" if name == "ChatBody" else "/v1/completions"
        assert {(route, (field,)) for field in document["components"]["schemas"][name]["properties"]} <= found
    assert ("/v1/chat/completions", ("messages", "0", "content", "0", "text")) in found
    assert ("/v1/completions", ("outrider", "expansion", "0")) in found
    before, behind = bodies.body_around(bodies.FieldOf("/v1/responses", ("input", "0", "id")))
    assert json.loads(f"{before}1{behind}")["input"] == [{"role": "user", "content": "a", "id": 1}]


@pytest.mark.parametrize("filling", sorted(bodies.FILLINGS))
def test_a_filling_is_as_large_as_a_body_may_be(filling: str) -> None:
    before, behind = bodies.body_around(
        bodies.FieldOf("/v1/chat/completions", ("messages", "0", "content", "0", "text"))
    )
    body = before + bodies.FILLINGS[filling]() + behind
    assert 3.5 * 2**20 < len(body) < 4 * 2**20
    if not filling.startswith(("deep", "digits")):
        json.loads(body)


def test_names_of_cases_are_unique_and_the_short_form_has_some_of_each_family() -> None:
    cases = [
        *bodies.cases(ask(TextService(), "GET", "/openapi.json").json()),
        *(case for module in _MODULES for case in module.cases()),
        *heads.keyless_cases(),
        *floods.keyless_cases(),
    ]
    names = [(case.family, case.name) for case in cases]
    assert len(set(names)) == len(names)
    assert {case.family for case in cases if case.short} == set(Family) - {Family.KEYLESS}


def test_a_head_that_a_request_wrote_or_that_tells_too_much_is_noticed() -> None:
    assert agents.wrong_heads("HTTP/1.1 200 OK\r\nX-Outrider-Ignored: a, b\r\n\r\n") == []
    assert agents.wrong_heads("HTTP/1.1 200 OK\r\nX-Evil: 1\r\n\r\n") == ["a request wrote a line of the head"]
    for names in (["a"] * 17, ["a" * 65]):
        (wrong,) = agents.wrong_heads(f"HTTP/1.1 200 OK\r\nX-Outrider-Ignored: {', '.join(names)}\r\n\r\n")
        assert wrong.startswith(f"{len(names)} names of ignored fields")


def test_fields_of_agents_fit_into_a_body() -> None:
    for name, wanted in agents.CASES.items():
        assert all(len(json.dumps(fields)) < 4 * 2**20 - 200 for fields in wanted.bodies()), name


def test_grammars_are_as_large_as_may_be_asked_for() -> None:
    texts = [*grammars.REGEXES.values(), *grammars.LARK.values(), *grammars.GBNF.values()]
    texts += [json.dumps(schema) for schema in grammars.SCHEMAS.values()]
    assert all(len(text.encode()) <= 64 * 1024 for text in texts), "else they are refused by their size alone"


@pytest.mark.parametrize(
    "lie", [lie for lie in devices.LIES if lie.kind not in ("hangs", "late")], ids=lambda lie: lie.name
)
def test_a_planted_device_says_something_else(lie: devices.Lie) -> None:
    card = DrafterCard("drafter", "f" * 64, "f" * 64, 300, (2,), 512)
    replies: dict[str, Reply] = {
        "held": DrafterHoldings(("cmpl-1-0",), 0, 0),
        "card": card,
        "exchange": Answer(b"data", 0.0),
    }
    honest = plain(replies.get(lie.method))
    spoilt = sitecustomize._spoilt(lie.kind, 20_000 if lie.size else 0, honest)  # noqa: SLF001 (what a device runs)
    assert spoilt != honest
    assert not lie.size or lie.kind == "no bytes" or len(spoilt) >= 20_000


def test_waits_of_the_client_beside_are_charged_to_the_case_they_meet() -> None:
    lines = ["health 1.0 0.004", "token 1.0 0/1", "token 1.1 0/1", "late 1.2 0.01", "health 3.1 1.9", "token 3.5 0/1"]
    lines += ["broken 3.6 refused", "first 9.0 5.0", "token 9.0 1/2", "half"]
    notes = read_notes(lines)
    assert notes[0] == Noted("health", 1.0, "0.004")
    assert len(notes) == len(lines) - 1
    seen = beside(notes, 2.0, 3.55)
    assert seen.loop_s == 1.9
    assert seen.silence_s == pytest.approx(2.4)
    assert seen.first_token_s == 0.0, "it began later"
    assert seen.broken == ("refused",)
    assert beside(notes, 5.0, 6.0).first_token_s == 5.0
    texts = read_notes(["text 1.0 200/3 aa", "text 2.0 200/4 bb", "text 3.0 200/3 aa", "text 4.0 200/4 cc", ""])
    assert beside(texts, 0.0, 3.5).broken == ()
    assert beside(texts, 3.5, 5.0).broken == ("another text of 200/4",)
    assert beside(notes, 0.0, 1.05).silence_s == pytest.approx(0.1)
    waits = read_notes(
        ["asks 1.0 short/1", "broken 2.0 refused", "asks 2.5 short/2", "token 9.0 short/2", "asks 9.1 1/1"]
    )
    assert beside(waits, 2.0, 8.0).first_token_s == 0.0, "it came, and what it waited for is told by its own line"
    assert beside(waits[:-2], 2.0, 8.0).first_token_s == 5.5, "it has not come"


def test_a_promise_is_broken_above_its_bound_alone() -> None:
    loop = next(promise for promise in PROMISES if promise.figure is Figure.LOOP_S)
    assert broken_promises(Family.BODIES, {Figure.LOOP_S: loop.bound}, busy=False) == ()
    assert broken_promises(Family.BODIES, {Figure.LOOP_S: loop.bound + 0.01}, busy=False) == (loop,)
    assert broken_promises(Family.BODIES, {Figure.LOOP_S: loop.bound + 0.01}, busy=True) == ()
    assert all(promise.busy_bound >= promise.bound and promise.families for promise in PROMISES)


def test_tables_have_the_worst_of_each_family() -> None:
    rows = [
        {"family": "bodies", "name": name, "wrong": wrong, "figures": {"loop_s": loop_s}, "cpu_s": {"ingress": 1.0}}
        for name, wrong, loop_s in (("a", [], 0.1), ("b", ["slow"], 2.0))
    ]
    assert "| bodies | 2 | 1 |  | 2 |" in table(rows)
    both = compared(rows, rows[:1])
    assert "| bodies | before | 2 | 1 |  | 2 |" in both
    assert "| bodies | after | 1 | 0 |  | 0.1 |" in both

"""Between which modes a verifier's speculation tuner chooses: those there is anything for."""

import pytest

from outrider.config.reading import parse_config
from serve_app.coordination.settings import generations_settings


@pytest.mark.parametrize(
    ("text", "modes"),
    [
        ("", ["lookup", "lookup_draft"]),
        ("drafters: []", ["lookup"]),
        ("speculation: {lookup_window: 0}", ["none", "draft"]),
        ("speculation: {lookup_window: 0}\ndrafters: []", ["none"]),
        ("speculation: {window: 3}", ["lookup"]),
        ("speculation: {modes: [draft]}", ["draft"]),
        ("speculation: {modes: [none, lookup, draft, lookup_draft]}", ["none", "lookup", "draft", "lookup_draft"]),
        ("speculation: {modes: [lookup_draft]}\ndrafters: []", ["lookup"]),
        ("speculation: {modes: [draft, none]}", ["draft", "none"]),
    ],
)
def test_what_there_is_nothing_for_is_left_out(text: str, modes: list[str]) -> None:
    drafting = generations_settings(parse_config(text, "text")).drafting
    assert [mode.name for mode in drafting.modes] == modes

"""Between which arms a verifier's regime chooses: those there is anything for."""

import pytest

from outrider.config.reading import parse_config
from serve_app.coordination.settings import generations_settings


@pytest.mark.parametrize(
    ("text", "arms"),
    [
        ("", ["lookup", "lookup_draft"]),
        ("drafters: []", ["lookup"]),
        ("speculation: {lookup_window: 0}", ["none", "draft"]),
        ("speculation: {lookup_window: 0}\ndrafters: []", ["none"]),
        ("speculation: {window: 3}", ["lookup"]),
        ("speculation: {arms: [draft]}", ["draft"]),
        ("speculation: {arms: [none, lookup, draft, lookup_draft]}", ["none", "lookup", "draft", "lookup_draft"]),
        ("speculation: {arms: [lookup_draft]}\ndrafters: []", ["lookup"]),
        ("speculation: {arms: [draft, none]}", ["draft", "none"]),
    ],
)
def test_what_there_is_nothing_for_is_left_out(text: str, arms: list[str]) -> None:
    drafting = generations_settings(parse_config(text, "text")).drafting
    assert [arm.name for arm in drafting.arms] == arms

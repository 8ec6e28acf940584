"""Lists that follow a paragraph at once are lists on the site, too."""

import pytest

from lab.docsite.links import with_space_before_lists


@pytest.mark.parametrize(
    ("text", "on_site"),
    [
        ("**Why.**\n- a\n- b\n", "**Why.**\n\n- a\n- b\n"),
        ("Why.\n\n- a\n  goes on\n- b\n", "Why.\n\n- a\n  goes on\n- b\n"),
        ("```\nx\n- y\n```\n", "```\nx\n- y\n```\n"),
        ("One\n- a\n\nTwo\n- b\n", "One\n\n- a\n\nTwo\n\n- b\n"),
        ("a - b\nc\n", "a - b\nc\n"),
    ],
)
def test_an_empty_line_is_put_before_a_list(text: str, on_site: str) -> None:
    assert with_space_before_lists(text) == on_site

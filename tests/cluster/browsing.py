"""A real browser on the page: what it complains of, and what a reader sees."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

Scheme = Literal["light", "dark"]
WAIT_MS = 120_000.0


@contextmanager
def chromium() -> Iterator[Browser]:
    """The Chromium that is installed, without a window."""
    program = shutil.which("chromium")
    if program is None:
        pytest.skip("needs chromium (Debian package of that name)")
    args = ["--no-sandbox"] if os.geteuid() == 0 else []  # its sandbox is not for root
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=args)
        try:
            yield browser
        finally:
            browser.close()


class Reader:
    """One tab, and all that its console said of errors: violations of the content security policy are among them."""

    def __init__(self, browser: Browser, url: str, scheme: Scheme = "light", width: int = 1600) -> None:
        self.page: Page = browser.new_page(color_scheme=scheme, viewport={"width": width, "height": 1000})
        self.page.set_default_timeout(WAIT_MS)
        self.complaints: list[str] = []
        self.bodies: list[Any] = []  # of what was asked
        self.page.on("console", lambda said: self.complaints.append(said.text) if said.type == "error" else None)
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("request", lambda sent: self.bodies.append(sent.post_data_json) if sent.method == "POST" else None)
        self.page.goto(url)

    def settings(self, **values: str) -> None:
        """Set what is asked for; the form's own fields."""
        if self.page.get_attribute("#settings", "open") is None:
            self.page.click("#settings summary")
        for name, value in values.items():
            field = self.page.locator(f"#ask [name={name}]")
            if field.evaluate("field => field.tagName") == "SELECT":
                field.select_option(value)
            else:
                field.fill(value)

    def ask(self, prompt: str) -> None:
        """Type a prompt and send it by the keyboard, and wait for the answer's end."""
        before = self.page.locator(".turn").count()
        self.page.fill("#prompt", prompt)
        self.page.press("#prompt", "Enter")
        self.page.locator(".turn").nth(before).locator(".compare, [role=alert]").first.wait_for()
        told = self.page.locator("[role=alert]").all_inner_texts()
        assert not told, told

    def words(self, lane: int = 0) -> str:
        """The text of an answer of the last exchange."""
        return self.page.locator(".turn").last.locator(".words").nth(lane).inner_text()

    def outcome(self, lane: int = 0) -> str:
        """What is said below it."""
        return self.page.locator(".turn").last.locator(".outcome").nth(lane).inner_text()

    def counts(self) -> dict[str, int]:
        """The legend's tokens by origin."""
        named = "all => all.map((each) => each.className.split(' ')[1])"
        written = "all => all.map((each) => Number(each.textContent))"
        origins = self.page.eval_on_selector_all("#legend .token", named)
        counts = self.page.eval_on_selector_all("#legend .count", written)
        return dict(zip(origins, counts, strict=True))

"""Rendering of chats is bounded in time, and by nothing that could be raised elsewhere or later."""

import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from random import Random

import pytest
from jinja2.sandbox import ImmutableSandboxedEnvironment

from outrider.contracts.errors import ParameterError
from outrider.models.tokenizer import load_tokenizer
from serve_app.api.openai.bodies import ChatBody, ChatMessage
from serve_app.api.openai.fields import template
from serve_app.api.openai.fields.template import RenderingOverdueError, bounded
from serve_app.api.openai.prompts import chat_text
from tests.unit.serve_app.api.text_service import LIMITS

CHAT = ChatBody(model="m", messages=[ChatMessage(role="user", content="a")], chat_template_kwargs={"n": 90_000})
ENDLESS = {
    "loops": "{% for a in range(n) %}{% for b in range(n) %}{% set c = b %}{% endfor %}{% endfor %}",
    "a loop on one line": "{% for a in range(n) if a < 0 %}{% endfor %}" * 2000,
    "macros": "{% macro f(x) %}{% if x %}{{ f(x - 1) }}{{ f(x - 1) }}{% endif %}{% endmacro %}{{ f(60) }}",
    "filters": "{% for a in range(n) %}{{ range(n) | map('string') | list | length }}{% endfor %}",
    "JSON with an indent": "{% set a = [[[1] * 90] * 90] * 90 %}{{ (a * 90) | tojson(indent=4) | length }}",
}
SAMPLE = """{% macro twice(x) %}{{ x }}{{ x }}{% endmacro %}
{%- for m in ms %}{% if loop.first %}<{{ m.role }}>{% endif %}
{{- twice(m.text) | upper }}{{ m | tojson(indent=2) }}{{ ms | map(attribute='role') | join(',') }}
{%- for i in range(3) %}{{ i }}{% endfor %}{% endfor %}"""


def sample() -> Callable[[], str]:
    environment = ImmutableSandboxedEnvironment()
    messages = [{"role": "user", "text": f"t{i}"} for i in range(4)]
    made = environment.from_string(SAMPLE)
    return lambda: made.render(ms=messages)


@pytest.mark.parametrize("name", ENDLESS)
def test_rendering_has_a_deadline(name: str) -> None:
    tokenizer = load_tokenizer("smollm2-135m-instruct")
    tokenizer.chat_template = ENDLESS[name]
    began_s = time.thread_time()
    with pytest.raises(ParameterError, match="what the model's chat template renders within"):
        chat_text(CHAT, tokenizer, LIMITS)
    assert time.thread_time() - began_s < 10.0  # minutes without a deadline


class Clock:
    """Expires at one look: ``thread_time`` of the thread that renders."""

    def __init__(self, expires_at: int) -> None:
        self._expires_at, self.looks = expires_at, 0

    def thread_time(self) -> float:
        self.looks += 1
        return float(self.looks > self._expires_at) * 1e9


def test_a_deadline_that_passes_at_any_line_ends_the_rendering_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also at the very last one: then the text is there, or the error is, and no exception is left for later work."""
    monkeypatch.setattr(template, "_LOOKS_EVERY", 0)
    render, expected = sample(), sample()()
    with ThreadPoolExecutor(1) as pool:
        whole = pool.submit(lambda: looked_at(render, monkeypatch, 10**9)).result()
        assert whole[0] == expected
        ended = [pool.submit(looked_at, render, monkeypatch, at).result() for at in range(1, whole[1] + 2)]
        assert pool.submit(sys.gettrace).result() is None
        assert pool.submit(sample()).result() == expected
    assert [text for text, _ in ended] == [None] * (whole[1] - 1) + [expected] * 2


def looked_at(render: Callable[[], str], monkeypatch: pytest.MonkeyPatch, expires_at: int) -> tuple[str | None, int]:
    clock = Clock(expires_at)
    monkeypatch.setattr(template, "time", clock)
    text = None
    try:
        text = bounded(render)
    except ParameterError:
        assert clock.looks == expires_at + 1, "not a line later"
    assert sys.gettrace() is None
    return text, clock.looks


def test_other_work_of_the_threads_is_never_hit() -> None:
    """Deadlines pass at random moments of many renderings, near their ends above all; behind each comes other work."""
    render, expected, random = sample(), sample()(), Random(5)
    began_s = time.thread_time()
    bounded(render)
    lasts_s = time.thread_time() - began_s

    def one(deadline_s: float) -> bool:
        try:
            done = bounded(render, deadline_s) == expected
        except ParameterError:
            done = False
        for _ in range(3):  # what a thread does next, templates included
            assert sum(range(500)) == 124_750
            assert render() == expected
        return done

    with ThreadPoolExecutor(4) as pool:
        done = list(pool.map(one, [lasts_s * random.uniform(0.0, 1.5) for _ in range(1500)]))
    assert 0 < sum(done) < len(done)


def test_what_traced_the_thread_before_does_so_again() -> None:
    def tracer(*_: object) -> None:
        return None

    earlier = sys.gettrace()
    sys.settrace(tracer)
    try:
        for deadline_s in (10.0, -1.0):
            try:
                bounded(sample(), deadline_s)
            except ParameterError:
                assert deadline_s < 0
            assert sys.gettrace() is tracer
    finally:
        sys.settrace(earlier)


def test_a_generator_that_is_closed_swallows_no_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python calls a tracer as it closes one, and drops what that raises."""
    seen = list[object]()
    monkeypatch.setattr(sys, "unraisablehook", seen.append)
    environment = ImmutableSandboxedEnvironment()
    made = environment.from_string("{% for i in range(5) %}{{ i }}{% endfor %}")

    def half() -> str:
        pieces = made.generate()
        first = next(pieces)
        monkeypatch.setattr(template, "time", Expired())
        del pieces
        return first

    monkeypatch.setattr(template, "_LOOKS_EVERY", 0)
    assert bounded(half) == "0"
    assert seen == []


class Expired:
    """A clock that is beyond any deadline."""

    def thread_time(self) -> float:
        return 1e9


def test_the_error_is_none_that_templates_catch() -> None:
    assert not issubclass(RenderingOverdueError, Exception)

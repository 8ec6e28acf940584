"""The page in a real browser over a real cluster: it asks, colours, compares, and tells what happens to the fleet."""

import os
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
import uvicorn
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser
from playwright.sync_api import Error as PlaywrightError

from serve_app.api.http.routes import make_api
from serve_app.page.routes import with_page
from tests.cluster.browsing import Reader, Scheme, chromium
from tests.cluster.served import MODEL, Service, eventually, free_port
from tests.unit.serve_app.page.test_page import KEY, Locked, Watched

PROMPT = "Write a short letter to a neighbour about a lost cat."
TOKENS = 48
DRAFTING = {"temperature": "0", "max_tokens": str(TOKENS), "window": "4", "protocol": "token_ids"}
TOLD_WITHIN_S = 60.0
WIDTHS = (390, 1024, 1600)
# Where the pictures of the documentation are made; elsewhere they are looked at by nobody.
FIGURES = os.environ.get("OUTRIDER_FIGURES")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as browser:
        yield browser


@pytest.fixture
def reader(browser: Browser, service: Service) -> Iterator[Reader]:
    """A tab, of which nothing may have gone wrong in the end."""
    reader = Reader(browser, service.url)
    reader.page.locator("#drafters [data-state=ready]").first.wait_for()
    yield reader
    complaints = list(reader.complaints)
    reader.page.close()
    assert complaints == []


def test_an_answer_streams_and_tells_who_proposed_its_tokens(reader: Reader, service: Service) -> None:
    reader.settings(**DRAFTING)
    reader.page.fill("#prompt", PROMPT)
    reader.page.press("#prompt", "Enter")
    reader.page.locator(".lane[aria-busy] .token").first.wait_for()  # while it is being made
    reader.page.locator(".compare").wait_for()
    counts = reader.counts()
    assert sum(counts.values()) == TOKENS
    assert counts["accepted"] > 0
    assert counts["correction"] + counts["verifier"] > 0
    assert counts["lookup"] == counts["override"] == 0, "a window was named, and nothing is judged"
    body = {"model": MODEL, "messages": [{"role": "user", "content": PROMPT}], "temperature": 0, "max_tokens": TOKENS}
    said = service.post("/v1/chat/completions", body)["choices"][0]["message"]["content"]
    assert reader.page.locator(".words").evaluate("words => words.textContent") == said
    figures = reader.page.locator(".figures dd").all_inner_texts()
    assert all(any(char.isdigit() for char in figure) for figure in figures), figures
    assert "rounds" in reader.page.inner_text("#rounds-note")
    for phase in ("draft", "verify"):
        assert reader.page.locator(f"#timeline .phase.{phase}").count() > 0


@pytest.mark.parametrize("scheme", ["light", pytest.param("dark", marks=pytest.mark.long)])
def test_it_can_be_read_by_all_on_any_screen(
    browser: Browser, service: Service, scheme: Scheme, tmp_path: Path
) -> None:
    """axe-core finds nothing serious, before an answer and behind a comparison; nothing is wider than the screen."""
    reader = Reader(browser, service.url, scheme)
    reader.page.locator("#drafters [data-state=ready]").first.wait_for()
    assert serious(reader) == []
    reader.settings(temperature="0", max_tokens="110", window="4")
    reader.ask(PROMPT)
    reader.page.click(".compare")
    reader.page.get_by_text("one by one").wait_for()
    reader.page.wait_for_timeout(4000 if FIGURES else 0)  # so that charts have something to show
    reader.page.click("#settings summary")  # that leaves more room for the answers
    for width in WIDTHS:
        reader.page.set_viewport_size({"width": width, "height": 844 if width < 500 else 1000})
        wide = partial(reader.page.evaluate, "document.documentElement.scrollWidth")
        eventually(lambda read=wide, most=width: read() <= most, TOLD_WITHIN_S)  # type: ignore[misc]  # drawn with a frame
        assert serious(reader) == []
        file = f"page-{width}-{scheme}.png"
        reader.page.screenshot(path=Path(FIGURES or tmp_path) / file, full_page=width < WIDTHS[1])
    assert reader.complaints == []
    reader.page.close()


def serious(reader: Reader) -> list[str]:
    """What axe-core finds."""
    found = Axe().run(reader.page).response["violations"]
    bad = [each for each in found if each["impact"] in ("serious", "critical")]
    return [f"{each['id']}: {node['html'][:120]} {node['failureSummary']}" for each in bad for node in each["nodes"]]


@pytest.mark.long
def test_without_drafts_the_tokens_are_the_same(reader: Reader) -> None:
    reader.settings(**DRAFTING)
    reader.ask(PROMPT)
    reader.page.click(".compare")
    reader.page.get_by_text("one by one").wait_for()
    assert f"same {TOKENS} tokens" in reader.page.inner_text(".verdict")
    assert reader.words(0) == reader.words(1)
    assert f"{TOKENS} no draft" in reader.outcome(1)
    assert "token_ids" in reader.outcome(0)


@pytest.mark.long
def test_a_drafter_that_dies_is_missed(reader: Reader, service: Service) -> None:
    """Killed while it drafts for this very response, which goes on."""
    faults = reader.page.locator("#faults")
    before = faults.inner_text()
    reader.settings(temperature="0", max_tokens="300", window="4", protocol="token_ids")
    reader.page.fill("#prompt", "Tell me a very long story.")
    reader.page.press("#prompt", "Enter")
    reader.page.locator(".lane[aria-busy] .token.accepted").first.wait_for()
    service.kill("DrafterActor")
    reader.page.locator("#drafters tr:not([data-state=ready])").first.wait_for()
    reader.page.locator(".compare").wait_for()
    eventually(lambda: "drafter" in faults.inner_text() and faults.inner_text() != before, TOLD_WITHIN_S)
    ready = len(service.config.drafters) * service.config.drafters[0].count
    eventually(lambda: reader.page.locator("#drafters [data-state=ready]").count() == ready, 2 * TOLD_WITHIN_S)


@pytest.mark.long
def test_the_protocol_is_the_one_that_was_chosen(reader: Reader) -> None:
    reader.settings(**DRAFTING)
    reader.ask(PROMPT)
    assert "token_ids" in reader.outcome()
    reader.settings(protocol="tslt")
    reader.ask("And a shorter one.")
    assert "tslt" in reader.outcome()
    assert "token_ids" not in reader.outcome()
    first, second = (body["messages"] for body in reader.bodies)
    assert [message["role"] for message in second] == ["user", "assistant", "user"], "it is one conversation"
    assert second[0] == first[0]


def test_what_was_looked_up_has_a_colour_of_its_own(reader: Reader) -> None:
    reader.settings(temperature="0", max_tokens="60", lookup="true")
    reader.ask("Repeat exactly: The cat sat on the mat. The dog sat on the log. " + "The cat sat on the mat. " * 3)
    assert reader.counts()["lookup"] > 0


@pytest.mark.long
def test_sampled_without_a_seed_it_says_that_answers_may_differ(reader: Reader) -> None:
    reader.settings(**{**DRAFTING, "temperature": "1"})
    reader.ask(PROMPT)
    assert "may differ" in reader.page.inner_text(".verdict")
    reader.settings(seed="7")
    reader.ask(PROMPT)
    assert reader.page.locator(".verdict").last.inner_text() == ""


def test_a_response_is_stopped_and_the_conversation_forgotten(reader: Reader, service: Service) -> None:
    reader.settings(temperature="0", max_tokens="400")
    reader.page.fill("#prompt", "Tell me a very long story.")
    reader.page.press("#prompt", "Enter")
    reader.page.locator(".lane[aria-busy] .token").first.wait_for()
    reader.page.click("#stop")
    reader.page.get_by_text("Stopped", exact=True).wait_for()
    service.check_released()
    reader.page.click("#clear")
    assert reader.page.locator(".turn").count() == 0
    assert reader.page.is_visible("#welcome")


def test_what_is_refused_is_explained(browser: Browser, service: Service) -> None:
    reader = Reader(browser, service.url)
    reader.page.locator("#drafters [data-state=ready]").first.wait_for()
    reader.settings(temperature="9")
    reader.page.locator("#ask").evaluate("form => { form.noValidate = true; }")  # the form would not send it
    reader.page.fill("#prompt", PROMPT)
    reader.page.press("#prompt", "Enter")
    assert "temperature needs" in reader.page.locator("[role=alert]").inner_text()
    reader.page.close()


def test_the_last_minutes_are_drawn(reader: Reader) -> None:
    reader.page.locator("#charts canvas").nth(3).wait_for()
    speed, _, responses, _ = reader.page.locator("#charts output").all()
    eventually(lambda: responses.inner_text().isdigit(), TOLD_WITHIN_S)
    reader.settings(**DRAFTING)
    reader.ask(PROMPT)
    eventually(lambda: speed.inner_text() != "0.0" and speed.inner_text()[0].isdigit(), TOLD_WITHIN_S)


def test_what_is_wrong_would_be_found(browser: Browser, service: Service) -> None:
    """The policy is in force, and both console and axe-core tell of what the other tests find nothing of."""
    reader = Reader(browser, service.url)
    reader.page.evaluate("document.body.setAttribute('style', 'display: none')")
    assert reader.page.is_visible("h1")
    assert any("Content Security Policy" in complaint for complaint in reader.complaints)
    with pytest.raises(PlaywrightError, match="TrustedHTML"):
        reader.page.evaluate("document.body.innerHTML = '<p>text of a model</p>'")
    reader.page.locator("h1").evaluate("title => { title.style.color = '#f0efe9'; }")
    assert any(found.startswith("color-contrast") for found in serious(reader))
    reader.page.close()


@pytest.fixture(scope="module")
def locked() -> Iterator[str]:
    """An ingress of this process, with keys; its models are a text, as what is tested is who may ask."""
    service, port = Watched(gate=Locked()), free_port()
    api = with_page(make_api(service), service)
    server = uvicorn.Server(uvicorn.Config(api, host="127.0.0.1", port=port, log_level="error", lifespan="off"))
    thread = threading.Thread(target=server.run)
    thread.start()
    eventually(lambda: server.started, TOLD_WITHIN_S)
    yield f"http://127.0.0.1:{port}"
    server.should_exit = True
    thread.join(TOLD_WITHIN_S)


def test_with_keys_it_asks_for_one(browser: Browser, locked: str) -> None:
    reader = Reader(browser, locked)
    page = reader.page
    page.locator("#key-dialog[open]").wait_for()
    assert "needs an API key" in page.inner_text("#key-reason")
    page.fill("#key", "sk-of-nobody-at-all")
    page.press("#key", "Enter")
    page.get_by_text("needs a known API key").wait_for()
    page.fill("#key", KEY)
    page.press("#key", "Enter")
    page.locator("#drafters [data-state=ready]").wait_for()
    assert page.evaluate("[sessionStorage.length, localStorage.length, document.cookie]") == [1, 0, ""]
    reader.settings(max_tokens="40")
    reader.ask("Hello")
    assert sum(reader.counts().values()) == 40
    page.reload()
    page.locator("#drafters [data-state=ready]").wait_for()  # within the tab the key is known
    page.close()


def test_events_are_read_however_the_stream_is_cut(browser: Browser, locked: str) -> None:
    reader = Reader(browser, locked)
    read = """async ([stream, size]) => {
        const { EventReader } = await import("/page/sse.js");
        const reader = new EventReader();
        const read = [];
        for (let at = 0; at < stream.length; at += size) read.push(...reader.push(stream.slice(at, at + size)));
        return read;
    }"""
    stream = 'data: {"a":1}\n\n: keep-alive\n\ndata: one\ndata: two\n\ndata:[DONE]\n\ndata: unfinished'
    for size in range(1, len(stream) + 1):
        assert reader.page.evaluate(read, [stream, size]) == ['{"a":1}', "one\ntwo", "[DONE]"]
    reader.page.close()


def test_what_is_counted_is_what_was_told(browser: Browser, locked: str) -> None:
    reader = Reader(browser, locked)
    count = """async () => {
        const { counted, figures, tallyFrom } = await import("/page/tally.js");
        const token = (origin) => ({ id: 1, text: "x", origin });
        const round = (drafted, accepted, trimmed, bits) => ({
            protocol: drafted ? "dsd" : null, drafted_tokens: drafted, accepted_tokens: accepted,
            trimmed_tokens: trimmed, payload_bits: { up: bits, down: 0 },
        });
        const empty = tallyFrom(1000);
        const one = counted(empty, { tokens: [token("verifier")], rounds: [round(0, 0, 0, 0)] }, 1250);
        const tokens = ["accepted", "accepted", "correction"].map(token);
        const two = counted(one, { tokens, rounds: [round(5, 2, 1, 60)] }, 1750);
        return [figures(empty), figures(one), figures(two), two.by_origin, two.by_protocol, empty.tokens];
    }"""
    empty, one, two, origins, protocols, untouched = reader.page.evaluate(count)
    nothing = {"first_token_ms": None, "tokens_per_s": None, "acceptance": None, "bits_per_token": None}
    assert empty == nothing
    assert one == {**nothing, "first_token_ms": 250, "bits_per_token": 0}
    assert two == {"first_token_ms": 250, "tokens_per_s": 6, "acceptance": 0.5, "bits_per_token": 15}
    assert origins == {"accepted": 2, "lookup": 0, "correction": 1, "verifier": 1, "override": 0}
    assert (protocols, untouched) == ({"no draft": 1, "dsd": 1}, 0)
    reader.page.close()


def test_bars_are_as_long_as_their_phases(browser: Browser, locked: str) -> None:
    reader = Reader(browser, locked)
    draw = """async () => {
        const { barsOf, meansOf, ticksOf } = await import("/page/timeline.js");
        const rounds = [
            { ended_ms: 100, beside_ms: 0, phases_ms: { queue: 10, verify: 30, orchestration: 5 } },
            { ended_ms: 200, beside_ms: 50, phases_ms: { draft: 20, link: 10, verify: 40 } },
        ];
        const many = Array.from({ length: 500 }, () => rounds[0]);
        const ticks = [ticksOf(0, 1000), ticksOf(5, 5)];
        return [barsOf(rounds), [...meansOf(rounds)], barsOf([]), ...ticks, barsOf(many).bars.length];
    }"""
    drawn, means, nothing, ticks, none, most = reader.page.evaluate(draw)
    spans = [(bar["phase"], bar["from_ms"], bar["to_ms"]) for bar in drawn["bars"]]
    first = [("queue", 55, 65), ("verify", 65, 95), ("orchestration", 95, 100)]
    assert spans == [*first, ("beside", 80, 130), ("draft", 130, 150), ("link", 150, 160), ("verify", 160, 200)]
    assert (drawn["from_ms"], drawn["to_ms"]) == (55, 200)
    assert means == [["draft", 10], ["link", 5], ["queue", 5], ["verify", 35], ["orchestration", 2.5]]
    assert (nothing["bars"], ticks, none, most) == ([], [0, 500, 1000], [], 96)
    reader.page.close()


def test_a_request_says_what_the_form_says_and_its_twin_drafts_nothing(browser: Browser, locked: str) -> None:
    reader = Reader(browser, locked)
    ask = """async ([settings, messages, overrides]) => {
        const { chatBody, compared, inWords, mayDiffer, withoutDrafts } = await import("/page/request.js");
        const { tallyFrom } = await import("/page/tally.js");
        const tally = tallyFrom(0);
        tally.by_origin.override = overrides;
        const body = chatBody(settings, messages);
        const answers = [[[], []], [[1, 2], [1, 2]], [[1, 2, 3], [1, 4]], [[1], [1, 2]]];
        const pairs = answers.map(([one, two]) => compared(one, two));
        return [body, withoutDrafts(body), mayDiffer(body, tally), pairs, inWords(settings)];
    }"""
    messages = [{"role": "user", "content": "Hi"}]
    names = ("model", "temperature", "seed", "max_tokens", "protocol", "window", "lookup", "slo_class", "verification")
    plain = {**dict.fromkeys(names, ""), "model": "m"}
    body, alone, differs, pairs, words = reader.page.evaluate(ask, [plain, messages, 0])
    sent = {"model": "m", "messages": messages, "stream": True}
    assert body == {**sent, "outrider": {"details": True}}
    undrafted = {"details": True, "window": 0, "lookup": False, "verification": "lossless"}
    assert alone == {**sent, "outrider": undrafted}
    assert (differs is not None, words) == (True, "default sampling · automatic protocol")
    assert [(pair["same"], pair["of"], pair["equal"]) for pair in pairs] == [
        (0, 0, True),
        (2, 2, True),
        (1, 3, False),
        (1, 2, False),
    ]
    chosen = {"temperature": "0.5", "seed": "7", "max_tokens": "9", "protocol": "dsd", "window": "0", "lookup": "false"}
    chosen |= {"slo_class": "speed_2", "verification": "semantic"}
    body, alone, differs, _, _ = reader.page.evaluate(ask, [{**plain, **chosen}, messages, 0])
    fields = {"protocol": "dsd", "window": 0, "lookup": False, "slo_class": "speed_2", "verification": "semantic"}
    sampling = {"temperature": 0.5, "seed": 7, "max_tokens": 9}
    assert body == {**sent, **sampling, "outrider": {"details": True, **fields}}
    assert alone == {**sent, **sampling, "outrider": {**undrafted, "slo_class": "speed_2"}}
    assert "semantic" in differs
    exact = {**plain, **chosen, "verification": ""}
    assert reader.page.evaluate(ask, [exact, messages, 0])[2] is None
    greedy = {**plain, "temperature": "0", "slo_class": "speed_2"}
    assert reader.page.evaluate(ask, [greedy, messages, 0])[2] is None
    assert "semantic" in reader.page.evaluate(ask, [greedy, messages, 1])[2], "the class allows it"
    reader.page.close()


def test_the_history_grows_and_forgets(browser: Browser, locked: str) -> None:
    reader = Reader(browser, locked)
    grow = """async () => {
        const { KEPT_S, extended, newest } = await import("/page/history.js");
        const one = extended({}, { at_s: [100, 101], speed: [null, 5] });
        const two = extended(one, { at_s: [], speed: [] });
        const three = extended(two, { at_s: [100.5 + KEPT_S], speed: [7] });
        return [one, two, three, newest(three.speed), newest([]), newest(undefined)];
    }"""
    one, two, three, *newest = reader.page.evaluate(grow)
    assert one == two == {"at_s": [100, 101], "speed": [None, 5]}
    assert three == {"at_s": [101, 400.5], "speed": [5, 7]}
    assert newest == [7, None, None]
    reader.page.close()


def test_figures_are_written_in_fitting_units(browser: Browser, locked: str) -> None:
    reader = Reader(browser, locked)
    write = """async () => {
        const { counted, milliseconds, number, percent, rates } = await import("/page/format.js");
        return [
            milliseconds(null), milliseconds(1.25), milliseconds(52.4), milliseconds(1500), number(undefined, 1),
            number(3.14, 1), percent(0.699), rates(2e7, 4.1e7), rates(9e4, 1e5),
            counted(1, "round"), counted(2, "round"),
        ];
    }"""
    written = ["–", "1.3 ms", "52 ms", "1.50 s", "–", "3.1", "70 %", "20 / 41 Mbit/s", "90 / 100 kbit/s"]  # noqa: RUF001
    assert reader.page.evaluate(write) == [*written, "1 round", "2 rounds"]
    reader.page.close()

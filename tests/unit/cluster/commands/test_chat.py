import io
import json
import os
import pty
import signal
import sys
from subprocess import PIPE, Popen

import httpx
import pytest
from rich.console import Console

from cluster.chat_stream import ChatError, ResponseCost, body_of, pieces
from cluster.cli import main
from cluster.commands.chat import Chat, summary
from outrider.contracts.requests import TextSpan, TokenOrigin
from tests.unit.cluster.recorded_service import Answer, events, serving

USAGE = {
    "prompt_tokens": 5,
    "completion_tokens": 4,
    "outrider": {"rounds": 2, "drafted_tokens": 6, "accepted_tokens": 3, "trimmed_tokens": 2},
}
MODELS = Answer(json.dumps({"data": [{"id": "some-model"}]}))


def piece(*spans: tuple[str, str]) -> dict[str, object]:
    text = "".join(text for text, _ in spans)
    outrider = {"spans": [{"text": text, "origin": origin} for text, origin in spans]}
    return {"choices": [{"index": 0, "delta": {"content": text}, "outrider": outrider}], "usage": None}


WHOLE = Answer(
    events(
        {"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]},
        piece(("Once", "verifier")),
        piece((" upon", "accepted"), (" a", "correction")),
        {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]},
        {"choices": [], "usage": USAGE},
    )
)


def respond(path: str, _: int) -> Answer:
    return MODELS if path == "/v1/models" else WHOLE


def test_one_turn_asks_for_spans_and_prints_the_answer(capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--temperature", "0.5", "--seed", "7", "--max-tokens", "9", "--window", "3", "--system", "Be brief."]
    options += ["--slo-class", "speed_8", "--verification", "lossless", "--top-p", "0.9"]
    with serving(respond) as service:
        assert main(["chat", "--url", service.url, *options, "Tell me a story."]) == 0
    assert service.requests[1] == {
        "model": "some-model",
        "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Tell me a story."}],
        "stream": True,
        "stream_options": {"include_usage": True},
        "outrider": {"spans": True, "window": 3, "slo_class": "speed_8", "verification": "lossless"},
        "temperature": 0.5,
        "top_p": 0.9,
        "seed": 7,
        "max_tokens": 9,
    }
    answer, cost = capsys.readouterr().out.splitlines()
    assert answer == "Once upon a"
    assert cost.startswith("4 tokens, ")
    assert cost.endswith("accepted 3 of 4 drafted (75%), 2 rounds")


def test_what_is_not_asked_for_is_left_to_the_service() -> None:
    assert set(body_of({"model": "m", "seed": None}, [])) == {
        "model",
        "messages",
        "stream",
        "stream_options",
        "outrider",
    }


def test_colours_tell_who_proposed_what() -> None:
    out = Console(record=True, force_terminal=True, color_system="standard", file=io.StringIO(), width=100)
    with serving(respond) as service, httpx.Client() as client:
        chat = Chat(client, service.url, {"model": "m"}, None, out)
        chat.show_legend()
        chat.turn("Go on.")
    legend, answer, *_ = out.export_text(styles=True).splitlines()
    green, yellow, cyan = "\x1b[32m", "\x1b[33m", "\x1b[36m"
    assert legend.startswith(f"{green}accepted draft")
    assert answer == f"{cyan}Once\x1b[0m{green} upon\x1b[0m{yellow} a\x1b[0m"


@pytest.mark.parametrize("no_colour", [True, False])
def test_escape_codes_are_for_terminals_without_no_color(*, no_colour: bool) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "NO_COLOR"} | {"TERM": "xterm"}
    if no_colour:
        environment["NO_COLOR"] = "1"
    with serving(respond) as service:
        ours, theirs = pty.openpty()
        command = [sys.executable, "-m", "cluster.cli", "chat", "--url", service.url, "Hello"]
        with Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment) as process:
            assert process.wait() == 0
            os.close(theirs)
            seen = os.read(ours, 65536)
        os.close(ours)
    assert (b"\x1b[" in seen) is not no_colour
    assert (b"accepted draft" in seen) is not no_colour


def test_the_answer_cannot_steer_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    bad = Answer(
        events(piece(("\x1b]0;gotcha\x07[bold]plain[/bold]\r\x9b2J", "verifier")), {"choices": [], "usage": USAGE})
    )
    with serving(lambda *_: bad) as service:
        assert main(["chat", "--url", service.url, "--model", "m", "Hello"]) == 0
    answer = capsys.readouterr().out.splitlines()[0]
    assert answer == "\ufffd]0;gotcha\ufffd[bold]plain[/bold]\ufffd\ufffd2J"


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (Answer('{"error": {"message": "the window is too long"}}', status=400), "the window is too long"),
        (Answer("nope", status=502), "needs an OpenAI-style service at "),
        (Answer(events({"error": {"message": "the verifier was lost"}})), "the verifier was lost"),
        (Answer(events(piece(("Half", "verifier")), done=False)), "found a connection that ended in the middle"),
    ],
)
def test_errors_are_shown_as_their_message(answer: Answer, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with serving(lambda *_: answer) as service:
        assert main(["chat", "--url", service.url, "--model", "m", "Hello"]) == 2
    assert message in capsys.readouterr().err


def test_nobody_there(capsys: pytest.CaptureFixture[str]) -> None:
    with serving(respond) as service:
        pass
    assert main(["chat", "--url", service.url, "Hello"]) == 2
    assert f"needs a service at {service.url}, found: [Errno 111] Connection refused" in capsys.readouterr().err


def test_a_conversation_remembers_until_reset() -> None:
    def sometimes(path: str, number: int) -> Answer:
        refused = Answer('{"error": {"message": "busy"}}', status=429)
        return refused if number == 2 else respond(path, number)

    with serving(sometimes) as service:
        command = [sys.executable, "-m", "cluster.cli", "chat", "--url", service.url]
        with Popen(command, stdin=PIPE, stdout=PIPE, stderr=PIPE, text=True) as process:
            shown, errors = process.communicate("one\nrefused\n\ntwo\n/reset\nthree\n")
    assert (process.returncode, errors) == (0, "")
    assert shown.count("Once upon a\n") == 3
    assert "busy" in shown
    story = "Once upon a"
    asked = [[m["content"] for m in request["messages"]] for request in service.requests[1:]]
    assert asked == [["one"], ["one", story, "refused"], ["one", story, "two"], ["three"]]


def test_quit_leaves() -> None:
    with serving(respond) as service:
        command = [sys.executable, "-m", "cluster.cli", "chat", "--url", service.url]
        with Popen(command, stdin=PIPE, stdout=PIPE, text=True) as process:
            shown, _ = process.communicate("/quit\nunheard\n")
    assert process.returncode == 0
    assert "Once" not in shown
    assert len(service.requests) == 1


def test_ctrl_c_cancels_the_answer_and_twice_leaves() -> None:
    endless = Answer(events(piece(("Once", "verifier")), done=False), stays_open=True)
    with serving(lambda path, _: MODELS if path == "/v1/models" else endless) as service:
        command = [sys.executable, "-m", "cluster.cli", "chat", "--url", service.url]
        with Popen(command, stdin=PIPE, stdout=PIPE, text=True, bufsize=1) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write("hello\n")
            until(process, "Once")
            process.send_signal(signal.SIGINT)
            until(process, "again to leave\n")
            assert service.client_left.wait(30)
            process.send_signal(signal.SIGINT)
            assert process.wait() == 0


def until(process: "Popen[str]", text: str) -> None:
    """Read what a process prints until a text is seen."""
    assert process.stdout is not None
    seen = ""
    while text not in seen:
        character = process.stdout.read(1)
        assert character, f"the process ended after {seen!r}"
        seen += character


def test_a_service_without_spans_is_read_as_plain_text() -> None:
    stream = events({"choices": [{"delta": {"content": "Hi"}}]}, {"choices": [], "usage": {"completion_tokens": 1}})
    assert list(pieces(stream.splitlines())) == [TextSpan("Hi", TokenOrigin.VERIFIER), ResponseCost(1, 0, 0, 0, 0)]


def test_an_origin_of_a_later_version_is_read() -> None:
    assert next(pieces(events(piece(("Hi", "guessed"))).splitlines())) == TextSpan("Hi", TokenOrigin.VERIFIER)


def test_comments_of_a_stream_are_skipped_and_its_end_is_needed() -> None:
    assert list(pieces([": alive", "", "data: [DONE]"])) == []
    with pytest.raises(ChatError, match="ask again"):
        list(pieces([": alive"]))


def test_a_summary_tells_what_was_used() -> None:
    usage = ResponseCost(3, 0, 0, 0, 3, sampling={"temperature": 0.2, "top_p": 0.9})
    assert summary(usage, None, 1.5) == "3 tokens, 2.0 tokens/s, 3 rounds, temperature 0.2, top_p 0.9"
    told = events({"choices": [], "usage": {"completion_tokens": 1, "outrider": {"sampling": {"temperature": 0.0}}}})
    assert list(pieces(told.splitlines())) == [ResponseCost(1, 0, 0, 0, 0, sampling={"temperature": 0.0})]


def test_a_summary_without_drafts() -> None:
    assert summary(ResponseCost(3, 0, 0, 0, 3), None, 1.5) == "3 tokens, 2.0 tokens/s, 3 rounds"

"""Chat with a service in the terminal; colours show who proposed each piece of an answer."""

import argparse
import os
import time
from collections.abc import Mapping
from contextlib import closing, suppress

import httpx
from rich.console import Console
from rich.text import Text

from cluster.chat_stream import ChatError, Message, ResponseCost, ask, ask_model
from cluster.options import add_key_option, add_url_option, key_headers
from outrider.contracts.requests import TextSpan, TokenOrigin

_STYLES = {
    TokenOrigin.ACCEPTED: "green",
    TokenOrigin.LOOKUP: "blue",
    TokenOrigin.OVERRIDE: "magenta",
    TokenOrigin.CORRECTION: "yellow",
    TokenOrigin.VERIFIER: "cyan",
}
_LEGEND = {
    TokenOrigin.ACCEPTED: "accepted draft",
    TokenOrigin.LOOKUP: "n-gram draft",
    TokenOrigin.OVERRIDE: "mismatch passed by the decision head",
    TokenOrigin.CORRECTION: "correction",
    TokenOrigin.VERIFIER: "the verifier's own",
}
_SENT = (
    *("model", "temperature", "top_p", "seed", "max_tokens"),
    *("window", "protocol", "slo_class", "verification"),
)
_HELP = "/reset forgets the conversation, /quit or Ctrl-D leaves, Ctrl-C cancels an answer"
_CONTROLS = {
    code: "�" for code in (*range(32), *range(127, 160)) if chr(code) not in "\n\t"
}  # control characters that could steer the terminal


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.description = __doc__
    add_url_option(parser)
    add_key_option(parser)
    add = parser.add_argument
    add("--model", help="name of the model (default: the one the service has)")
    add("--temperature", type=float, help="0 is greedy (default: the model's own)")
    add("--top-p", type=float, help="total probability of the tokens to draw from (default: the model's own)")
    add("--seed", type=int, help="the same seed gives the same answer")
    add("--max-tokens", type=int, help="length limit of an answer")
    add("--window", type=int, help="draft tokens per round (default: the service chooses)")
    add("--protocol", help="what crosses the link, such as token_ids or tslt (default: the service chooses)")
    add("--slo-class", help="class whose token speed is promised (default: the service's)")
    add(
        "--verification",
        help="semantic, at temperature 0: a decision head may accept mismatches (default: lossless)",
    )
    add("--system", metavar="TEXT", help="system message")
    add("prompt", nargs="?", metavar="PROMPT", help="ask this and exit (default: a conversation)")


def run(arguments: argparse.Namespace) -> None:
    url = arguments.url.rstrip("/")
    with httpx.Client(headers=key_headers(arguments.api_key)) as client:
        options = {name: getattr(arguments, name) for name in _SENT}
        options["model"] = options["model"] or ask_model(client, url)
        conversation = Chat(client, url, options, arguments.system, make_console())
        conversation.show_legend()
        if arguments.prompt is None:
            conversation.run()
        else:
            conversation.turn(arguments.prompt)


def make_console() -> Console:
    """Write to standard output, without escape codes if ``NO_COLOR`` is set or it is no terminal."""
    return Console(color_system=None) if os.environ.get("NO_COLOR") else Console()


class Chat:
    def __init__(
        self, client: httpx.Client, url: str, options: Mapping[str, object], system: str | None, out: Console
    ) -> None:
        self._client, self._url, self._options, self._out = client, url, options, out
        self._opening: list[Message] = [] if system is None else [{"role": "system", "content": system}]
        self._messages = list(self._opening)

    def show_legend(self) -> None:
        if self._out.color_system is not None:
            parts = [(f"{_LEGEND[origin]}  ", style) for origin, style in _STYLES.items()]
            self._out.print(Text.assemble(*parts))

    def turn(self, prompt: str) -> None:
        """Send a prompt, stream the answer, and remember both; a failed or cancelled turn is forgotten."""
        messages: list[Message] = [*self._messages, {"role": "user", "content": prompt}]
        started_at_s = time.monotonic()
        first_s: float | None = None
        usage: ResponseCost | None = None
        answer = ""
        try:
            with closing(ask(self._client, self._url, self._options, messages)) as pieces:
                for piece in pieces:
                    if isinstance(piece, TextSpan):
                        first_s = first_s or time.monotonic() - started_at_s
                        answer += piece.text
                        self._out.print(_drawn(piece), end="", soft_wrap=True)
                    else:
                        usage = piece
        finally:
            self._out.print()
        self._messages = [*messages, {"role": "assistant", "content": answer}]
        if usage is not None:
            self._out.print(Text(summary(usage, first_s, time.monotonic() - started_at_s), "dim"))

    def run(self) -> None:
        """Read prompts until the user leaves: by ``/quit``, Ctrl-D, or Ctrl-C twice."""
        self._out.print(Text(_HELP, "dim"))
        with suppress(KeyboardInterrupt):  # the second one, before the next prompt is shown
            self._run()

    def _run(self) -> None:
        interrupted = False
        while True:
            try:
                prompt = self._out.input("> ", markup=False).strip()
                if prompt == "/quit":
                    return
                if prompt == "/reset":
                    self._messages = list(self._opening)
                elif prompt:
                    self.turn(prompt)
                interrupted = False
            except EOFError:
                self._out.print()
                return
            except KeyboardInterrupt:
                if interrupted:
                    return
                interrupted = True
                self._out.print(Text("cancelled; press Ctrl-C again to leave", "dim"))
            except ChatError as error:
                self._out.print(Text(str(error), "red"))


def summary(usage: ResponseCost, first_s: float | None, end_s: float) -> str:
    """Return an answer's cost in a line; seconds are from the request to the first text and to the end."""
    parts = [f"{usage.completion_tokens} tokens", f"{usage.completion_tokens / max(end_s, 1e-9):.1f} tokens/s"]
    if first_s is not None:
        parts.append(f"TTFT {first_s:.2f} s")
    if judged := usage.drafted_tokens - usage.trimmed_tokens:
        share = usage.accepted_tokens / judged
        parts.append(f"accepted {usage.accepted_tokens} of {judged} drafted ({share:.0%})")
    parts += [f"{usage.rounds} rounds", *(f"{name} {value:g}" for name, value in usage.sampling.items())]
    return ", ".join(parts)


def _drawn(span: TextSpan) -> Text:
    return Text(span.text.translate(_CONTROLS), _STYLES[span.origin])

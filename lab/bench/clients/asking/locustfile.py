"""Requests of Locust's users: streamed chats, whole chats and completions. Run by ``with_locust``."""

import json
import os
import time
from typing import Any

from locust import HttpUser, constant

from lab.bench.clients.asking.checking import KEY

MODEL = os.environ.get("OUTRIDER_MODEL", "")
PROMPTS = ("Name the capital of France.", "Count to five.", "Write a sentence about rain.", "What is a comet?")
STREAMED = "chat, streamed"
_DATA = "data: "


class User(HttpUser):  # type: ignore[misc] # no types
    """Sends the next request after each answer; the three kinds alternate, so that every user does each as often."""

    wait_time = constant(0)

    def on_start(self) -> None:
        """Start with another prompt than the user before."""
        self.asked = id(self) % len(PROMPTS)
        if key := os.environ.get(KEY, ""):
            self.client.headers["authorization"] = f"Bearer {key}"

    def streamed(self) -> None:
        """Stream a chat; the time to its first text is a separate figure."""
        body = self._body() | {"messages": self._messages(), "stream": True}
        began_at_s = time.perf_counter()
        given = {"json": body, "stream": True, "catch_response": True, "name": STREAMED}
        with self.client.post("/v1/chat/completions", **given) as response:
            if response.status_code != 200:
                response.failure(response.text[:200])
                return
            data = [""]
            first = False
            for line in response.iter_lines(decode_unicode=True):
                if not line.startswith(_DATA):
                    continue
                data.append(line.removeprefix(_DATA))
                if not first and _text_of(data[-1]):
                    first = True
                    self._tell("TTFT", time.perf_counter() - began_at_s)
            # Locust's own time of a stream ends at its first piece.
            response.request_meta["response_time"] = (time.perf_counter() - began_at_s) * 1e3
            if not first or data[-1] != "[DONE]":
                response.failure(f"needs a text and [DONE], found {data[-1][:200]!r} at the end")

    def whole(self) -> None:
        body = self._body() | {"messages": self._messages()}
        self._posted("/v1/chat/completions", body, "chat", lambda choice: choice["message"]["content"])

    def completion(self) -> None:
        self._posted(
            "/v1/completions", self._body() | {"prompt": self._prompt()}, "completion", lambda one: one["text"]
        )

    def _posted(self, path: str, body: dict[str, Any], name: str, text: Any) -> None:
        with self.client.post(path, json=body, catch_response=True, name=name) as response:
            if response.status_code != 200:
                response.failure(response.text[:200])
            elif not all(text(choice) for choice in response.json()["choices"]):
                response.failure("needs a text, found none")

    def _body(self) -> dict[str, Any]:
        return {"model": MODEL, "max_tokens": 16, "temperature": 0.7, "ignore_eos": True}

    def _prompt(self) -> str:
        self.asked += 1
        return PROMPTS[self.asked % len(PROMPTS)]

    def _messages(self) -> list[dict[str, str]]:
        return [{"role": "user", "content": self._prompt()}]

    def _tell(self, kind: str, took_s: float) -> None:
        told = {"request_type": kind, "name": STREAMED, "response_time": took_s * 1e3, "response_length": 0}
        self.environment.events.request.fire(**told, exception=None, context={})

    tasks = [streamed, whole, completion]  # noqa: RUF012 (Locust's way)


def _text_of(data: str) -> str:
    if data == "[DONE]":
        return ""
    return "".join(choice["delta"].get("content") or "" for choice in json.loads(data)["choices"])

"""Traces at an ingress: sampling, the span of each HTTP request, and the context passed on."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from outrider.contracts.requests import GenerationRequest
from outrider.contracts.tracing import SpanContext
from outrider.tracing.requests import RequestTrace
from outrider.tracing.sampling import decide
from outrider.tracing.spans import Emit, Ids, Value
from serve_app.api.http.record import RequestRecord
from serve_app.api.openai.choices import Choice

TRACEPARENT = "traceparent"
_MAX_PATH_CHARS = 200


class RequestTraces:
    def __init__(self, emit: Emit, ratio: float, random_bits: Callable[[int], int], wall: Callable[[], float]) -> None:
        """``ratio`` is sampled of the requests whose callers do not decide; ``wall`` returns seconds since 1970.

        ``ratio`` may be replaced; later requests use the new one.
        """
        self._emit, self.ratio, self._ids, self._wall = emit, ratio, Ids(random_bits), wall
        self._open: dict[str, RequestTrace] = {}  # by the context that their generation requests carry

    def begin(self, headers: Mapping[str, str], method: str, path: str) -> tuple[str | None, RequestTrace | None]:
        """Return the header for a request's answer, if its caller names a trace, and its trace, if it is sampled."""
        drawn = self._ids.root()
        decision = decide(headers.get(TRACEPARENT, ""), self.ratio, drawn)
        context = SpanContext(decision.trace_id, drawn.span_id)
        if not decision.sampled:
            return None if decision.parent_id is None else context.traceparent(sampled=False), None
        facts: dict[str, Value] = {"http.request.method": method, "url.path": path[:_MAX_PATH_CHARS]}
        trace = RequestTrace(context, decision.parent_id, self._wall(), facts)
        header = context.traceparent()
        self._open[header] = trace
        return header, trace

    def resumed(self, request: GenerationRequest, attempt: int) -> None:
        """Record that another coordinator continues one of its responses, in the same trace."""
        if (trace := self._open.get(request.trace)) is not None:
            said: dict[str, Value] = {"outrider.generation": request.generation, "outrider.attempt": attempt}
            trace.happened("response_resumed", self._wall(), said)

    def ended(self, trace: RequestTrace, route: str | None, record: RequestRecord) -> None:
        """Emit the request's span; ``route`` is the template of its path, if there is one."""
        self._open.pop(trace.context.traceparent(), None)
        method, facts, status = trace.facts["http.request.method"], trace.facts, record.status
        facts |= answered(record.facts)
        facts["outrider.request_id"] = record.request_id
        if route is not None:
            facts["http.route"] = route
        if status is not None:
            facts["http.response.status_code"] = status
        if record.error is not None:
            facts["error.type"] = record.error
        if record.left:
            trace.happened("client_left", self._wall(), {})
        # By the conventions for HTTP, a client's error is no error of the server's span.
        failed = record.error if status is None or status >= 500 or (status == 200 and record.error) else None
        self._emit(trace.span(f"{method} {route}" if route else str(method), self._wall(), failed))


def carried(choices: Sequence[Choice], trace: RequestTrace) -> list[Choice]:
    header = trace.context.traceparent()
    return [replace(choice, request=replace(choice.request, trace=header)) for choice in choices]


def asked(choices: Sequence[Choice], *, chat: bool, name: str, model: str) -> dict[str, Value]:
    """Attributes of a body by OpenTelemetry's conventions for generative AI: no content."""
    request = choices[0].request
    params = request.params
    return {
        "gen_ai.operation.name": "chat" if chat else "text_completion",
        "gen_ai.provider.name": "outrider",
        "gen_ai.request.model": model,
        "gen_ai.response.model": model,
        "gen_ai.response.id": name,
        "gen_ai.request.max_tokens": request.max_tokens,
        "gen_ai.request.temperature": params.temperature,
        "gen_ai.request.top_p": params.top_p,
        "gen_ai.request.top_k": params.top_k,
        "gen_ai.request.choice.count": len(choices),
        "outrider.slo_class": request.slo.name,
    }


def answered(facts: Mapping[str, object]) -> dict[str, Value]:
    """Attributes of a response's logged figures, by the same conventions."""
    said: dict[str, Value] = {}
    for name, fact in (("prompt_tokens", "input_tokens"), ("completion_tokens", "output_tokens")):
        if isinstance(tokens := facts.get(name), int):
            said[f"gen_ai.usage.{fact}"] = tokens
    reasons = facts.get("finish_reasons")
    if isinstance(reasons, list):
        said["gen_ai.response.finish_reasons"] = tuple(str(reason) for reason in reasons if reason is not None)
    return said
